"""The searched knobs of a branch besides the parallel shape, and which of them can act at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spica.branches.model import Dropped
from spica.deployment.features import geometric_centre
from spica.deployment.shapes import Mode, Role
from spica.knobs.bindings import Search
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.setting import ValueType
from spica.knobs.table import KNOBS
from spica.knobs.when import Conditions, When
from spica.optimize.protocol import (
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Influence,
    Parameter,
    Value,
    Values,
)
from spica.planner.presets import FpmSampling, LoadSensitivity, ScalingPolicy

if TYPE_CHECKING:
    from spica.config import SearchSpace

ROLES: Final[dict[Mode, tuple[Role, ...]]] = {"agg": ("agg",), "disagg": ("prefill", "decode")}


@dataclass(frozen=True, slots=True)
class NumberKnob:
    """A list of numbers; ``values`` ascending. ``log`` for batching limits, whose effect is by ratio."""

    name: str
    values: tuple[int, ...] | tuple[float, ...]
    default: float
    log: bool = False
    influence: Influence = Influence.TUNING

    @property
    def parameter(self) -> Parameter | None:
        if len(self.values) < 2:
            return None
        values = tuple(map(float, self.values))
        return DiscreteParameter(self.name, values, float(self.default), self.log, self.influence)


@dataclass(frozen=True, slots=True)
class NameKnob:
    """A list of names, in the order of the configuration; the first is the default."""

    name: str
    values: tuple[str, ...]
    influence: Influence = Influence.FREE

    @property
    def parameter(self) -> Parameter | None:
        if len(self.values) < 2:
            return None
        return CategoricalParameter(self.name, self.values, self.values[0], self.influence)


@dataclass(frozen=True, slots=True)
class RatioKnob:
    """``kv_load_ratio``; a study dimension when ``low < high``. On a log scale: a front reaches from one
    request to a full cache."""

    name: str
    low: float
    high: float

    @property
    def parameter(self) -> Parameter | None:
        if self.low == self.high:
            return None
        return FloatParameter(self.name, self.low, self.high, (self.low + self.high) / 2, log=True)


@dataclass(frozen=True, slots=True)
class Composites:
    """The planner composites of a sweep. Without a scaling policy the last two cannot act and hold their
    first entry only."""

    policies: tuple[ScalingPolicy, ...]
    sampling: tuple[FpmSampling, ...]
    sensitivity: tuple[LoadSensitivity, ...]

    @property
    def scales(self) -> bool:
        return not all(policy.is_static for policy in self.policies)

    def of(self, name: str) -> tuple[ScalingPolicy | FpmSampling | LoadSensitivity, ...]:
        """The entries of a composite knob. Raises KeyError."""
        entries: dict[str, tuple[ScalingPolicy | FpmSampling | LoadSensitivity, ...]] = {
            "planner_scaling_policy": self.policies,
            "planner_fpm_sampling": self.sampling,
            "planner_load_sensitivity": self.sensitivity,
        }
        return entries[name]


@dataclass(frozen=True, slots=True)
class BranchKnobs:
    """The knobs of one branch that can act, with their menus, in the order of the study's dimensions."""

    mode: Mode
    menus: dict[str, NumberKnob | NameKnob]
    kv_load: RatioKnob | None

    def parameters(self) -> tuple[Parameter, ...]:
        knobs: list[NumberKnob | NameKnob | RatioKnob] = [*self.menus.values()]
        if self.kv_load is not None:
            knobs.append(self.kv_load)
        return tuple(p for knob in knobs if (p := knob.parameter) is not None)

    def seqs(self, role: Role) -> tuple[int, ...]:
        return tuple(int(v) for v in self.menus[f"{role}_max_num_seqs"].values)


def conditions(space: SearchSpace, modes: tuple[Mode, ...], composites: Composites) -> Conditions:
    """What holds of some candidate of the search."""
    return Conditions(
        modes=modes,
        kv_router="kv_router" in space.router_mode,
        offload=space.num_g2_blocks > 0,
        scaling=composites.scales,
        throughput_scaling=any(p.enable_throughput_scaling for p in composites.policies),
    )


def branch_knobs(
    space: SearchSpace, mode: Mode, composites: Composites, kv_load_ratio: tuple[float, float] | None
) -> BranchKnobs:
    """The knobs of ``mode`` that can act. ``kv_load_ratio`` is the (low, high) of a KV-load workload.

    A composite that cannot act stays, with its first entry.
    """
    found = conditions(space, (mode,), composites)
    menus = {
        knob.name: _menu(knob, space, composites)
        for knob in KNOBS.values()
        if isinstance(knob.search, Search)
        and (knob.kind is KnobKind.COMPOSITE or not _objection(knob, space, found))
    }
    return BranchKnobs(
        mode=mode,
        menus=menus,
        kv_load=None if kv_load_ratio is None else RatioKnob("kv_load_ratio", *kv_load_ratio),
    )


def dead_knobs(space: SearchSpace, composites: Composites) -> tuple[Dropped, ...]:
    """Searched knobs that cannot act in any candidate, and why. A knob with one value is no dimension anyway
    and is not mentioned, nor is a knob of a mode that is not searched."""
    found = conditions(space, space.deployment_mode, composites)
    return tuple(
        Dropped("knob", knob.name, reason)
        for knob in KNOBS.values()
        if isinstance(knob.search, Search)
        and knob.when not in (When.AGG, When.DISAGG)
        and len(space.value(knob.name)) > 1
        and (reason := _objection(knob, space, found))
    )


def _objection(knob: Knob, space: SearchSpace, found: Conditions) -> str:
    """Why the knob acts on no candidate."""
    reason = knob.objection(found)
    if not reason and not set(knob.backends) & set(space.backend):
        reason = f"only {', '.join(knob.backends)} has it"
    return reason


def value_of(knob: NumberKnob | NameKnob, values: Values) -> Value:
    """The knob's value in a suggestion, as the configuration wrote it.

    Raises ValueError for a missing value or one that is not on the menu.
    """
    if len(knob.values) == 1:
        return knob.values[0]
    given = values.get(knob.name)
    for value in knob.values:
        if value == given:
            return value
    raise ValueError(f"{knob.name}: {given!r} is not one of {knob.values}")


def _menu(knob: Knob, space: SearchSpace, composites: Composites) -> NumberKnob | NameKnob:
    assert isinstance(knob.search, Search)
    influence = knob.search.influence
    if knob.kind is KnobKind.COMPOSITE:
        return NameKnob(knob.name, tuple(entry.name for entry in composites.of(knob.name)), influence)
    given = space.value(knob.name)
    if knob.setting.type is ValueType.STR:
        return NameKnob(knob.name, tuple(given), influence)
    values = tuple(sorted(given))
    start: float = values[(len(values) - 1) // 2]
    if knob.search.log:
        start = geometric_centre(values)
    elif knob.search.start is not None and knob.search.start in values:
        start = knob.search.start
    return NumberKnob(knob.name, values, start, knob.search.log, influence)
