"""What a sweep gives back, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from spica.deployment.sample import FlatConfig, Sample
from spica.goals.score import Scoring
from spica.trial import Metrics, Outcome

Stop = Literal["", "interrupted", "max_minutes"]


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds so far: ``suggesting`` in the optimizer, ``waiting`` for replays with nothing left to suggest,
    ``evaluating`` summed over all workers, ``wall`` since its preparing began (this process)."""

    suggesting: float = 0.0
    waiting: float = 0.0
    evaluating: float = 0.0
    wall: float = 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated measurements of one value: ``repeats`` of them, sample standard deviation, extremes."""

    repeats: int
    mean: float
    std: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One measured deployment.

    ``score``: higher is better (latency negated; 0 for Pareto goals, which have no single score).
    ``objectives``: one value per target of the goal, natural units. ``avg_gpu``: time-averaged GPUs.
    ``trial_ids``: every suggestion that led here, the measured one first. ``round``: when it was measured,
    from 1. ``spread``: one per objective when it was re-measured; ``objectives`` and ``metrics`` are then
    means over the repeats. ``excluded_by_sla``: no request of the replay met the SLA.
    """

    key: str
    branch: str
    config: FlatConfig
    sample: Sample
    objectives: tuple[float, ...]
    score: float
    metrics: Metrics
    used_gpus: int
    avg_gpu: float
    trial_ids: tuple[str, ...]
    round: int
    seconds: float
    outcome: Outcome = Outcome.FEASIBLE
    spread: tuple[Spread, ...] = ()
    excluded_by_sla: bool = False

    @property
    def repeats(self) -> int:
        return self.spread[0].repeats if self.spread else 1


@dataclass(frozen=True, slots=True)
class BranchSummary:
    """How one branch went. ``suggestions`` = ``new_trials`` (replays) + ``cache_hits`` + those found
    infeasible before any replay + those abandoned by a stop."""

    name: str
    rounds: int
    max_rounds: int
    suggestions: int
    new_trials: int
    cache_hits: int
    feasible: int
    stopped: str
    early: bool
    behind: bool


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """How many trials ended with an outcome for a reason (numbers in the reason are those of the first)."""

    outcome: Outcome
    reason: str
    count: int
    branch: str


@dataclass(frozen=True, slots=True)
class Saved:
    """Replays that were not needed, and why."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class RoundVolume:
    """Hypervolume of the joint front after ``replays`` replays, at the end of a branch's round."""

    branch: str
    round: int
    replays: int
    hypervolume: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two confirmed leaders on one objective: the p-value of equal means (two-sided), and what it says."""

    first: str
    second: str
    objective: str
    p_value: float
    distinguishable: bool
    statement: str


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Everything a report needs.

    ``candidates``: all feasible ones; best first for a single target. ``front``: the non-dominated ones
    without those an SLA excludes (Pareto goals; empty otherwise), by the last objective ascending; ``knee``
    its balanced point. ``excluded``: candidates none of whose requests met the SLA. ``folder``: the run
    folder with record, reports and deployment files.
    """

    scoring: Scoring
    candidates: tuple[Candidate, ...]
    front: tuple[Candidate, ...] = ()
    knee: Candidate | None = None
    excluded: tuple[Candidate, ...] = ()
    branches: tuple[BranchSummary, ...] = ()
    outcomes: tuple[OutcomeCount, ...] = ()
    timings: Timings = field(default_factory=Timings, compare=False)
    saved: tuple[Saved, ...] = ()
    hypervolumes: tuple[RoundVolume, ...] = ()
    reference: tuple[float, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    warnings: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    stop: Stop = ""
    folder: Path = field(default=Path(), compare=False)

    @property
    def best(self) -> Candidate | None:
        """The winner of a single target, the knee of a front; None too when a goodput's SLA was never met."""
        if self.scoring.is_pareto:
            return self.knee
        first = self.candidates[0] if self.candidates else None
        return None if first and first.excluded_by_sla and self.scoring.is_goodput else first

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """What is shown first: the front of a Pareto goal, else all candidates, best first."""
        return self.front if self.scoring.is_pareto else self.candidates
