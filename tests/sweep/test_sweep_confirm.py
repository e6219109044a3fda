from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sweep_fakes import FakeBranch, FakeEvaluator, Setup, make_sample, throughput

from spica.deployment.sample import Sample
from spica.goals.score import Scoring
from spica.record.results import Spread
from spica.sweep import ConfirmOptions
from spica.sweep.confirm import equal_means_p, leaders
from spica.trial import Metrics, Outcome, TrialResult

numbers = st.lists(st.integers(0, 1000), min_size=2, max_size=6).filter(lambda v: len(set(v)) > 1)


def spread(values: list[float]) -> Spread:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(len(values), statistics.fmean(values), deviation, min(values), max(values))


@settings(max_examples=50)
@given(numbers, numbers)
def test_welch_agrees_with_scipy(a: list[int], b: list[int]) -> None:
    x, y = [float(v) for v in a], [float(v) for v in b]
    expected = float(stats.ttest_ind(x, y, equal_var=False).pvalue)
    assert equal_means_p(spread(x), spread(y)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=50)
@given(numbers, st.integers(0, 1000))
def test_against_an_exact_value_it_is_the_one_sample_test(a: list[int], exact: int) -> None:
    x = [float(v) for v in a]
    expected = float(stats.ttest_1samp(x, float(exact)).pvalue)
    assert equal_means_p(spread(x), spread([float(exact)])) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_exact_values_differ_or_do_not() -> None:
    assert equal_means_p(spread([1.0]), spread([2.0])) == 0.0
    assert equal_means_p(spread([2.0]), spread([2.0])) == 1.0


def test_leaders_are_measured_again_and_ranked_by_their_means(tmp_path: Path) -> None:
    evaluator = FakeEvaluator()
    made = Setup(tmp_path, (FakeBranch(),)).with_options(max_rounds=30, candidates_per_round=8)
    result = made.with_options(confirm=ConfirmOptions(top=3, repeats=4)).run(evaluator)
    best = make_sample("agg", 4, 3, 256, "kv_router")
    confirmed = {c.key: c for c in result.candidates if c.spread}
    assert best.key() in confirmed
    for candidate in confirmed.values():
        assert evaluator.measured.count(candidate.key) == 1 + 4
        # Fresh repeats only: the search's own measurement picked the leader and would flatter it.
        fresh = [throughput(candidate.sample, n) for n in (1, 2, 3, 4)]
        assert candidate.score == pytest.approx(statistics.fmean(fresh), rel=1e-12)
        assert candidate.metrics.summary["output_throughput_tok_s"] == candidate.objectives[0]
        assert candidate.spread[0].std == pytest.approx(statistics.stdev(fresh))
        assert (candidate.spread[0].low, candidate.spread[0].high) == (min(fresh), max(fresh))
        assert candidate.repeats == 4
    assert [c.score for c in result.candidates] == sorted((c.score for c in result.candidates), reverse=True)
    # The three at the top are confirmed, or exact by nature.
    assert all(c.spread or c.sample.router_mode == "round_robin" for c in result.candidates[:3])
    assert not any(c.spread for c in result.candidates if c.sample.router_mode == "round_robin")


def test_deterministic_leaders_are_not_measured_again_and_it_is_said(tmp_path: Path) -> None:
    def exact_wins(sample: Sample, repeat: int) -> TrialResult:
        bonus = 1000.0 if sample.router_mode == "round_robin" else 0.0
        value = throughput(sample, repeat) + bonus
        return TrialResult(Outcome.FEASIBLE, metrics=Metrics({"output_throughput_tok_s": value}))

    evaluator = FakeEvaluator(model=exact_wins)
    result = Setup(tmp_path).with_options(confirm=ConfirmOptions(top=2, repeats=3)).run(evaluator)
    assert len(evaluator.measured) == len(set(evaluator.measured))
    assert result.comparisons == ()
    assert any(w.endswith("repeat themselves exactly: rank 1, rank 2") for w in result.warnings)
    assert [s.count for s in result.saved if "round robin" in s.reason] == [6]


