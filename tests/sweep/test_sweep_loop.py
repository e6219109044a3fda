from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

import pytest
from sweep_fakes import (
    BUDGET,
    IDENTITY,
    IN_FLIGHT,
    FakeBranch,
    FakeEvaluator,
    Setup,
    fine,
    make_sample,
    metrics_of,
    throughput,
)

from spica.deployment.sample import Sample
from spica.deployment.shapes import Mode
from spica.goals.ranking import hypervolume
from spica.goals.score import Scoring
from spica.optimize.protocol import DiscreteParameter
from spica.optimize.sampling import QuasiRandomOptimizer
from spica.record import Ledger
from spica.sweep import ConfirmOptions, run_sweep
from spica.sweep.events import (
    BestImproved,
    BranchStopped,
    PhaseChanged,
    Recorded,
    RoundFinished,
    TrialFinished,
)
from spica.trial import Metrics, Outcome, TrialResult


def distinct_feasible(mode: str) -> int:
    extra = 0 if mode == "agg" else 1
    shapes = [(t, r) for t in (1, 2, 4, 8) for r in (1, 2, 3, 4) if t * r + extra <= BUDGET]
    return len(shapes) * 3 * 2  # three kinds of seqs, two routers


@pytest.mark.parametrize("modes", [("agg", "disagg"), ("agg",)])
@pytest.mark.parametrize("jobs", [2, 8])
def test_the_number_of_workers_and_their_speed_change_nothing(
    tmp_path: Path, jobs: int, modes: tuple[Mode, ...]
) -> None:
    # A lone branch asks for its next round while its own last one is in flight.
    branches = tuple(FakeBranch(mode) for mode in modes)
    rounds = 8 // len(modes)
    one = Setup(tmp_path / "one", branches).with_options(max_rounds=rounds).run(FakeEvaluator(1, delay=0.0))
    slow = FakeEvaluator(jobs, delay=0.03, seed=jobs)
    many = Setup(tmp_path / "many", branches).with_options(max_rounds=rounds).run(slow)
    assert many == one
    with Ledger.read(tmp_path / "one") as a, Ledger.read(tmp_path / "many") as b:
        assert a.asks() == b.asks()
        assert a.tells() == b.tells()
        assert {t.key for t in a.trials()} == {t.key for t in b.trials()}


def test_the_sweep_finds_the_best_and_counts_everything(tmp_path: Path) -> None:
    evaluator = FakeEvaluator()
    setup = Setup(tmp_path, (FakeBranch("agg"),)).with_options(max_rounds=30, candidates_per_round=8)
    result = setup.run(evaluator)
    # The space is searched empty: all its distinct feasible candidates, each measured once.
    assert len(result.candidates) == distinct_feasible("agg")
    assert sorted(evaluator.measured) == sorted(c.key for c in result.candidates)
    best = result.candidates[0]
    everything = [
        make_sample("agg", t, r, s, router)
        for t in (1, 2, 4, 8)
        for r in (1, 2, 3, 4)
        for s in (64, 128, 256)
        for router in ("round_robin", "kv_router")
        if t * r <= BUDGET
    ]
    assert best.score == max(throughput(s) for s in everything)
    assert [c.score for c in result.candidates] == sorted((c.score for c in result.candidates), reverse=True)
    assert best.config["max_num_seqs" if "max_num_seqs" in best.config else "agg_max_num_seqs"] == IN_FLIGHT
    summary = result.branches[0]
    infeasible = sum(o.count for o in result.outcomes if o.outcome is Outcome.INFEASIBLE)
    assert summary.suggestions == summary.new_trials + summary.cache_hits + infeasible
    assert summary.cache_hits == sum(s.count for s in result.saved)
    assert summary.early
    assert "88 suggestions" in summary.stopped


