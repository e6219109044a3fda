"""A run folder read back: order, means, the front, what was never measured."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from made_run import agg, disagg, feasible, identity, metrics, sample, small_run, write_run
from rich.console import Console

from spica.errors import LedgerError
from spica.record import Ledger, TrialRecord
from spica.record.runfolder import SPACE_FILE, SUMMARY_FILE
from spica.report.charts import workers_chart
from spica.report.collect import collect
from spica.report.html import report_html
from spica.report.insight import knob_effects, why_best
from spica.report.tables import candidate_rows, candidates_json, to_csv, to_json, to_parquet, trial_rows
from spica.report.terminal import result_view
from spica.trial import Metrics, Outcome, ReplicaCount, TrialResult

PARETO = {"target": "pareto", "pareto_objectives": ["throughput_per_gpu", "throughput_per_user"]}


def test_ranking_and_outcomes(tmp_path: Path) -> None:
    keys = small_run(tmp_path / "run")
    report = collect(tmp_path / "run")
    assert [leader.values for leader in report.leaders] == [(3064.08,), (2746.464,), (2100.5,), (1810.0,)]
    assert [leader.rank for leader in report.leaders] == [1, 2, 3, 4]
    assert report.best is not None
    assert report.best.key == keys["agg"][1]
    assert report.best.trials == ("agg-1", "agg-3")
    assert report.leaders[3].avg_gpu == 6.0
    outcomes = [(t.trial, t.outcome, t.cache_hit, t.order) for t in report.trials]
    assert outcomes == [
        ("agg-0", "feasible", False, 1),
        ("agg-1", "feasible", False, 2),
        ("agg-2", "infeasible", False, 3),
        ("agg-3", "feasible", True, 0),
        ("agg-4", "pending", False, 0),
        ("disagg-0", "feasible", False, 4),
        ("disagg-1", "feasible", False, 5),
    ]
    rows = {b.name: (b.suggestions, b.replays, b.cache_hits, b.feasible) for b in report.branches}
    assert rows == {"agg": (5, 3, 1, 2), "disagg": (2, 2, 0, 2)}
    assert [(r.outcome, r.count) for r in report.reasons] == [("infeasible", 1), ("pending", 1)]


def test_ties_go_to_fewer_gpus(tmp_path: Path) -> None:
    write_run(
        tmp_path / "run",
        {
            "agg": [
                (sample(agg(2, 4)), feasible(metrics(100.0))),
                (sample(agg(2, 2)), feasible(metrics(100.0))),
            ]
        },
    )
    assert [leader.used_gpus for leader in collect(tmp_path / "run").leaders] == [4, 8]


def test_confirming_measurements_replace_the_lucky_one(tmp_path: Path) -> None:
    noisy = sample(agg(2, 4), kv_router=True)
    steady = sample(agg(4, 2))
    folder = tmp_path / "run"
    write_run(folder, {"agg": [(noisy, feasible(metrics(1100.0))), (steady, feasible(metrics(1000.0)))]})
    with Ledger.resume(folder) as ledger:
        for repeat, value in enumerate((960.0, 980.0, 1000.0), start=1):
            ledger.record_trial(TrialRecord(noisy.key(), feasible(metrics(value)), repeat))
    first, second = collect(folder).leaders
    assert first.key == steady.key()
    assert second.values == (980.0,)
    assert second.std == (20.0,)  # of 960, 980, 1000: sqrt((400 + 0 + 400) / 2)
    assert second.repeats == 3


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_repeat_that_cannot_be_scored_counts_as_failed(tmp_path: Path, at: int) -> None:
    """As in a sweep, wherever it stands among the repeats: the mean is that of the others."""
    latency = sample(agg(2, 4), kv_router=True)
    folder = tmp_path / "run"

    def measured(value: float) -> TrialResult:
        return feasible(Metrics({**metrics(10.0).summary, "mean_e2e_latency_ms": value}))

    write_run(folder, {"agg": [(latency, measured(500.0))]}, identity({"target": "e2e_latency"}))
    values = [900.0, 940.0]
    values.insert(at, math.inf)
    with Ledger.resume(folder) as ledger:
        for repeat, value in enumerate(values, start=1):
            ledger.record_trial(TrialRecord(latency.key(), measured(value), repeat))
    (only,) = collect(folder).leaders
    assert only.values == (920.0,)
    assert only.repeats == 2
    assert only.metrics["mean_e2e_latency_ms"] == 920.0


def test_front_is_what_nothing_beats_in_both(tmp_path: Path) -> None:
    points = [(4.0, 10.0), (3.0, 20.0), (2.0, 15.0), (1.0, 40.0), (3.5, 5.0)]
    steps = [
        (sample(agg(1, n + 1)), feasible(metrics(gpu * 8, gpus=8.0, per_user=user)))
        for n, (gpu, user) in enumerate(points)
    ]
    write_run(tmp_path / "run", {"agg": steps}, identity(PARETO))
    report = collect(tmp_path / "run")
    assert [leader.values for leader in report.front] == [(4.0, 10.0), (3.0, 20.0), (1.0, 40.0)]
    # Scaled to 0..1 the sums are 1, 1 and 2/3 + 1/3; the middle point is the most even.
    assert report.best is not None
    assert report.best.values == (3.0, 20.0)
    assert [leader.values for leader in report.leaders[3:]] == [(3.5, 5.0), (2.0, 15.0)]


def test_what_no_request_met_is_apart_from_the_front(tmp_path: Path) -> None:
    goal = {
        "target": "pareto",
        "pareto_objectives": ["goodput", "throughput_per_user"],
        "sla": {"ttft_ms": 1.0, "itl_ms": 1.0, "e2e_ms": None},
    }

    def with_goodput(value: float, user: float) -> TrialResult:
        made = metrics(1000.0, per_user=user)
        return feasible(type(made)({**made.summary, "goodput_output_throughput_tok_s": value}))

    write_run(
        tmp_path / "run",
        {"agg": [(sample(agg(1, 1)), with_goodput(0.0, 99.0)), (sample(agg(1, 2)), with_goodput(5.0, 50.0))]},
        identity(goal),
    )
    report = collect(tmp_path / "run")
    assert [leader.values for leader in report.front] == [(5.0, 50.0)]
    assert [leader.excluded_by_sla for leader in report.leaders] == [False, True]


def test_goodput_goal_fails_a_replay_without_goodput(tmp_path: Path) -> None:
    goal = {"target": "goodput", "sla": {"ttft_ms": None, "itl_ms": None, "e2e_ms": 5000.0}}
    write_run(tmp_path / "run", {"agg": [(sample(agg(1, 1)), feasible(metrics(10.0)))]}, identity(goal))
    report = collect(tmp_path / "run")
    assert report.leaders == ()
    assert report.trials[0].outcome == "failed"
    assert "no goodput" in report.trials[0].reason


def test_tables_hold_one_row_each_and_the_same_numbers(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    report = collect(tmp_path / "run")
    document = json.loads(json.dumps(candidates_json(report), allow_nan=False))
    assert [c["values"]["throughput"] for c in document["candidates"]] == [3064.08, 2746.464, 2100.5, 1810.0]
    assert document["outcomes"] == {"feasible": 4, "infeasible": 1, "cache_hit": 1, "pending": 1}
    read = list(csv.DictReader(io.StringIO(to_csv(candidate_rows(report)))))
    assert [row["throughput"] for row in read] == ["3064.08", "2746.464", "2100.5", "1810.0"]
    assert read[0]["tp"] == "4"
    assert read[0]["agg_enable_prefix_caching"] == "true"
    assert read[2]["tp"] == ""
    trials = list(csv.DictReader(io.StringIO(to_csv(trial_rows(report)))))
    assert [row["trial"] for row in trials] == [t.trial for t in report.trials]
    assert trials[2]["reason"] == "block pool 50, need 57"
    assert trials[2]["throughput"] == ""


def test_parquet_has_the_same_rows(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    small_run(tmp_path / "run")
    report = collect(tmp_path / "run")
    (tmp_path / "t.parquet").write_bytes(to_parquet(trial_rows(report)))
    table = pq.read_table(tmp_path / "t.parquet").to_pydict()
    assert table["trial"] == [t.trial for t in report.trials]
    assert table["throughput"] == [None if t.values is None else t.values[0] for t in report.trials]


@pytest.mark.parametrize(
    ("without", "given", "told"),
    [
        ("mean_e2e_latency_ms", {}, "reports no mean_e2e_latency_ms"),
        ("", {"mean_e2e_latency_ms": math.inf}, "mean_e2e_latency_ms = inf"),
        ("", {"mean_e2e_latency_ms": math.nan}, "mean_e2e_latency_ms = nan"),
        ("", {"completed_requests": 0.0}, "completed 0 requests"),
        ("", {"completed_requests": math.nan}, "completed nan requests"),
        ("", {"gpu_hours": math.nan}, "gpu_hours = nan"),
        ("", {"duration_ms": math.inf}, "duration_ms = inf"),
    ],
)
def test_numbers_that_no_replay_can_have_are_never_ranked(
    tmp_path: Path, without: str, given: dict[str, float], told: str
) -> None:
    measured = metrics(10.0)
    summary = {k: v for k, v in measured.summary.items() if k != without} | given
    write_run(
        tmp_path / "run",
        {"agg": [(sample(agg(1, 1)), feasible(type(measured)(summary)))]},
        identity({"target": "e2e_latency"}),
    )
    report = collect(tmp_path / "run")
    assert report.best is None
    (trial,) = report.trials
    assert trial.outcome == "failed"
    assert told in trial.reason


def test_infinite_latency_has_a_json_form(tmp_path: Path) -> None:
    measured = metrics(10.0)
    summary = dict(measured.summary) | {"mean_e2e_latency_ms": math.inf}
    write_run(
        tmp_path / "run",
        {"agg": [(sample(agg(1, 1)), feasible(type(measured)(summary)))]},
        identity({"target": "throughput"}),
    )
    document = candidates_json(collect(tmp_path / "run"))
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text)["candidates"][0]["metrics"]["mean_e2e_latency_ms"] is None


def test_knob_effects_and_why(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    report = collect(tmp_path / "run")
    effects = {e.knob: e for e in knob_effects(report, limit=99)}
    mode = effects["deployment_mode"]
    assert [(v.value, v.count, v.best) for v in mode.values] == [("agg", 2, 3064.08), ("disagg", 2, 2100.5)]
    assert mode.values[1].mean == pytest.approx((2100.5 + 1810.0) / 2)
    assert mode.gap == pytest.approx(1 - 2100.5 / 3064.08)
    assert "model_name" not in effects
    first, other = why_best(report)
    assert first.startswith("11.56% better than rank 2")  # 3064.08 / 2746.464 = 1.11565
    assert "tp 4 -> 2" in first
    assert other.startswith("the best disagg candidate reaches 2,100 tok/s")


def test_side_files_are_optional_and_read_when_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small_run(folder)
    assert collect(folder).extras.wall is None
    (folder / SPACE_FILE).write_text(
        json.dumps({"not_searched": [{"what": "knob x", "reason": "r"}], "shapes_dropped": []})
    )
    (folder / SUMMARY_FILE).write_text(json.dumps({"timings": {"wall": 12.5}, "stop": "interrupted"}))
    report = collect(folder)
    assert report.extras.wall == 12.5
    assert report.extras.stop == "interrupted"
    assert [n.what for n in report.not_searched] == ["knob x"]
    (folder / SUMMARY_FILE).write_text("{not json")
    assert collect(folder).extras.wall is None


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="holds no run"):
        collect(tmp_path)


def test_a_branch_where_everything_failed(tmp_path: Path) -> None:
    failed = TrialResult(Outcome.FAILED, "engine schema 28")
    write_run(tmp_path / "run", {"disagg": [(sample(disagg((1, 1), (1, 1))), failed)]})
    report = collect(tmp_path / "run")
    assert report.best is None
    assert why_best(report) == ()
    assert candidates_json(report)["best"] is None


def test_a_planners_ticks_and_timeline_reach_the_files(tmp_path: Path) -> None:
    stood = (ReplicaCount(0.0, 0, 2), ReplicaCount(30.0, 0, 5), ReplicaCount(90.0, 0, 1))
    moved = replace(metrics(1000.0), planner_total_ticks=24, replicas=stood)
    steps = [
        (sample(agg(1, 2), scaling=True), feasible(moved)),
        (sample(agg(1, 4)), feasible(metrics(900.0))),
    ]
    write_run(tmp_path / "run", {"agg": steps})
    report = collect(tmp_path / "run")
    best, other = json.loads(json.dumps(candidates_json(report)))["candidates"]
    assert best["planner_total_ticks"] == 24
    assert [tuple(r.values()) for r in best["replica_timeline"]] == [(0.0, 0, 2), (30.0, 0, 5), (90.0, 0, 1)]
    assert (other["planner_total_ticks"], other["replica_timeline"]) == (None, [])
    assert [row.get("planner_total_ticks") for row in candidate_rows(report)] == [24, None]
    chart = json.loads(workers_chart(report.leaders[0]))["data"][0]
    end = report.leaders[0].metrics["duration_ms"] / 1000
    assert (chart["x"], chart["y"]) == ([0.0, 30.0, 90.0, end], [2, 5, 1, 1])
    assert workers_chart(report.leaders[1]) == ""
    assert "Workers of the best deployment" in report_html(report)


def test_a_result_says_which_trials_were_lost_with_their_worker(tmp_path: Path) -> None:
    died = "worker died (signal 9, SIGKILL, perhaps out of memory)"
    cap = "memory cap: the replay used 5.0 GiB, more than the cap of 4.0 GiB"
    write_run(
        tmp_path,
        {
            "agg": [
                (sample(agg(2, 4)), feasible(metrics(2746.0))),
                (sample(agg(4, 2)), TrialResult(Outcome.FAILED, died)),
                (sample(agg(4, 2)), TrialResult(Outcome.FAILED, died)),  # a cache hit: one trial
                (sample(agg(8, 1)), TrialResult(Outcome.INFEASIBLE, cap)),  # as records of before have it
                (sample(agg(1, 8)), TrialResult(Outcome.FAILED, "RuntimeError: no worker died")),
            ]
        },
    )
    report = collect(tmp_path)
    assert report.lost == (("agg-1", died), ("agg-3", cap))
    console = Console(width=200, file=io.StringIO(), force_terminal=False)
    console.print(result_view(report))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    page = report_html(report)
    for text in ("2 trials were lost with the worker process", "spica sweep --resume", f"agg-1: {died}"):
        assert text in shown
        assert text in page
    assert [row["trial"] for row in json.loads(to_json(report))["lost"]] == ["agg-1", "agg-3"]
