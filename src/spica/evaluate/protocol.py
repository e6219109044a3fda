"""What the sweep asks of an evaluator, and the values that pass between them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from spica.deployment.sample import Sample
from spica.planner.presets import PlannerTarget
from spica.traffic.replayed import Traffic
from spica.trial import Sla, TrialResult


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Everything a worker process needs to measure one sample. Pickles."""

    sample: Sample
    traffic: Traffic
    planner_target: PlannerTarget
    sla: Sla | None = None
    seed: int = 1


class Evaluator(Protocol):
    """Measures plans, several at once. A future never raises for anything a candidate did: every failure is a
    TrialResult. It is cancelled or raises only when the evaluator is closed."""

    def submit(self, plan: ReplayPlan) -> Future[TrialResult]: ...

    def close(self, *, kill: bool = False) -> None:
        """Stop all workers; with ``kill`` without waiting for running trials. No process survives it."""
        ...
