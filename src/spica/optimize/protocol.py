"""What the sweep asks of an optimizer, and the values that pass between them.

A study space is flat: floats, discretes and categoricals. An optimizer is asked for suggestions and told
observations; it must be a deterministic function of its space, objectives, seed and the sequence of calls, so
that a resumed run, which repeats the calls from the ledger, continues exactly where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Value = float | int | str
Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class FloatParameter:
    """A continuous parameter on ``[low, high]``, ``low < high``."""

    name: str
    low: float
    high: float
    default: float


@dataclass(frozen=True, slots=True)
class DiscreteParameter:
    """An ordered numeric parameter with at least two values, ascending; ``log`` asks for log scaling."""

    name: str
    choices: tuple[float, ...]
    default: float
    log: bool = False


@dataclass(frozen=True, slots=True)
class CategoricalParameter:
    """An unordered parameter with at least two values."""

    name: str
    choices: tuple[str, ...]
    default: str


Parameter = FloatParameter | DiscreteParameter | CategoricalParameter


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
    (infeasible, failed, timed out, unsupported). ``repeats`` is how many measurements a label is the mean of."""

    suggestion: Suggestion
    labels: tuple[float, ...] | None
    repeats: int = 1

    def __post_init__(self) -> None:
        if self.labels is not None and not all(math.isfinite(v) for v in self.labels):
            raise ValueError(f"labels must be finite, or None for a trial without a score: {self.labels}")


class Optimizer(Protocol):
    """Ask/tell. Not thread-safe; the sweep calls it from one thread."""

    def ask(self, count: int) -> tuple[Suggestion, ...]:
        """``count`` new suggestions. Suggestions asked for and not yet told are taken as pending."""
        ...

    def tell(self, observations: Sequence[Observation]) -> None:
        """Results of earlier suggestions, in any order; each suggestion is told once."""
        ...


@dataclass(frozen=True, slots=True)
class Study:
    """All that an optimizer is made from.

    ``identity`` maps a point to the key of the candidate it decodes to: points with equal keys are the same
    candidate. An optimizer may use it to avoid suggesting what was measured before; None when unknown.
    """

    parameters: tuple[Parameter, ...]
    objectives: tuple[Objective, ...]
    seed: int
    identity: Callable[[Values], str] | None = None
