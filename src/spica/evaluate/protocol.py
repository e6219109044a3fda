"""What the sweep asks of an evaluator, and the values that pass between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

from spica.deployment.sample import Sample

PlannerTarget = Literal["throughput", "latency", "sla"]


class Outcome(StrEnum):
    """How a trial ended. Exactly one of these, each with a reason (empty only for ``feasible``)."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class SyntheticTraffic:
    """Generated requests: lengths in tokens, delays in milliseconds. Exactly one of ``concurrency`` (closed
    loop) and ``request_rate`` (open loop, requests per second) is set."""

    isl: int
    osl: int
    num_requests: int
    concurrency: int | None = None
    request_rate: float | None = None
    shared_prefix_ratio: float = 0.0
    num_prefix_groups: int = 0
    turns_per_session: int = 1
    inter_turn_delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class TraceTraffic:
    """A checked mooncake trace file. ``replay_concurrency`` set: closed loop, arrival times ignored."""

    path: str
    num_requests: int
    total_tokens: int
    arrival_speedup_ratio: float = 1.0
    replay_concurrency: int | None = None


Traffic = SyntheticTraffic | TraceTraffic


@dataclass(frozen=True, slots=True)
class Sla:
    """Latency targets in milliseconds, each None or > 0."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Everything a worker process needs to measure one sample. Pickles."""

    sample: Sample
    traffic: Traffic
    planner_target: PlannerTarget
    sla: Sla | None = None
    seed: int = 1


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
        if (self.outcome is Outcome.FEASIBLE) != (self.metrics is not None):
            raise ValueError(f"metrics belong to feasible trials and only to them: {self.outcome}")
        if self.outcome is not Outcome.FEASIBLE and not self.reason:
            raise ValueError(f"a {self.outcome} trial needs a reason")


class Evaluator(Protocol):
    """Measures plans, several at once. A future never raises for anything a candidate did: every failure is a
    TrialResult. It is cancelled or raises only when the evaluator is closed."""

    def submit(self, plan: ReplayPlan) -> Future[TrialResult]: ...

    def close(self, *, kill: bool = False) -> None:
        """Stop all workers; with ``kill`` without waiting for running trials. No process survives it."""
        ...
