"""What a sweep is made from. The sweep knows branches, goals and traffic only by these values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from spica.deployment.sample import Sample
from spica.deployment.shapes import Mode
from spica.evaluate.protocol import ReplayPlan
from spica.goals.score import Scoring
from spica.optimize.protocol import Optimizer, Parameter, Study, Values
from spica.planner.presets import PlannerTarget
from spica.traffic.replayed import Traffic

OptimizerFactory = Callable[[Study], Optimizer]


class Decoded(Protocol):
    """What a point of a branch's study stands for: a canonical sample, and the reason why it is infeasible
    before any replay (else empty). ``rules`` names what made it canonical; ``projection`` is any frozen
    dataclass that tells how the shape was chosen."""

    @property
    def sample(self) -> Sample: ...
    @property
    def key(self) -> str: ...
    @property
    def projection(self) -> object: ...
    @property
    def rules(self) -> tuple[str, ...]: ...
    @property
    def reason(self) -> str: ...


class SearchBranch(Protocol):
    """One deployment mode: a flat study space, and what its points decode to. All pure.

    ``decode(p).key == identity(p)``: candidates with equal keys are measured once. Keys of different branches
    differ. ``gpus``: how many a candidate starts with. ``offered_load``: none scales, and requests arrive at
    their own times.
    """

    @property
    def mode(self) -> Mode: ...
    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    def decode(self, values: Values) -> Decoded: ...
    def identity(self, values: Values) -> str: ...
    def canonical(self, values: Values) -> Values: ...
    def gpus(self, values: Values) -> int: ...
    @property
    def offered_load(self) -> bool: ...
    def traffic(self, sample: Sample) -> Traffic: ...


@dataclass(frozen=True, slots=True)
class ConfirmOptions:
    """Re-measure the ``top`` leaders ``repeats`` times each; 0 turns it off."""

    top: int = 0
    repeats: int = 3

    def __post_init__(self) -> None:
        if self.top < 0 or self.repeats < 1:
            raise ValueError(f"confirm needs top >= 0 and repeats >= 1: {self.top}, {self.repeats}")


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """``max_rounds`` per branch, ``candidates_per_round`` unique successful ones each. ``max_minutes`` is
    for the whole sweep, counted from its start (or resumption). ``same_failure_limit``: so many failures
    for one cause, and nothing feasible, stop a branch. ``grace_seconds``: how long replays in flight may go
    on after a stop."""

    max_rounds: int = 20
    candidates_per_round: int = 16
    seed: int = 1
    confirm: ConfirmOptions = ConfirmOptions()
    max_minutes: float | None = None
    same_failure_limit: int = 8
    grace_seconds: float = 2.0

    def __post_init__(self) -> None:
        if self.max_rounds < 1 or self.candidates_per_round < 1:
            raise ValueError(f"rounds and candidates start at 1: {self}")


@dataclass(frozen=True)
class SweepInputs:
    """``warnings`` and ``dropped`` come from the making of the branches and are handed through to the result.
    ``force``: a resumed run may depart from its record."""

    branches: tuple[SearchBranch, ...]
    scoring: Scoring
    planner_target: PlannerTarget
    options: SearchOptions = SearchOptions()
    warnings: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    force: bool = False

    def plan(self, branch: SearchBranch, sample: Sample) -> ReplayPlan:
        sla, seed = self.scoring.sla, self.options.seed
        return ReplayPlan(sample, branch.traffic(sample), self.planner_target, sla, seed)

    def study(self, branch: SearchBranch) -> Study:
        return study_of(branch, self.scoring, self.options.seed)


def study_of(branch: SearchBranch, scoring: Scoring, seed: int) -> Study:
    """The study of a branch for a goal, with a divisor where values are shares of a load per GPU."""
    return Study(
        branch.parameters,
        scoring.objectives,
        seed,
        identity=branch.identity,
        canonical=branch.canonical,
        divisor=branch.gpus if branch.offered_load and scoring.is_per_gpu else None,
    )
