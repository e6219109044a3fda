"""The preflight's verdicts, on a fake evaluator for the broken cases and on the real one for a whole run."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

import pytest
from evaluation_samples import LOAD, Make

from spica.errors import StackError, TraceError
from spica.evaluate.pool import LocalEvaluator
from spica.evaluate.preflight import preflight
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.reasons import classify
from spica.traffic.replayed import TraceTraffic
from spica.trial import Metrics, Outcome, TrialResult

GOOD = TrialResult(Outcome.FEASIBLE, metrics=Metrics({"duration_ms": 1.0}))


class Scripted:
    """Answers by backend, and keeps what it was asked."""

    def __init__(self, answers: dict[str, TrialResult]) -> None:
        self.answers = answers
        self.plans: list[ReplayPlan] = []

    def submit(self, plan: ReplayPlan) -> Future[TrialResult]:
        self.plans.append(plan)
        future: Future[TrialResult] = Future()
        future.set_result(self.answers.get(plan.sample.backend, GOOD))
        return future

    def close(self, *, kill: bool = False) -> None:
        return


def _failed(error: Exception) -> TrialResult:
    outcome, reason = classify(error)
    return TrialResult(outcome, reason)


def test_one_tiny_candidate_per_pair_and_the_one_with_a_planner(tmp_path: Path) -> None:
    evaluator = Scripted({"sglang": _failed(ValueError("no timing data for X with sglang"))})
    plans = [
        Make().plan(),
        Make(planner=LOAD).plan(),
        Make(replicas=1).plan(),
        Make(backend="sglang").plan(),
        Make(disagg=True, replicas=2).plan(),
    ]
    verdicts = preflight(evaluator, plans, tmp_path)
    assert [(v.backend, v.mode, v.ok) for v in verdicts] == [
        ("vllm", "agg", True),
        ("sglang", "agg", False),
        ("vllm", "disagg", True),
    ]
    assert "no performance data" in verdicts[1].reason
    assert evaluator.plans[0].sample.planner == LOAD
    assert {plan.traffic.num_requests for plan in evaluator.plans} == {1}


def test_a_schema_mismatch_stops_the_run_with_the_versions(tmp_path: Path) -> None:
    error = ValueError("unsupported schema version for EngineSpec: found 28, expected 27")
    with pytest.raises(StackError, match=r"do not work together.*found 28.*aisimulate 0\.13") as caught:
        preflight(Scripted({"sglang": _failed(error)}), [Make(backend="sglang").plan()], tmp_path)
    assert caught.value.exit_code == 3


def test_nothing_works(tmp_path: Path) -> None:
    bad = TrialResult(Outcome.FAILED, "RuntimeError: boom")
    plans = [Make().plan(), Make(backend="trtllm").plan()]
    with pytest.raises(StackError, match="vllm agg: RuntimeError: boom; trtllm agg: RuntimeError: boom"):
        preflight(Scripted({"vllm": bad, "trtllm": bad}), plans, tmp_path)


def test_an_infeasible_tiny_candidate_says_nothing_against_its_pair(tmp_path: Path) -> None:
    small = TrialResult(Outcome.INFEASIBLE, "no KV budget: none")
    (verdict,) = preflight(Scripted({"vllm": small}), [Make().plan()], tmp_path)
    assert (verdict.ok, verdict.reason) == (True, "no KV budget: none")


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    with pytest.raises(TraceError, match=r"missing\.jsonl"):
        preflight(Scripted({}), [Make().plan(TraceTraffic(str(missing), 1, 1))], tmp_path)


@pytest.mark.real
def test_the_installed_stack(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    plans = [Make(), Make(planner=LOAD, disagg=True, replicas=2), Make(backend="trtllm", sku="no_such_sku")]
    verdicts = preflight(evaluator, [make.plan() for make in plans], tmp_path)
    assert [v.ok for v in verdicts] == [True, True, False]
    assert "no performance data" in verdicts[2].reason
    trace = tmp_path / "trace.jsonl"
    good = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'
    trace.write_text(good * 3)
    traffic = TraceTraffic(str(trace), 3, 1815)
    assert preflight(evaluator, [Make().plan(traffic)], tmp_path)[0].ok
    trace.write_text(good + "not json\n")
    with pytest.raises(TraceError, match="cannot be replayed"):
        preflight(evaluator, [Make().plan(traffic)], tmp_path)
