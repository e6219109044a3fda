"""What the sweep asks of an optimizer, and the values that pass between them.

A study space is flat: floats, discretes and categoricals. An optimizer is asked for suggestions and told
observations; what it suggests next is a deterministic function of its space, objectives, seed, what it has
suggested so far and what it has been told, so that a resumed run continues exactly where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

#: A study's first suggestions are space-filling, and need no model.
SEEDS: Final = 4

Value = float | int | str
Values = Mapping[str, Value]


class Influence(Enum):
    """What is believed of a parameter before anything has been measured. Beliefs direct the search; what is
    measured overrules them."""

    FREE = "free"
    """Nothing."""
    SHAPE = "shape"
    """It is a part of the shape of a deployment, which decides most of a result: the search walks the
    neighbourhood of the best shapes."""
    TUNING = "tuning"
    """Its default is a good start, and stays while the first shapes are looked at."""
    WEIGHT = "weight"
    """As TUNING; besides, other values change little."""


@dataclass(frozen=True, slots=True)
class FloatParameter:
    """A continuous parameter on ``[low, high]``, ``low < high``; ``log`` asks for a scale on which what lies
    above ``low`` counts by its ratio, down to a hundredth of the range (``low`` may be 0)."""

    name: str
    low: float
    high: float
    default: float
    log: bool = False
    influence: Influence = Influence.FREE

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(
                f"{self.name}: a float parameter needs low < high, got [{self.low}, {self.high}]"
            )
        if not self.low <= self.default <= self.high:
            raise ValueError(f"{self.name}: default {self.default} is outside [{self.low}, {self.high}]")


@dataclass(frozen=True, slots=True)
class DiscreteParameter:
    """An ordered numeric parameter with at least two values, ascending; ``log`` asks for log scaling."""

    name: str
    choices: tuple[float, ...]
    default: float
    log: bool = False
    influence: Influence = Influence.FREE

    def __post_init__(self) -> None:
        _check_choices(self.name, self.choices, self.default)
        if any(a >= b for a, b in zip(self.choices, self.choices[1:], strict=False)):
            raise ValueError(f"{self.name}: choices must ascend: {self.choices}")
        if not all(math.isfinite(c) for c in self.choices):
            raise ValueError(f"{self.name}: choices must be finite: {self.choices}")
        if self.log and self.choices[0] <= 0:
            raise ValueError(f"{self.name}: log scaling needs positive choices: {self.choices}")


@dataclass(frozen=True, slots=True)
class CategoricalParameter:
    """An unordered parameter with at least two values."""

    name: str
    choices: tuple[str, ...]
    default: str
    influence: Influence = Influence.FREE

    def __post_init__(self) -> None:
        _check_choices(self.name, self.choices, self.default)


Parameter = FloatParameter | DiscreteParameter | CategoricalParameter


def _check_choices(name: str, choices: Sequence[Value], default: Value) -> None:
    if len(choices) < 2:
        raise ValueError(f"{name}: a searched parameter needs at least two choices; inject {choices} instead")
    if len(set(choices)) != len(choices):
        raise ValueError(f"{name}: duplicate choices: {choices}")
    if default not in choices:
        raise ValueError(f"{name}: default {default!r} is not among {choices}")


@dataclass(frozen=True, slots=True)
class Objective:
    """One measure to optimise. Labels are always told in natural units with this direction."""

    name: str
    maximize: bool = True


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One point of the study space, numbered in the order of asking (from 0)."""

    id: int
    values: Values


@dataclass(frozen=True, slots=True)
class Observation:
    """What a suggestion was worth: one finite label per objective, or None when it could not be scored
    (infeasible, failed, timed out, unsupported). ``repeats`` is how many measurements a label is the mean of.
    """

    suggestion: Suggestion
    labels: tuple[float, ...] | None
    repeats: int = 1

    def __post_init__(self) -> None:
        if self.labels is not None and not all(math.isfinite(v) for v in self.labels):
            raise ValueError(f"labels must be finite, or None for a trial without a score: {self.labels}")
        if self.repeats < 1:
            raise ValueError(f"repeats must be at least 1: {self.repeats}")


@dataclass(frozen=True, slots=True)
class Asked:
    """One past ``ask`` of a run that is being resumed, and what it answered."""

    suggestions: tuple[Suggestion, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """One past ``tell`` of a run that is being resumed."""

    observations: tuple[Observation, ...]


Event = Asked | Told


class Optimizer(Protocol):
    """Ask/tell. Not thread-safe; the sweep calls it from one thread."""

    def ask(self, count: int) -> tuple[Suggestion, ...]:
        """``count`` new suggestions. Suggestions asked for and not yet told are taken as pending.

        Fewer, at last none, when every candidate has been suggested and the optimizer knows it.
        """
        ...

    def tell(self, observations: Sequence[Observation]) -> None:
        """Results of earlier suggestions, in any order; each suggestion is told once.

        Raises ValueError for a suggestion that was never asked or is already told, or for a wrong number of
        labels.
        """
        ...

    def restore(self, history: Sequence[Event]) -> None:
        """Take over the past of an interrupted run, without computing any suggestion again.

        Only before the first ``ask``. Afterwards ``ask`` answers as the uninterrupted optimizer would have.
        """
        ...


@dataclass(frozen=True, slots=True)
class Study:
    """All that an optimizer is made from.

    ``identity`` maps a point to the key of the candidate it decodes to: points with equal keys are the same
    candidate. An optimizer may use it to avoid suggesting what was measured before; None when unknown.

    ``canonical`` maps a point to the point that stands for its candidate: inert parameters at their defaults,
    projected ones at the values the projection realised. It must stay in the space, keep the identity
    (``identity(canonical(p)) == identity(p)``) and be idempotent. With it the optimizer models candidates
    instead of the many latent points behind each, and suggests canonical points. It need not be complete.

    ``divisor`` tells, of one maximised objective that is a total under a ceiling divided by a positive number
    known beforehand, that number: of goodput per GPU of an offered load, the GPUs. None: no such structure.
    """

    parameters: tuple[Parameter, ...]
    objectives: tuple[Objective, ...]
    seed: int
    identity: Callable[[Values], str] | None = None
    canonical: Callable[[Values], Values] | None = None
    divisor: Callable[[Values], float] | None = None

    def __post_init__(self) -> None:
        names = [p.name for p in self.parameters]
        if len(set(names)) != len(names):
            raise ValueError(f"duplicate parameter names: {names}")
        if not self.objectives or len({o.name for o in self.objectives}) != len(self.objectives):
            raise ValueError(f"a study needs one or more distinct objectives: {self.objectives}")
        if self.divisor is not None and (len(self.objectives) > 1 or not self.objectives[0].maximize):
            raise ValueError("a divisor needs one maximised objective")
        if self.seed < 0:
            raise ValueError(f"the seed must not be negative: {self.seed}")