def test_it_says_when_two_leaders_cannot_be_told_apart(tmp_path: Path) -> None:
    def noisy(sample: Sample, repeat: int) -> TrialResult:
        """Two candidates share mean 1000 with a spread; a third is 1000 apart from everything else."""
        group = sample.parallel.groups[0][1]
        level = {(4, 3): 3000.0, (4, 2): 3000.0, (2, 3): 2000.0}.get((group.shape.tp, group.replicas), 100.0)
        shift = [0.0, -3.0, 1.0, 2.0][repeat] + (0.5 if group.replicas == 2 else 0.0)
        return TrialResult(Outcome.FEASIBLE, metrics=Metrics({"output_throughput_tok_s": level + shift}))

    from spica.optimize.protocol import DiscreteParameter

    class Noisy(FakeBranch):
        def decode(self, values):  # type: ignore[no-untyped-def]
            return super().decode({**values, "router": "kv_router"})

    parameters = [*FakeBranch().parameters[:2], FakeBranch().parameters[3]]
    assert isinstance(parameters[0], DiscreteParameter)
    made = Setup(tmp_path, (Noisy(parameters=parameters),)).with_options(max_rounds=12)
    result = made.with_options(confirm=ConfirmOptions(top=3, repeats=3)).run(FakeEvaluator(model=noisy))
    near, far = result.comparisons
    assert not near.distinguishable
    assert near.statement.startswith("rank 1 and rank 2 cannot be told apart in throughput")
    assert near.p_value == pytest.approx(
        stats.ttest_ind([2997.5, 3001.5, 3002.5], [2997.0, 3001.0, 3002.0], equal_var=False).pvalue
    )
    assert far.distinguishable
    third = next(n for n, c in enumerate(result.candidates, start=1) if c.score < 2500)
    assert far.second == result.candidates[third - 1].trial_ids[0]
    assert far.statement.startswith(f"rank 1 and rank {third} differ in throughput")


def test_pareto_leaders_are_confirmed_in_every_objective(tmp_path: Path) -> None:
    scoring = Scoring("pareto", ("throughput", "throughput_per_user"))
    made = Setup(tmp_path, scoring=scoring).with_options(max_rounds=6)
    result = made.with_options(confirm=ConfirmOptions(top=2, repeats=3)).run()
    confirmed = [c for c in result.candidates if c.spread]
    assert all(len(c.spread) == 2 for c in confirmed)
    for candidate in confirmed:
        fresh = [throughput(candidate.sample, n) for n in (1, 2, 3)]
        assert candidate.objectives[0] == pytest.approx(statistics.fmean(fresh), rel=1e-12)


def test_repeats_that_fail_are_left_out(tmp_path: Path) -> None:
    def flaky(sample: Sample, repeat: int) -> TrialResult:
        if repeat == 2:
            return TrialResult(Outcome.FAILED, "worker died")
        value = throughput(sample, repeat)
        return TrialResult(Outcome.FEASIBLE, metrics=Metrics({"output_throughput_tok_s": value}))

    result = (
        Setup(tmp_path).with_options(confirm=ConfirmOptions(top=4, repeats=3)).run(FakeEvaluator(1, flaky))
    )
    confirmed = [c for c in result.candidates if c.spread]
    assert confirmed
    assert {c.repeats for c in confirmed} == {2}


@dataclass(frozen=True)
class Point:
    """What ``leaders`` looks at."""

    key: str
    objectives: tuple[float, float]
    used_gpus: int
    excluded_by_sla: bool = False


def test_points_that_share_their_place_on_a_front_are_confirmed_by_gpus_then_by_key() -> None:
    alone = Point("z", (1.0, 9.0), 8)
    twins = [Point("b", (5.0, 5.0), 8), Point("a", (5.0, 5.0), 8), Point("c", (5.0, 5.0), 2)]
    excluded = Point("0", (99.0, 99.0), 1, excluded_by_sla=True)
    scoring = Scoring("pareto")
    for order in permutations([alone, *twins, excluded]):
        picked = leaders(order, scoring, 4)  # type: ignore[arg-type]
        assert [each.key for each in picked] == ["z", "c", "a", "b"]
