"""The load-predictor sub-sweep: every number of a short series by hand, failures as data, real winners."""

from __future__ import annotations

import math
from itertools import pairwise
from math import log

import pytest

from spica.errors import ConfigError
from spica.planner.predictor_sweep import (
    BASELINE,
    PredictorSweepResult,
    judge,
    sweep_load_predictor,
    window_loss,
    windows_of,
)
from spica.planner.predictor_worker import Forecasts, TrafficWindow
from spica.planner.predictors import LOAD_PREDICTOR_PRESETS, PredictorSpec
from spica.report.predictor_page import predictor_plot
from spica.traffic.model import Request, Trace
from spica.traffic.synth import SynthSpec, synthesize
from spica.traffic.transform import Cut, cut_trace

ARIMA = LOAD_PREDICTOR_PRESETS["arima_raw"]
KALMAN = LOAD_PREDICTOR_PRESETS["kalman_default_raw"]

# Windows of 10 s: two requests, one, none, one.
SHORT = Trace(
    (
        Request(0.0, 100, 10),
        Request(5000.0, 300, 30),
        Request(12_000.0, 500, 50),
        Request(39_999.0, 100, 10),
    ),
    "made",
)
WINDOWS = (
    TrafficWindow(0, 2, 200, 20),
    TrafficWindow(10, 1, 500, 50),
    TrafficWindow(20, 0, 0, 0),
    TrafficWindow(30, 1, 100, 10),
)
# What "the last value" forecasts for windows 1 to 3, against what came.
LOSSES = (
    # (2, 200, 20) for (1, 500, 50): 400 and 40 tokens for 500 and 50
    0.4 * log(501 / 401) + 0.4 * log(51 / 41) + 0.1 * log(501 / 201) + 0.1 * log(51 / 21),
    # (1, 500, 50) for (0, 0, 0)
    0.4 * log(501) + 0.4 * log(51) + 0.1 * log(501) + 0.1 * log(51),
    # (0, 0, 0) for (1, 100, 10)
    0.4 * log(101) + 0.4 * log(11) + 0.1 * log(101) + 0.1 * log(11),
)


def forecasts(shift: float, points: int = 1) -> Forecasts:
    """Forecasts that are off by ``shift`` requests in every window."""
    return Forecasts(
        tuple(TrafficWindow(w.start_s, w.requests + shift, w.isl, w.osl) for w in WINDOWS), points
    )


def test_window_loss_by_hand() -> None:
    last = WINDOWS[:3]
    assert [window_loss(f, a) for f, a in zip(last, WINDOWS[1:], strict=True)] == pytest.approx(LOSSES)


def test_negative_forecasts_count_as_zero_before_they_are_multiplied() -> None:
    actual = TrafficWindow(0, 1, 100, 10)
    zero = window_loss(TrafficWindow(0, 0, 0, 0), actual)
    assert window_loss(TrafficWindow(0, -1, -100, -10), actual) == zero
    # Were the product taken first, (-1)(-100) would be a perfect forecast of the tokens.
    assert zero == pytest.approx(0.5 * log(101) + 0.5 * log(11))


def test_the_smallest_mean_loss_wins_and_ties_go_to_the_earlier() -> None:
    outcomes = [
        (ARIMA, True, forecasts(1.0)),
        (KALMAN, True, forecasts(0.0)),
        (BASELINE, True, forecasts(0.0)),
    ]
    result = judge(10, WINDOWS, outcomes)
    assert result.winner == KALMAN
    assert [s.loss for s in result.scores][1:] == [0.0, 0.0]
    hand = [window_loss(f, a) for f, a in zip(forecasts(1.0).windows, WINDOWS, strict=True)][1:]
    assert result.scores[0].loss == pytest.approx(sum(hand) / 3)


def test_all_are_scored_beyond_the_largest_warm_up() -> None:
    result = judge(10, WINDOWS, [(ARIMA, True, forecasts(0.0, 3)), (BASELINE, True, forecasts(1.0, 1))])
    assert (result.warmup, result.scored_windows) == (3, 1)
    only = window_loss(forecasts(1.0).windows[3], WINDOWS[3])
    assert result.scores[1].loss == only


def test_a_baseline_that_is_no_candidate_is_shown_but_cannot_win() -> None:
    result = judge(10, WINDOWS, [(ARIMA, True, forecasts(1.0)), (BASELINE, False, forecasts(0.0))])
    assert result.winner == ARIMA
    rows = PredictorSweepResult((result,), "swept").table()
    assert [(r.predictor, r.candidate, r.winner) for r in rows] == [
        ("constant_last", False, False),
        ("arima_raw", True, True),
    ]


def test_failures_lose_with_their_cause() -> None:
    broken = Forecasts((*forecasts(0.0).windows[:3], TrafficWindow(30, 1, math.nan, 1)), 1, 2, "no fit")
    result = judge(10, WINDOWS, [(ARIMA, True, broken), (KALMAN, True, "RuntimeError: boom")])
    assert [s.loss for s in result.scores] == [math.inf, math.inf]
    assert result.scores[0].cause == "forecast nan for isl of window 3"
    assert result.scores[0].note == "2 fits failed and repeated the last value (no fit)"
    assert result.scores[1].cause == "RuntimeError: boom"
    assert (result.winner, result.reason) == (
        BASELINE,
        "no candidate gave a forecast for every window; constant_last is used",
    )


def test_a_trace_shorter_than_the_warm_up_has_no_winner() -> None:
    result = judge(10, WINDOWS, [(ARIMA, True, forecasts(0.0, 5)), (BASELINE, True, forecasts(0.0))])
    assert result.winner == BASELINE
    assert result.reason.startswith("trace too short: 4 windows of 10 s, more than 5 are needed")