def test_repeats_cost_no_replay_and_are_told_again(tmp_path: Path) -> None:
    observer = Recorded()
    evaluator = FakeEvaluator()
    result = Setup(tmp_path).with_options(max_rounds=8).run(evaluator, observer=observer)
    assert len(evaluator.measured) == len(set(evaluator.measured))
    hits = [e for e in observer.events if isinstance(e, TrialFinished) and e.cache_hit]
    assert hits
    assert len(hits) == sum(s.count for s in result.saved)
    assert any("cannot act" in s.reason and "seqs_beyond_the_load" in s.reason for s in result.saved)
    with Ledger.read(tmp_path) as ledger:
        key_of = {(a.branch, s.id): s.key for a in ledger.asks() for s in a.suggestions}
        trials = {t.key: t.result for t in ledger.trials()}
        told = [t for t in ledger.tells() if t.cache_hit]
        assert len(told) == len(hits)
        for tell in told:
            metrics = trials[key_of[tell.branch, tell.suggestion]].metrics
            assert metrics is not None
            assert tell.labels == (metrics.summary["output_throughput_tok_s"],)


def test_a_trial_is_committed_before_it_is_told(tmp_path: Path) -> None:
    committed: list[int] = []

    class Spy(QuasiRandomOptimizer):
        def tell(self, observations: object) -> None:
            with Ledger.read(tmp_path) as ledger:
                keys = {t.key for t in ledger.trials()}
                key_of = {s.id: s for a in ledger.asks() for s in a.suggestions}
            for o in observations:  # type: ignore[attr-defined]
                record = key_of[o.suggestion.id]
                assert record.infeasible or record.key in keys
                committed.append(o.suggestion.id)
            super().tell(observations)  # type: ignore[arg-type]

    Setup(tmp_path, (FakeBranch(),), factory=Spy).with_options(max_rounds=2).run()
    assert len(committed) >= 8


def test_a_round_gives_up_after_eleven_suggestions_per_candidate(tmp_path: Path) -> None:
    branch = FakeBranch(parameters=[DiscreteParameter("seqs", (64, 128, 256), 64)])
    result = Setup(tmp_path, (branch,)).with_options(candidates_per_round=4).run()
    summary = result.branches[0]
    # Round 1 asks for 4, finds 3 candidates; 44 suggestions and no more. Round 2 was opened beside it.
    assert len(result.candidates) == 3
    assert summary.stopped == "44 suggestions in round 1 gave 3 of 4 new feasible candidates"
    assert summary.suggestions <= 2 * 44
    with Ledger.read(tmp_path) as ledger:
        assert sum(len(a.suggestions) for a in ledger.asks() if a.round == 0) == 44
        assert len(ledger.trials()) == 3


def test_failed_candidates_are_replaced(tmp_path: Path) -> None:
    def half(sample: Sample, repeat: int) -> TrialResult:
        odd = sample.parallel.groups[-1][1].replicas % 2
        return fine(sample, repeat) if odd else TrialResult(Outcome.FAILED, "even replicas fail")

    evaluator = FakeEvaluator(model=half)
    result = Setup(tmp_path, (FakeBranch(),)).with_options(max_rounds=3).run(evaluator)
    assert len(result.candidates) == 12  # 3 rounds of 4
    failed = [o for o in result.outcomes if o.outcome is Outcome.FAILED]
    assert [(o.reason, o.branch) for o in failed] == [("even replicas fail", "agg")]
    assert len(evaluator.measured) == 12 + failed[0].count
    assert result.branches[0].stopped == "all rounds done"


def test_the_same_failure_eight_times_stops_the_branch_with_its_cause(tmp_path: Path) -> None:
    def broken(sample: Sample, repeat: int) -> TrialResult:
        if sample.mode == "agg":
            return TrialResult(Outcome.FAILED, f"schema {sample.used_gpus} refused")
        return fine(sample, repeat)

    observer = Recorded()
    result = Setup(tmp_path).with_options(max_rounds=10).run(FakeEvaluator(model=broken), observer=observer)
    agg, disagg = result.branches
    assert agg.stopped == "8 times the same failure and nothing feasible: failed: schema # refused"
    assert agg.new_trials == 8
    assert agg.early
    assert disagg.rounds == 10
    stops = [e for e in observer.events if isinstance(e, BranchStopped)]
    assert [(e.branch, e.early) for e in stops] == [("agg", True), ("disagg", False)]


def test_a_branch_with_something_feasible_survives_failures(tmp_path: Path) -> None:
    def mostly(sample: Sample, repeat: int) -> TrialResult:
        good = sample.parallel.groups[-1][1].shape.tp == 2
        return fine(sample, repeat) if good else TrialResult(Outcome.TIMED_OUT, "exceed runtime")

    result = Setup(tmp_path, (FakeBranch(),)).with_options(max_rounds=2).run(FakeEvaluator(model=mostly))
    assert "same failure" not in result.branches[0].stopped
    assert result.candidates


