"""Writing, cutting, describing and making traces, against values worked out by hand or another way."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from spica.errors import InputError, TraceError
from spica.report.trace_page import bars
from spica.traffic.info import distribution, nice_window, reused_tokens, trace_info, trace_warnings
from spica.traffic.model import Request, Trace
from spica.traffic.read import read_trace
from spica.traffic.synth import KINDS, SynthKind, SynthSpec, diurnal_shape, synthesize
from spica.traffic.transform import Cut, cut_trace, parse_sample, parse_window
from spica.traffic.write import fill_hash_ids, prepare_replay_file, regroup_blocks, write_mooncake


def even(count: int, gap_ms: float = 1000.0) -> Trace:
    """Requests at equal gaps, told apart by their prompt length 1, 2, 3, ..."""
    return Trace(tuple(Request(i * gap_ms, i + 1, 1) for i in range(count)), "made", source="made")


def test_write_then_read_gives_the_same_requests(tmp_path: Path) -> None:
    rows = (
        Request(0.0, 600, 5, (2**64 - 1, 0), "a"),
        Request(0.5, 10, 1, None, "b"),
        Request(1.0, 700, 2, (3, 4), "a", 30.0),
    )
    trace = Trace(rows, "made", closed_sessions=True)
    for name in ("t.jsonl", "t.jsonl.gz"):
        back = read_trace(write_mooncake(trace, tmp_path / name))
        assert back.requests == rows
        assert back.closed_sessions
    first = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])
    assert first["timestamp"] == 0
    assert isinstance(first["timestamp"], int)
    assert (tmp_path / "t.jsonl.gz").read_bytes() == write_mooncake(trace, tmp_path / "u.gz").read_bytes()
    assert gzip.decompress((tmp_path / "u.gz").read_bytes()) == (tmp_path / "t.jsonl").read_bytes()


def test_sessions_that_are_labels_are_not_written(tmp_path: Path) -> None:
    trace = Trace((Request(0.0, 1, 1, None, "a"),), "burstgpt")
    assert "session" not in write_mooncake(trace, tmp_path / "t").read_text()


def test_writing_fails_without_leaving_anything(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        write_mooncake(even(1), tmp_path / "none" / "t.jsonl")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write"):
        prepare_replay_file(even(1), tmp_path / "file" / "sub")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_regrouped_blocks_share_what_the_old_ones_shared_block_by_block() -> None:
    # 64-token blocks; a and b agree on the first 10 (640 tokens), c only on the first 7 (448).
    a = tuple(range(20))
    b = (*range(10), *range(100, 110))
    c = (*range(7), *range(200, 213))
    trace = Trace(tuple(Request(0.0, 1280, 1, h) for h in (a, b, c)), "dynamo", block_size=64)
    one, two, three = (r.hash_ids for r in regroup_blocks(trace, 512).requests)
    assert one is not None
    assert two is not None
    assert three is not None
    assert [len(h) for h in (one, two, three)] == [3, 3, 3]
    assert one[0] == two[0]
    assert len({one[1], two[1], one[2], two[2], *three}) == 7
    assert reused_tokens(trace) == 640 + 448
    assert reused_tokens(regroup_blocks(trace, 512)) == 512
    assert regroup_blocks(trace, 64) is trace


def test_a_split_into_smaller_blocks_keeps_the_reuse() -> None:
    rows = (Request(0.0, 1024, 1, (5, 6)), Request(1.0, 1000, 1, (5, 7)))
    finer = regroup_blocks(Trace(rows, "made"), 64)
    assert [len(r.hash_ids or ()) for r in finer.requests] == [16, 16]
    assert reused_tokens(finer) == 512


@pytest.mark.parametrize("highest", [41, 2**64 - 1])
def test_filled_ids_are_unique_and_unused(highest: int) -> None:
    trace = Trace((Request(0.0, 1000, 1, (0, highest)), Request(1.0, 1600, 1), Request(2.0, 1, 1)), "made")
    filled = fill_hash_ids(trace)
    ids = [h for r in filled.requests for h in r.hash_ids or ()]
    assert len(ids) == len(set(ids)) == 2 + 4 + 1
    assert max(ids) < 2**64
    assert filled.requests[0] == trace.requests[0]
    assert fill_hash_ids(filled) is filled


def test_window_is_half_open_and_starts_at_zero() -> None:
    cut = cut_trace(even(10), Cut(window_s=(2.0, 5.0)))
    assert [(r.arrival_ms, r.input_length) for r in cut.requests] == [(0.0, 3), (1000.0, 4), (2000.0, 5)]
    assert len(cut_trace(even(10), Cut(window_s=(7.5, None)))) == 2
    with pytest.raises(TraceError, match="the trace spans 9 s"):
        cut_trace(even(10), Cut(window_s=(50.0, 60.0)))


def test_speedup_divides_arrivals_and_max_requests_keeps_the_first() -> None:
    cut = cut_trace(even(10), Cut(speedup=4.0, max_requests=3))
    assert [r.arrival_ms for r in cut.requests] == [0.0, 250.0, 500.0]
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(TraceError, match="speed-up"):
            cut_trace(even(2), Cut(speedup=bad))
    with pytest.raises(TraceError, match="0 requests"):
        cut_trace(even(2), Cut(max_requests=0))


def test_sample_is_seeded_of_the_right_size_and_in_order() -> None:
    one, two = (cut_trace(even(100), Cut(sample=0.25, seed=s)).requests for s in (1, 2))
    assert len(one) == len(two) == 25
    assert one == cut_trace(even(100), Cut(sample=0.25, seed=1)).requests
    assert one != two
    assert list(one) == sorted(set(one), key=lambda r: r.arrival_ms)
    assert len(cut_trace(even(100), Cut(sample=7))) == 7
    assert len(cut_trace(even(5), Cut(sample=7))) == 5


def test_sample_keeps_waiting_sessions_whole() -> None:
    rows = tuple(Request(float(i), 1, 1, None, f"s{i % 5}") for i in range(20))
    cut = cut_trace(Trace(rows, "made", closed_sessions=True), Cut(sample=2))
    kept = {r.session for r in cut.requests}
    assert len(kept) == 2
    assert list(cut.requests) == [r for r in rows if r.session in kept]


def test_window_and_sample_texts() -> None:
    assert parse_window("60:120.5") == (60.0, 120.5)
    assert parse_window("60:") == (60.0, None)
    assert parse_window(":9") == (0.0, 9.0)
    for bad in ("60", "9:3", "a:b", "-1:3"):
        with pytest.raises(TraceError):
            parse_window(bad)
    assert (parse_sample("0.25"), parse_sample("25%"), parse_sample("30")) == (0.25, 0.25, 30.0)
    assert len(cut_trace(even(9), Cut(sample=parse_sample("100%")))) == 9
    for bad in ("0", "-1", "1.5", "nan", "inf", "120%", "x"):
        with pytest.raises(TraceError):
            parse_sample(bad)


def test_percentiles_agree_with_numpy() -> None:
    values = [int(v) for v in np.random.default_rng(1).integers(0, 10_000, 357)]
    found = distribution(values)
    for p, value in found.percentiles:
        assert value == pytest.approx(float(np.percentile(values, p)))
    assert (found.mean, found.minimum, found.maximum) == (statistics.fmean(values), min(values), max(values))


def test_info_by_hand() -> None:
    rows = (
        Request(0.0, 1024, 10, (1, 2)),
        Request(1000.0, 1024, 20, (1, 3)),  # shares 512 tokens with the first
        Request(1000.0, 700, 30, (1, 2)),  # shares both blocks: all of its 700 tokens
        Request(4000.0, 512, 40, (2,)),  # id 2, but not behind id 1: nothing shared
    )
    info = trace_info(Trace(rows, "made"), [1000, 1034])
    assert info.reuse_ratio == (512 + 700) / 3260
    assert (info.span_s, info.rate_rps) == (4.0, 0.75)
    assert info.interarrival_cv == pytest.approx(statistics.pstdev([1, 0, 3]) / (4 / 3))
    assert (info.window_s, sum(info.counts), len(info.counts)) == (0.1, 4, 41)
    assert info.peak_to_mean == 2 / (4 / 41)
    assert info.fits == ((1000, 0.5), (1034, 0.75))
    assert (info.prompt_tokens, info.output_tokens) == (3260, 100)
    assert info.slow_in_flight == pytest.approx((3260 / 2000 + 100 / 20) / 4)


def test_info_of_simultaneous_requests_has_no_rate() -> None:
    info = trace_info(even(3, 0.0))
    assert (info.rate_rps, info.interarrival_cv, info.reuse_ratio) == (None, None, None)
    assert info.counts == (3,)


@pytest.mark.parametrize("span", [0.0, 0.01, 59.9, 60.0, 177.098, 3600.0, 1e6, 1e9])
def test_windows_are_at_most_sixty(span: float) -> None:
    assert int(span / nice_window(span)) + 1 <= 60


def test_bars() -> None:
    assert bars([0, 1, 4, 8]) == " ▁▄█"


def test_warnings() -> None:
    busy = Trace(tuple(Request(i * 10.0, 3000, 300, (i,) * 6) for i in range(100)), "made")
    assert trace_warnings(busy, False) == ()
    assert "no two requests" in trace_warnings(busy, True)[0]
    bare = Trace(tuple(Request(i * 10.0, 3000, 300) for i in range(100)), "made")
    assert "no prefix information" in trace_warnings(bare, True)[0]
    assert trace_warnings(bare, False) == ()
    shared = Trace((*busy.requests, *busy.requests), "made")
    assert trace_warnings(shared, True) == ()
    slow = even(100, 1000.0)  # 1 token each: 0.05 s of 1 s
    assert "load is very low" in trace_warnings(slow, False)[0]
    assert trace_warnings(slow, False, arrival_speedup_ratio=50.0) == ()
    assert trace_warnings(slow, False, arrivals_ignored=True) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_synthesis_is_seeded_and_has_the_rate_asked_for(kind: SynthKind) -> None:
    spec = SynthSpec(kind, rate=2.0, duration=7200.0, isl=1000, osl=100, burst_seconds=5.0)
    trace = synthesize(spec)
    assert trace == synthesize(spec)
    assert (
        trace.requests
        != synthesize(SynthSpec(kind, 2.0, 7200.0, 1000, 100, burst_seconds=5.0, seed=2)).requests
    )
    # 14,400 expected; the count of bursts, of sessions' lengths and of thinning vary it by a few percent.
    assert len(trace) == pytest.approx(14_400, rel=0.1)
    arrivals = [r.arrival_ms for r in trace.requests]
    assert arrivals == sorted(arrivals)
    assert 0 <= arrivals[0] <= arrivals[-1] <= 7_200_000
    assert statistics.fmean(r.output_length for r in trace.requests) == pytest.approx(100, rel=0.03)
    assert trace.has_prefixes == (kind in ("sessions", "shared_prefix"))


def test_burstiness_of_the_kinds() -> None:
    cv = {
        k: trace_info(synthesize(SynthSpec(k, duration=7200.0))).interarrival_cv
        for k in ("poisson", "bursty")
    }
    assert cv["poisson"] == pytest.approx(1.0, abs=0.05)
    assert cv["bursty"] is not None
    assert cv["bursty"] > 1.3


def test_sine_peaks_a_quarter_period_in() -> None:
    trace = synthesize(SynthSpec("sine", rate=10.0, duration=4000.0, period=4000.0, amplitude=0.8))
    quarters = [0, 0, 0, 0]
    for row in trace.requests:
        quarters[int(row.arrival_ms // 1_000_000)] += 1
    # The mean of sin over a quarter period is 2/pi: 10,000 (1 +- 0.8 x 2/pi).
    up, down = 10_000 * (1 + 1.6 / math.pi), 10_000 * (1 - 1.6 / math.pi)
    assert quarters == pytest.approx([up, up, down, down], rel=0.05)


def test_the_day_has_mean_one_a_quiet_night_and_stays_below_the_thinning_bound() -> None:
    shape = [diurnal_shape(i / 2400) for i in range(2400)]
    assert statistics.fmean(shape) == pytest.approx(1.0)
    assert min(shape) > 0
    assert max(shape) < 2
    assert shape.index(min(shape)) / 100 == pytest.approx(3.5, abs=1.5)


def test_shared_prefix_reuse_is_what_was_asked_for() -> None:
    spec = SynthSpec("shared_prefix", isl=2048, prefix_ratio=0.5, prefix_groups=4, length_cv=0.0, rate=1.0)
    trace = synthesize(spec)
    rows = len(trace)
    assert {r.input_length for r in trace.requests} == {2048}
    assert trace_info(trace).reuse_ratio == (rows - 4) * 1024 / (rows * 2048)


def test_session_turns_grow_and_reuse_whole_blocks() -> None:
    trace = synthesize(
        SynthSpec("sessions", duration=600.0, isl=700, osl=100, length_cv=0.0, think_seconds=0.0)
    )
    assert trace.closed_sessions
    turns: dict[str | None, list[Request]] = {}
    for row in trace.requests:
        turns.setdefault(row.session, []).append(row)
    for rows in turns.values():
        assert [r.input_length for r in rows] == [700 + 800 * i for i in range(len(rows))]
        assert [r.delay_ms for r in rows] == [None, *[0.0] * (len(rows) - 1)]
        for before, after in pairwise(rows):
            whole = before.input_length // 512
            assert before.hash_ids is not None
            assert after.hash_ids is not None
            assert before.hash_ids[:whole] == after.hash_ids[:whole]
            assert not set(before.hash_ids[whole:]) & set(after.hash_ids)
    assert statistics.fmean(len(rows) for rows in turns.values()) == pytest.approx(5, rel=0.2)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"rate": 0.0}, "rate"),
        ({"rate": math.nan}, "rate"),
        ({"duration": -1.0}, "duration"),
        ({"isl": 0}, "isl"),
        ({"amplitude": 1.5}, "amplitude"),
        ({"turns": 0.5}, "turns"),
        ({"rate": 1000.0, "duration": 1e6}, "too many"),
        ({"rate": 1e-6, "duration": 1.0}, "no request falls"),
    ],
)
def test_synthesis_refuses_nonsense(change: dict[str, float], key: str) -> None:
    spec = SynthSpec("poisson", **{"rate": 1.0, "duration": 10.0} | change)  # type: ignore[arg-type]
    with pytest.raises(TraceError, match=key):
        synthesize(spec)