def test_short_circuits() -> None:
    nothing = sweep_load_predictor(SHORT, ["arima_raw"], [])
    assert (nothing.reason, nothing.intervals, nothing.table()) == ("no throughput-scaling policy", (), ())
    static = sweep_load_predictor(None, ["arima_raw"], [600, 180, 180])
    assert static.reason == "static workload"
    assert [(r.interval_s, r.winner.name) for r in static.intervals] == [
        (180, "constant_last"),
        (600, "constant_last"),
    ]
    assert static.winner(180) == static.winner(99) == BASELINE
    assert "Nothing was swept: static workload" in predictor_plot(static)
    with pytest.raises(ConfigError, match="no load predictor"):
        sweep_load_predictor(SHORT, [], [180])
    with pytest.raises(ConfigError, match="unknown load predictor"):
        sweep_load_predictor(SHORT, ["arima"], [180])


@pytest.mark.real
def test_windows_are_the_planners_with_the_empty_ones() -> None:
    assert windows_of(SHORT, 10) == WINDOWS


@pytest.mark.real
def test_a_short_series_by_hand_with_a_failure_beside_it() -> None:
    bad = PredictorSpec("bad", "kalman", kalman_min_points="many")  # type: ignore[arg-type]
    told: list[tuple[int, int]] = []
    result = sweep_load_predictor(
        cut_trace(SHORT, Cut(speedup=0.25)),
        ["constant_last", bad],
        [10],
        arrival_speedup_ratio=4.0,
        jobs=1,
        progress=lambda done, total: told.append((done, total)),
    )
    one = result.intervals[0]
    assert one.windows == WINDOWS
    assert one.warmup == 1
    assert one.scores[0].forecasts == (
        TrafficWindow(0, 0, 0, 0),
        *(TrafficWindow(after.start_s, w.requests, w.isl, w.osl) for w, after in pairwise(WINDOWS)),
    )
    assert one.scores[0].loss == pytest.approx(sum(LOSSES) / 3)
    assert one.scores[1].cause.startswith("ValidationError")
    assert one.scores[1].loss == math.inf
    assert result.winner(10) == BASELINE
    assert told == [(1, 2), (2, 2)]


@pytest.mark.real
def test_a_late_predictor_is_stopped_and_the_others_count() -> None:
    trace = Trace(tuple(Request(1000.0 * i, 100 + i % 7, 10) for i in range(600)), "made")
    result = sweep_load_predictor(trace, ["prophet_w20_raw", "kalman_default_raw"], [10], cap_seconds=0.5)
    by_name = {s.spec.name: s for s in result.intervals[0].scores}
    assert by_name["prophet_w20_raw"].cause == "took longer than 0.5 s and was stopped"
    assert by_name["prophet_w20_raw"].loss == math.inf
    assert result.winner(10).name == "kalman_default_raw"
    assert not by_name["constant_last"].candidate


@pytest.mark.real
def test_winners_are_sensible_on_a_day_and_on_bursts() -> None:
    """On a day that moves more than it is noisy filters lag; on bursts without memory averages win."""
    candidates = ["constant_last", "kalman_default_raw", "kalman_default_log1p", "kalman_reactive_log1p"]
    day = synthesize(SynthSpec("diurnal", duration=86_400.0, period=86_400.0, rate=1.0, amplitude=1.0))
    smooth = sweep_load_predictor(day, candidates, [1800], jobs=1)
    assert (smooth.intervals[0].warmup, smooth.intervals[0].scored_windows) == (5, 43)
    assert smooth.winner(1800).name == "constant_last"
    assert _loss(smooth, "kalman_default_raw") > 2 * _loss(smooth, "constant_last")

    bursts = synthesize(SynthSpec("bursty", duration=86_400.0, rate=1.0, burst_seconds=60.0))
    rough = sweep_load_predictor(bursts, candidates, [600], jobs=1)
    assert (rough.intervals[0].warmup, rough.intervals[0].scored_windows) == (5, 139)
    assert rough.winner(600).name == "kalman_default_log1p"
    best = next(r for r in rough.table() if r.winner)
    assert best.versus_constant == pytest.approx(best.loss / _loss(rough, "constant_last"))
    assert best.loss < 0.95 * _loss(rough, "constant_last")
    page = predictor_plot(rough)
    assert page.count("<!doctype html>") == 1
    assert "kalman_default_log1p (" in page
    assert "Every 600 s: kalman_default_log1p" in page
    assert f'<td class="n">{best.loss:.4g}</td>' in page
    assert page.count('tokens"') >= 2  # the units of the lengths' axes


def _loss(result: PredictorSweepResult, name: str) -> float:
    return next(r.loss for r in result.table() if r.predictor == name)


@pytest.mark.real
def test_every_preset_gets_a_loss_from_the_planners_own_class() -> None:
    counts = (9, 12, 10, 14, 13, 17, 15, 18)
    rows = [
        Request(10_000.0 * i + 500.0 * j, 100 + 10 * i, 20 + j)
        for i, n in enumerate(counts)
        for j in range(n)
    ]
    result = sweep_load_predictor(Trace(tuple(rows), "made"), list(LOAD_PREDICTOR_PRESETS), [10])
    table = result.table()
    assert {r.predictor for r in table} == set(LOAD_PREDICTOR_PRESETS)
    assert all(0 < r.loss < 1 for r in table), table
    assert result.intervals[0].warmup == 5
    assert table[0].winner
    assert _loss(result, "constant_last") == pytest.approx(
        sum(window_loss(before, after) for before, after in list(pairwise(result.intervals[0].windows))[4:])
        / 3
    )