def test_a_single_candidate_is_measured_once_without_an_optimizer(tmp_path: Path) -> None:
    def no_optimizer(study: object) -> QuasiRandomOptimizer:
        raise AssertionError("not needed")

    evaluator = FakeEvaluator()
    result = Setup(tmp_path, (FakeBranch(parameters=[]),), factory=no_optimizer).run(evaluator)
    assert len(evaluator.measured) == 1
    assert [c.score for c in result.candidates] == [throughput(make_sample("agg", 2, 1, 64))]
    assert result.branches[0].rounds == 1
    assert not result.branches[0].early


def test_goodput_that_is_not_reported_fails_every_trial(tmp_path: Path) -> None:
    result = Setup(tmp_path, (FakeBranch(),), Scoring("goodput")).run()
    assert not result.candidates
    assert {o.outcome for o in result.outcomes} <= {Outcome.FAILED, Outcome.INFEASIBLE}
    assert "no goodput" in result.branches[0].stopped


def test_pareto_gives_the_front_its_knee_and_a_growing_volume(tmp_path: Path) -> None:
    scoring = Scoring("pareto", ("throughput", "throughput_per_user"))
    result = Setup(tmp_path, scoring=scoring).run()
    points = [c.objectives for c in result.candidates]
    beaten = [p for p in points if any(q[0] >= p[0] and q[1] >= p[1] and q != p for q in points)]
    assert sorted(c.objectives for c in result.front) == sorted(p for p in points if p not in beaten)
    assert [c.objectives[1] for c in result.front] == sorted(c.objectives[1] for c in result.front)
    assert result.knee in result.front
    assert result.best == result.knee
    volumes = [v.hypervolume for v in result.hypervolumes]
    assert volumes == sorted(volumes)
    assert volumes[-1] == hypervolume(points, (True, True), (0.0, 0.0))
    assert {b.name for b in result.branches} == {"agg", "disagg"}


def test_points_that_the_sla_excludes_are_shown_apart(tmp_path: Path) -> None:
    def with_goodput(sample: Sample, repeat: int) -> TrialResult:
        base = metrics_of(sample, repeat).summary
        late = sample.engines[-1][1].max_num_seqs > 64
        good = 0.0 if late else base["output_throughput_tok_s"] / 2
        return TrialResult(
            Outcome.FEASIBLE, metrics=Metrics({**base, "goodput_output_throughput_tok_s": good})
        )

    from spica.trial import Sla

    scoring = Scoring("pareto", ("goodput", "throughput"), Sla(e2e_ms=1.0))
    result = Setup(tmp_path, scoring=scoring).run(FakeEvaluator(model=with_goodput))
    assert result.front
    assert result.excluded
    assert {int(str(c.config["agg_max_num_seqs"])) for c in result.front if c.branch == "agg"} <= {64}
    assert not {c.key for c in result.front} & {c.key for c in result.excluded}
    # Without the gate the excluded ones would be there: they have the highest throughput.
    assert max(c.objectives[1] for c in result.excluded) > max(c.objectives[1] for c in result.front)


def test_a_goodput_of_nothing_has_no_winner(tmp_path: Path) -> None:
    def none_good(sample: Sample, repeat: int) -> TrialResult:
        base = metrics_of(sample, repeat).summary
        return TrialResult(
            Outcome.FEASIBLE, metrics=Metrics({**base, "goodput_output_throughput_tok_s": 0.0})
        )

    from spica.trial import Sla

    result = Setup(tmp_path, scoring=Scoring("goodput", sla=Sla(e2e_ms=1.0))).run(
        FakeEvaluator(model=none_good)
    )
    assert result.candidates
    assert result.best is None
    assert any("met the SLA" in warning for warning in result.warnings)


