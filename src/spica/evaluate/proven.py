"""Replays on the cut-down tables where these are proven, on the installed ones where not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from spica.deployment.sample import PlannerSettings
from spica.evaluate.bounds import estimate
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.replay import ReplayOptions, run_replay
from spica.evaluate.slim_tables import Proofs, SlimTables
from spica.traffic.replayed import SyntheticTraffic
from spica.trial import Outcome, TrialResult

#: A candidate's own replay serves as the proof when it is estimated to take no longer than this (seconds).
OWN_PROOF_SECONDS: Final = 1.0
#: The load of a proof that is not the candidate itself.
PROOF_REQUESTS: Final = 64


class ReplayTask(Protocol):
    """What is needed of a worker's task."""

    @property
    def plan(self) -> ReplayPlan: ...
    @property
    def options(self) -> ReplayOptions: ...
    @property
    def tables(self) -> str | None: ...
    @property
    def warm(self) -> bool: ...


def tiny_plan(plan: ReplayPlan) -> ReplayPlan:
    """The same deployment under one short request: everything is loaded, next to nothing simulated."""
    return replace(plan, traffic=SyntheticTraffic(isl=16, osl=2, num_requests=1, concurrency=1))


def proof_plan(plan: ReplayPlan) -> ReplayPlan:
    """A short, deterministic replay of the plan's worker shapes: static, round robin, its own lengths."""
    sample = replace(plan.sample, router_mode="round_robin", router=None, planner=PlannerSettings("disabled"))
    isl, osl = 3000, 300
    if isinstance(plan.traffic, SyntheticTraffic):
        isl, osl = plan.traffic.isl, plan.traffic.osl
    traffic = SyntheticTraffic(isl, osl, num_requests=PROOF_REQUESTS, concurrency=PROOF_REQUESTS // 2)
    return replace(plan, sample=sample, traffic=traffic, sla=None)


@dataclass
class Replays:
    """The replays of one worker; remembers which copies are proven for which worker shapes."""

    _proofs: dict[str, Proofs] = field(default_factory=dict)

    def run(self, task: ReplayTask) -> TrialResult:
        """Measure the task's plan. The result is that of the installed tables, however it was come by."""
        plan, options = task.plan, task.options
        if task.warm:
            return run_replay(tiny_plan(plan), options)
        if task.tables is None:
            return run_replay(plan, options)
        proofs = self._proofs.setdefault(task.tables, Proofs(task.tables))
        cut = replace(options, systems_path=SlimTables(task.tables).systems_path)
        identical = proofs.identical(plan.sample)
        if identical is None:
            if _serves_as_proof(plan):
                return _timed(self._prove(plan, options, cut, proofs))
            self._prove(proof_plan(plan), options, cut, proofs)
            identical = proofs.identical(plan.sample)
        if identical:
            result = run_replay(plan, cut)
            if result.outcome in (Outcome.FEASIBLE, Outcome.INFEASIBLE):
                return result
        return run_replay(plan, options)

    def _prove(
        self, plan: ReplayPlan, full: ReplayOptions, cut: ReplayOptions, proofs: Proofs
    ) -> tuple[TrialResult, TrialResult]:
        """Replay on both, and keep whether they agree; an infeasible plan proves nothing."""
        expected = run_replay(plan, full)
        if expected.outcome is not Outcome.FEASIBLE:
            return expected, expected
        found = run_replay(plan, cut)
        proofs.record(plan.sample, found == expected)
        return expected, found


def _serves_as_proof(plan: ReplayPlan) -> bool:
    """Only a result that repeats bit for bit can be compared."""
    exact = plan.sample.router is None and plan.sample.planner.scaling is None
    return exact and estimate(plan).seconds <= OWN_PROOF_SECONDS


def _timed(pair: tuple[TrialResult, TrialResult]) -> TrialResult:
    """The result on the full tables, with the time that both took."""
    expected, found = pair
    if found is expected:
        return expected
    return replace(expected, seconds=expected.seconds + found.seconds)
