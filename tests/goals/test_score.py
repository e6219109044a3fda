from __future__ import annotations

import math

import pytest

from spica.goals.score import SCALAR_TARGETS, MissingGoodput, Scoring, avg_gpu, score, value
from spica.goals.targets import OptimizationTarget
from spica.trial import Metrics, Outcome, Sla, TrialResult

# Half an hour on a time-averaged 6 GPUs: 3 GPU-hours.
SUMMARY = {
    "output_throughput_tok_s": 2400.0,
    "mean_output_token_throughput_per_user": 41.5,
    "mean_e2e_latency_ms": 6261.84,
    "goodput_output_throughput_tok_s": 1800.0,
    "gpu_hours": 3.0,
    "duration_ms": 1_800_000.0,
}


def metrics(**changes: float | None) -> Metrics:
    merged = {**SUMMARY, **changes}
    return Metrics({k: v for k, v in merged.items() if v is not None})


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("throughput", 2400.0),
        ("throughput_per_gpu", 400.0),
        ("throughput_per_user", 41.5),
        ("e2e_latency", 6261.84),
        ("goodput", 1800.0),
        ("goodput_per_gpu", 300.0),
    ],
)
def test_each_target_reads_its_metric(target: str, expected: float) -> None:
    assert value(target, metrics()) == expected


def test_average_gpus_are_gpu_hours_over_hours() -> None:
    assert avg_gpu(metrics()) == 6.0


@pytest.mark.parametrize("key", ["gpu_hours", "duration_ms"])
@pytest.mark.parametrize("bad", [None, 0.0, -1.0, math.nan, math.inf])
def test_without_usable_gpu_hours_or_duration_per_gpu_values_are_zero(key: str, bad: float | None) -> None:
    broken = metrics(**{key: bad})
    assert avg_gpu(broken) == 0.0
    assert value("throughput_per_gpu", broken) == 0.0
    assert value("goodput_per_gpu", broken) == 0.0


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_a_missing_or_non_finite_metric_scores_worst(bad: float | None) -> None:
    assert value("throughput", metrics(output_throughput_tok_s=bad)) == 0.0
    assert value("throughput_per_user", metrics(mean_output_token_throughput_per_user=bad)) == 0.0
    assert value("e2e_latency", metrics(mean_e2e_latency_ms=bad)) == math.inf
    assert score("e2e_latency", math.inf) == -math.inf


@pytest.mark.parametrize("target", ["goodput", "goodput_per_gpu"])
def test_a_goodput_goal_without_goodput_fails_the_trial(target: str) -> None:
    scoring = Scoring(target, sla=Sla(e2e_ms=1.0))
    bare = metrics(goodput_output_throughput_tok_s=None)
    with pytest.raises(MissingGoodput):
        scoring.values(bare)
    judged = scoring.judge(TrialResult(Outcome.FEASIBLE, metrics=bare))
    assert judged.outcome is Outcome.FAILED
    assert "no goodput" in judged.reason
    assert judged.metrics is None


def test_a_trial_without_goodput_is_fine_for_other_goals() -> None:
    result = TrialResult(Outcome.FEASIBLE, metrics=metrics(goodput_output_throughput_tok_s=None))
    assert Scoring("throughput").judge(result) is result


def test_pareto_values_keep_natural_units_and_directions() -> None:
    scoring = Scoring("pareto", ("throughput", "e2e_latency"))
    assert scoring.values(metrics()) == (2400.0, 6261.84)
    assert scoring.maximize == (True, False)
    directions = [(o.name, o.maximize) for o in scoring.objectives]
    assert directions == [("throughput", True), ("e2e_latency", False)]


def test_only_latency_is_minimised() -> None:
    assert [t for t in SCALAR_TARGETS if score(t, 1.0) < 0] == ["e2e_latency"]


def test_an_sla_excludes_only_candidates_without_any_goodput() -> None:
    scoring = Scoring("pareto", ("goodput", "throughput"), Sla(e2e_ms=5.0))
    assert scoring.excluded_by_sla(metrics(goodput_output_throughput_tok_s=0.0))
    assert not scoring.excluded_by_sla(metrics())
    assert not Scoring("throughput").excluded_by_sla(metrics(goodput_output_throughput_tok_s=0.0))


#: target: maximised, divided by GPUs, needs an SLA, the planner's target.
ROWS = {
    "throughput": (True, False, False, "throughput"),
    "throughput_per_gpu": (True, True, False, "throughput"),
    "throughput_per_user": (True, False, False, "throughput"),
    "e2e_latency": (False, False, False, "latency"),
    "goodput": (True, False, True, "sla"),
    "goodput_per_gpu": (True, True, True, "sla"),
}


def test_each_goal_is_as_the_reference_has_it() -> None:
    rows = {str(t): t.row for t in SCALAR_TARGETS}
    assert {n: (r.maximize, r.gpus == "per", r.needs_sla, r.planner) for n, r in rows.items()} == ROWS


@pytest.mark.parametrize("target", SCALAR_TARGETS)
def test_a_row_declares_what_its_formula_reads(target: OptimizationTarget) -> None:
    """A formula is given just the metrics of its row, and the GPU hours if it says so."""
    row = target.row
    names = {metric.name for metric in row.metrics} | ({"gpu_hours", "duration_ms"} if row.gpus else set())
    assert (
        0
        < value(target, Metrics({n: SUMMARY[n] for n in names}), 2.5)
        == value(target, metrics(), 2.5)
        < math.inf
    )


@pytest.mark.parametrize("target", SCALAR_TARGETS)
def test_a_row_reads_what_it_declares(target: OptimizationTarget) -> None:
    """Doubling any declared metric doubles the value, halving the GPU hours doubles what is per GPU."""
    once = value(target, metrics(), 2.5)
    for metric in target.row.metrics:
        assert value(target, metrics(**{metric.name: 2 * SUMMARY[metric.name]}), 2.5) == 2 * once
    factor = {"": 1.0, "per": 2.0, "times": 0.5}[target.row.gpus]
    assert value(target, metrics(gpu_hours=1.5), 2.5) == factor * once
    assert value(target, metrics(), 5.0) == (2 * once if target.row.needs_price else once)


def test_a_pareto_goal_has_no_value_of_its_own() -> None:
    with pytest.raises(ValueError, match="objectives"):
        value("pareto", metrics())


def test_a_goal_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="goodputt"):
        Scoring("goodputt")