def test_observers_see_phases_rounds_and_improvements(tmp_path: Path) -> None:
    observer = Recorded()
    result = Setup(tmp_path).run(observer=observer)
    phases = [e.phase for e in observer.events if isinstance(e, PhaseChanged)]
    assert phases == ["searching", "done"]
    rounds = [e for e in observer.events if isinstance(e, RoundFinished)]
    assert {(e.branch, e.round) for e in rounds} == {(b, n) for b in ("agg", "disagg") for n in (1, 2, 3, 4)}
    improved = [e.values[0] for e in observer.events if isinstance(e, BestImproved)]
    assert improved == sorted(improved)
    assert improved[-1] == result.candidates[0].score
    measured = [e for e in observer.events if isinstance(e, TrialFinished) and not e.cache_hit]
    replays = [e for e in measured if e.outcome is Outcome.FEASIBLE]
    assert [e.done for e in replays] == list(range(1, 33))
    # Two branches of four rounds of four.
    assert {e.total for e in replays} == {32}


def test_the_most_there_can_be_never_grows(tmp_path: Path) -> None:
    """Failures are asked for again and branches stop early: neither may move the bound up, or below what is
    done; confirming is in it from the start (3 times 2 leaders, 2 repeats each)."""

    def often_broken(sample: Sample, repeat: int) -> TrialResult:
        if repeat == 0 and sample.parallel.groups[-1][1].replicas > 2:
            return TrialResult(Outcome.FAILED, f"broke {sample.key()}")
        return fine(sample, repeat)

    observer = Recorded()
    confirm = ConfirmOptions(top=2, repeats=2)
    setup = Setup(tmp_path).with_options(max_rounds=15, confirm=confirm)
    result = setup.run(FakeEvaluator(model=often_broken), observer=observer)
    trials = [e for e in observer.events if isinstance(e, TrialFinished)]
    totals = [e.total for e in trials]
    assert totals[0] == 2 * 15 * 4 + 3 * 2 * 2
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] < totals[0], "both branches run out of candidates"
    assert all(e.done <= e.total for e in trials)
    repeats = sum(e.repeat > 0 for e in trials)
    assert trials[-1].done == len(result.candidates) + repeats
    assert repeats


def test_a_branch_is_said_to_stop_after_its_last_round_is_reported(tmp_path: Path) -> None:
    seen = Recorded()
    Setup(tmp_path, (FakeBranch("agg"),)).with_options(max_rounds=2).run(observer=seen)
    ends = [e for e in seen.events if isinstance(e, RoundFinished | BranchStopped)]
    assert [type(e) for e in ends] == [RoundFinished, RoundFinished, BranchStopped]


def test_the_wall_time_starts_when_preparing_began(tmp_path: Path) -> None:
    made = Setup(tmp_path, (FakeBranch("agg"),)).with_options(max_rounds=1)
    evaluator = FakeEvaluator()
    with Ledger.create(tmp_path, IDENTITY) as ledger:
        result = run_sweep(
            made.inputs,
            evaluator=evaluator,
            optimizer_factory=made.factory,
            ledger=ledger,
            began=time.monotonic() - 1000.0,
        )
    evaluator.close()
    assert 1000.0 <= result.timings.wall < 1200.0


class JudgingFails(Scoring):
    """A goal that breaks while it judges."""

    error: BaseException = KeyError("no such metric")

    def judge(self, result: TrialResult) -> TrialResult:
        raise self.error


@pytest.mark.parametrize("error", [KeyError("no such metric"), ZeroDivisionError("x"), MemoryError("y")])
def test_whatever_breaks_while_a_result_is_kept_ends_the_sweep_with_its_cause(
    tmp_path: Path, error: BaseException
) -> None:
    scoring = JudgingFails("throughput")
    with patch.object(JudgingFails, "error", error), pytest.raises(type(error)) as raised:
        Setup(tmp_path, scoring=scoring).run(FakeEvaluator(2))
    assert raised.value is error


def test_a_reason_with_half_a_character_is_recorded(tmp_path: Path) -> None:
    def refuse(sample: Sample, repeat: int) -> TrialResult:
        return TrialResult(Outcome.FAILED, "no \udcff here\x1b[31m", traceback="a\udcff\nb")

    result = Setup(tmp_path).run(FakeEvaluator(model=refuse))
    assert result.candidates == ()
    with Ledger.read(tmp_path) as ledger:
        assert {t.result.reason for t in ledger.trials()} == {"no ? here?[31m"}
        assert {t.result.traceback for t in ledger.trials()} == {"a?\nb"}
