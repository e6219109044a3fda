"""What every report is made from: a run as its ledger tells it, in plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spica.deployment.sample import FlatConfig
from spica.goals.score import Scoring
from spica.trial import ReplicaCount

Metric = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One suggestion and how it ended. ``outcome`` is an Outcome's value, or ``pending`` when the run stopped
    before it was measured. ``values`` are the objectives in natural units; ``order`` counts measurements in
    the order of finishing from 1, 0 for those that needed none. ``round`` counts from 1."""

    trial: str
    branch: str
    round: int
    key: str
    outcome: str
    reason: str
    cache_hit: bool
    order: int
    seconds: float
    values: tuple[float, ...] | None
    config: FlatConfig = field(default_factory=dict)
    metrics: Metric = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leader:
    """One measured deployment, ranked. ``std`` is the sample standard deviation per objective over
    ``repeats`` measurements, empty for a single one. ``planner_total_ticks`` and ``timeline`` are those of
    the first measurement, where a planner ran."""

    rank: int
    key: str
    branch: str
    config: FlatConfig
    values: tuple[float, ...]
    score: float
    used_gpus: int
    avg_gpu: float
    metrics: Metric
    trials: tuple[str, ...]
    order: int
    seconds: float
    repeats: int = 1
    std: tuple[float, ...] = ()
    on_front: bool = False
    excluded_by_sla: bool = False
    planner_total_ticks: int | None = None
    timeline: tuple[ReplicaCount, ...] = ()

    @property
    def objectives(self) -> tuple[float, ...]:
        """The same as ``values``, under the name that a goal arranges by."""
        return self.values


@dataclass(frozen=True, slots=True)
class ReasonCount:
    outcome: str
    reason: str
    count: int
    branch: str


@dataclass(frozen=True, slots=True)
class NotSearched:
    """Something ruled out before the search. ``weight_bytes`` and the like stand in ``detail``."""

    what: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class BranchRow:
    name: str
    rounds: int
    suggestions: int
    replays: int
    cache_hits: int
    feasible: int
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Extras:
    """What only the sweep itself knew; empty for a run that was killed before it ended."""

    suggesting: float | None = None
    evaluating: float | None = None
    wall: float | None = None
    stop: str = ""
    branch_ends: Mapping[str, str] = field(default_factory=dict)
    saved: tuple[tuple[str, int], ...] = ()
    hypervolumes: tuple[tuple[int, float], ...] = ()
    comparisons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run. ``leaders``: all feasible candidates, best first; of a Pareto goal the front first (by the
    last objective ascending), then the others by their first objective. ``knee`` is the key of the front's
    balanced point. ``config_json`` is the resolved configuration; ``damage`` has one line for each row of
    the record that is not as it was written and was left out; ``lost`` has the trial and the reason of each
    measurement that ended with its worker."""

    name: str
    scoring: Scoring
    seed: int
    versions: Mapping[str, str]
    config_text: str
    config_json: str
    model: str
    hardware: str
    gpu_budget: int
    traffic: str
    trials: tuple[TrialRow, ...]
    leaders: tuple[Leader, ...]
    reasons: tuple[ReasonCount, ...]
    branches: tuple[BranchRow, ...]
    knee: str = ""
    not_searched: tuple[NotSearched, ...] = ()
    shapes_dropped: tuple[NotSearched, ...] = ()
    extras: Extras = field(default_factory=Extras)
    damage: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()

    @property
    def objectives(self) -> tuple[str, ...]:
        return self.scoring.targets

    @property
    def front(self) -> tuple[Leader, ...]:
        return tuple(leader for leader in self.leaders if leader.on_front)

    @property
    def best(self) -> Leader | None:
        """The winner of a single target, the knee of a front; None too when a goodput's SLA was never met."""
        if self.scoring.is_pareto:
            return next((leader for leader in self.leaders if leader.key == self.knee), None)
        first = self.leaders[0] if self.leaders else None
        return None if first and first.excluded_by_sla and self.scoring.is_goodput else first
