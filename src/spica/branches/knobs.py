"""The searched knobs of a branch besides the parallel shape, and which of them can act at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spica.branches.model import Dropped
from spica.deployment.features import geometric_centre
from spica.deployment.shapes import Mode, Role
from spica.knobs.table import KNOBS, When
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

_ROUTED: Final = (When.KV_ROUTER, When.KV_ROUTER_OFFLOAD)
ROLES: Final[dict[Mode, tuple[Role, ...]]] = {"agg": ("agg",), "disagg": ("prefill", "decode")}

#: The router knobs, and those of them that weigh offloaded blocks.
ROUTER_KNOBS: Final = tuple(k.name for k in KNOBS.values() if k.searched and k.when in _ROUTED)
OFFLOAD_KNOBS: Final = tuple(
    k.name for k in KNOBS.values() if k.searched and k.when is When.KV_ROUTER_OFFLOAD
)

#: What the router itself starts from: the default of a study dimension, where listed.
_ROUTER_STARTS: Final = {
    "overlap_score_credit": 1.0,
    "prefill_load_scale": 1.0,
    "router_temperature": 0.0,
    "host_cache_hit_weight": 0.75,
    "disk_cache_hit_weight": 0.25,
}


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


@dataclass(frozen=True, slots=True)
class BranchKnobs:
    """The knobs of one branch that can act, with their menus."""

    mode: Mode
    batching: dict[str, NumberKnob]
    router_mode: NameKnob
    router: dict[str, NumberKnob]
    policy: NameKnob
    fpm: NameKnob
    sensitivity: NameKnob
    kv_load: RatioKnob | None

    def parameters(self) -> tuple[Parameter, ...]:
        knobs: list[NumberKnob | NameKnob | RatioKnob] = [
            *self.batching.values(),
            self.router_mode,
            *self.router.values(),
            self.policy,
            self.fpm,
            self.sensitivity,
        ]
        if self.kv_load is not None:
            knobs.append(self.kv_load)
        return tuple(p for knob in knobs if (p := knob.parameter) is not None)

    def seqs(self, role: Role) -> tuple[int, ...]:
        return tuple(int(v) for v in self.batching[f"{role}_max_num_seqs"].values)


def branch_knobs(
    space: SearchSpace, mode: Mode, composites: Composites, kv_load_ratio: tuple[float, float] | None
) -> BranchKnobs:
    """The knobs of ``mode`` that can act. ``kv_load_ratio`` is the (low, high) of a KV-load workload."""
    return BranchKnobs(
        mode=mode,
        batching={k.name: k for role in ROLES[mode] for k in _batching(space, role)},
        router_mode=NameKnob("router_mode", tuple(space.router_mode), Influence.TUNING),
        router=_router(space),
        policy=NameKnob("planner_scaling_policy", tuple(p.name for p in composites.policies)),
        fpm=NameKnob("planner_fpm_sampling", tuple(s.name for s in composites.sampling)),
        sensitivity=NameKnob("planner_load_sensitivity", tuple(s.name for s in composites.sensitivity)),
        kv_load=None if kv_load_ratio is None else RatioKnob("kv_load_ratio", *kv_load_ratio),
    )


def dead_knobs(space: SearchSpace, composites: Composites) -> tuple[Dropped, ...]:
    """Searched knobs that cannot act in any candidate, and why. A knob with one value is no dimension anyway
    and is not mentioned."""
    found: list[Dropped] = []
    if "kv_router" not in space.router_mode:
        names = [name for name in ROUTER_KNOBS if len(getattr(space, name)) > 1]
        found += [Dropped("knob", name, "the router weighs nothing under round_robin") for name in names]
    elif space.num_g2_blocks <= 0:
        names = [name for name in OFFLOAD_KNOBS if len(getattr(space, name)) > 1]
        reason = "there are no host or disk blocks to weigh: num_g2_blocks is 0"
        found += [Dropped("knob", name, reason) for name in names]
    if not composites.scales:
        searched = {
            "planner_fpm_sampling": space.planner_fpm_sampling,
            "planner_load_sensitivity": space.planner_load_sensitivity,
        }
        reason = "no scaling policy runs a loop"
        found += [Dropped("knob", name, reason) for name, values in searched.items() if len(values) > 1]
    return tuple(found)


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


def _batching(space: SearchSpace, role: Role) -> list[NumberKnob]:
    knobs = []
    for suffix in ("max_num_batched_tokens", "max_num_seqs"):
        name = f"{role}_{suffix}"
        values: Sequence[int] = sorted(getattr(space, name))
        knobs.append(NumberKnob(name, tuple(values), geometric_centre(values), log=True))
    return knobs


def _router(space: SearchSpace) -> dict[str, NumberKnob]:
    if "kv_router" not in space.router_mode:
        return {}
    names = [n for n in ROUTER_KNOBS if n not in OFFLOAD_KNOBS or space.num_g2_blocks > 0]
    knobs = {}
    for name in names:
        values = tuple(sorted(float(v) for v in getattr(space, name)))
        start = _ROUTER_STARTS[name]
        default = start if start in values else values[(len(values) - 1) // 2]
        knobs[name] = NumberKnob(name, values, default, influence=Influence.WEIGHT)
    return knobs
