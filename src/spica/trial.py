"""How a trial ends: its outcome, its numbers, and the latency targets they are held against."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spica.text import printable


class Outcome(StrEnum):
    """How a trial ended. Exactly one of these, each with a reason (empty only for ``feasible``)."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Sla:
    """Latency targets in milliseconds, each None or > 0."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """The numbers of one replay: the runner's flat summary (its own names and units) and, when a planner ran,
    its ticks and the replica timeline."""

    summary: Mapping[str, float]
    planner_total_ticks: int | None = None
    replicas: tuple[ReplicaCount, ...] = ()

    def get(self, name: str) -> float | None:
        """The finite value of a metric, else None."""
        value = self.summary.get(name)
        return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class ReplicaCount:
    """How many workers of each role stood at ``at_s`` seconds into the replay (agg counts as decode)."""

    at_s: float
    prefill: int
    decode: int


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The end of one trial: an outcome with its reason, metrics iff feasible, seconds of wall time spent.

    ``worker`` is the number of the worker that had it (from 0) and ``pid`` its process; None when no worker
    was needed.
    """

    outcome: Outcome
    reason: str = ""
    metrics: Metrics | None = None
    traceback: str = ""
    seconds: float = field(default=0.0, compare=False)
    worker: int | None = field(default=None, compare=False)
    pid: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        # Both may quote anything: a component's message, a file's name.
        object.__setattr__(self, "reason", printable(self.reason))
        object.__setattr__(self, "traceback", printable(self.traceback, lines=True))
        if (self.outcome is Outcome.FEASIBLE) != (self.metrics is not None):
            raise ValueError(f"metrics belong to feasible trials and only to them: {self.outcome}")
        if self.outcome is not Outcome.FEASIBLE and not self.reason:
            raise ValueError(f"a {self.outcome} trial needs a reason")
