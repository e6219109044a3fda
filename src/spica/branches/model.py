"""The values a sweep's branches are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spica.branches.backend_pool import RejectedShape
from spica.deployment.projection import Projection
from spica.deployment.sample import Sample
from spica.deployment.shapes import Mode
from spica.optimize.protocol import CategoricalParameter, DiscreteParameter, FloatParameter, Parameter, Value

DroppedKind = Literal["backend", "mode", "pair", "policy", "knob", "shape"]


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something the configuration lists that is not searched: a backend for a mode, a whole mode, a pair of
    backend and mode that the runner cannot replay, a scaling policy, a knob that cannot act, or a legal shape
    that enumeration leaves to pins."""

    kind: DroppedKind
    what: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Dimension:
    """One study dimension, for people: (low, high) of a float, else all values, in order."""

    name: str
    kind: Literal["float", "discrete", "categorical"]
    values: tuple[Value, ...]
    default: Value
    log: bool = False


def dimension(parameter: Parameter) -> Dimension:
    match parameter:
        case FloatParameter(name, low, high, default, log, _):
            return Dimension(name, "float", (low, high), default, log)
        case DiscreteParameter(name, choices, default, log, _):
            return Dimension(name, "discrete", choices, default, log)
        case CategoricalParameter(name, categories, chosen, _):
            return Dimension(name, "categorical", categories, chosen)


@dataclass(frozen=True, slots=True)
class DecodedPoint:
    """What a suggestion stands for.

    ``sample`` is the canonical candidate, the one that is measured, shown and keyed; ``requested`` the one as
    suggested, equal to it unless ``rules`` (the names of the canonical rules that applied) is not empty.
    ``reason`` is empty, or says why the candidate is infeasible before any replay.
    """

    sample: Sample
    requested: Sample
    projection: Projection
    rules: tuple[str, ...] = ()
    reason: str = ""

    @property
    def feasible(self) -> bool:
        return not self.reason

    @property
    def key(self) -> str:
        return self.sample.key()


@dataclass(frozen=True, slots=True)
class BackendSummary:
    """One backend of a branch: its version, how many parallel configs it can run, what was ruled out."""

    backend: str
    version: str
    configs: int
    rejected: tuple[RejectedShape, ...] = ()


@dataclass(frozen=True, slots=True)
class RejectedPool:
    """The shapes ruled out for a backend that was dropped from a mode."""

    mode: Mode
    backend: str
    rejected: tuple[RejectedShape, ...]
