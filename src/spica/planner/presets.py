"""The three planner composites: presets, the keys of a dict entry, and what an entry resolves to.

Nothing heavy is imported here, so that a configuration is validated in milliseconds. The limits on the
values are those of the planner's own ``PlannerConfig``, checked here so that a bad one is reported before any
replay.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeVar

from spica.errors import ConfigError, Problem, nearest

#: What the planner's scaling aims at.
PlannerTarget = Literal["throughput", "latency", "sla"]


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """Which scaling loops run, and how often (seconds). ``name`` is the preset id, or the canonical JSON of a
    dict entry. With both loops off the intervals are never read."""

    name: str
    enable_throughput_scaling: bool
    enable_load_scaling: bool
    throughput_adjustment_interval_seconds: int
    load_adjustment_interval_seconds: int

    @property
    def is_static(self) -> bool:
        """No loop runs: the replica count stays as deployed and no planner is started."""
        return not (self.enable_throughput_scaling or self.enable_load_scaling)


@dataclass(frozen=True, slots=True)
class FpmSampling:
    """How many forward-pass measurements the planner keeps, in how many buckets (a perfect square)."""

    name: str
    max_num_fpm_samples: int
    fpm_sample_bucket_size: int


@dataclass(frozen=True, slots=True)
class LoadSensitivity:
    """How readily load scaling shrinks (percent, 0..100), after how many observations."""

    name: str
    load_scaling_down_sensitivity: int
    load_min_observations: int


Composite = ScalingPolicy | FpmSampling | LoadSensitivity
C = TypeVar("C", ScalingPolicy, FpmSampling, LoadSensitivity)

#: Preset id -> scaling policy.
SCALING_POLICIES: Final[Mapping[str, ScalingPolicy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            ScalingPolicy("disabled", False, False, 180, 5),
            ScalingPolicy("throughput_180_5", True, False, 180, 5),
            ScalingPolicy("throughput_600_5", True, False, 600, 5),
            ScalingPolicy("load_180_5", False, True, 180, 5),
            ScalingPolicy("load_180_10", False, True, 180, 10),
            ScalingPolicy("hybrid_180_5", True, True, 180, 5),
            ScalingPolicy("hybrid_600_5", True, True, 600, 5),
        )
    }
)

#: Preset id -> forward-pass sampling.
FPM_SAMPLING: Final[Mapping[str, FpmSampling]] = MappingProxyType(
    {
        sampling.name: sampling
        for sampling in (
            FpmSampling("small", 32, 4),
            FpmSampling("default", 64, 16),
            FpmSampling("large", 128, 16),
            FpmSampling("fine", 128, 64),
        )
    }
)

#: Preset id -> sensitivity of load scaling.
LOAD_SENSITIVITY: Final[Mapping[str, LoadSensitivity]] = MappingProxyType(
    {
        sensitivity.name: sensitivity
        for sensitivity in (
            LoadSensitivity("aggressive", 70, 3),
            LoadSensitivity("default", 80, 5),
            LoadSensitivity("conservative", 90, 8),
        )
    }
)

#: Composite knob -> its presets by id.
PLANNER_PRESETS: Final[Mapping[str, Mapping[str, Composite]]] = MappingProxyType(
    {
        "planner_scaling_policy": SCALING_POLICIES,
        "planner_fpm_sampling": FPM_SAMPLING,
        "planner_load_sensitivity": LOAD_SENSITIVITY,
    }
)

_TYPES: Final[Mapping[str, type[Composite]]] = MappingProxyType(
    {
        "planner_scaling_policy": ScalingPolicy,
        "planner_fpm_sampling": FpmSampling,
        "planner_load_sensitivity": LoadSensitivity,
    }
)

#: Composite knob -> the keys of a dict entry, all of them required.
PLANNER_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {knob: tuple(cls.__dataclass_fields__)[1:] for knob, cls in _TYPES.items()}
)

_MAX_WHOLE: Final = 1_000_000
_RANGES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "throughput_adjustment_interval_seconds": (1, 7 * 86_400),
        "load_adjustment_interval_seconds": (1, 86_400),
        "max_num_fpm_samples": (1, _MAX_WHOLE),
        "fpm_sample_bucket_size": (1, _MAX_WHOLE),
        "load_scaling_down_sensitivity": (0, 100),
        "load_min_observations": (1, _MAX_WHOLE),
    }
)


def canonical_name(entry: Mapping[str, object]) -> str:
    """The name of a dict entry: its JSON with sorted keys and no spaces."""
    return json.dumps(dict(entry), sort_keys=True, separators=(",", ":"))


def composite_problems(knob: str, entry: object, key: str = "") -> tuple[Problem, ...]:
    """All that is wrong with one entry of a planner composite; empty when it is legal.

    ``key`` is the dotted path of the entry, such as ``search_space.planner_scaling_policy[2]``.
    """
    if isinstance(entry, _TYPES[knob]):
        return ()
    presets = PLANNER_PRESETS[knob]
    fields = PLANNER_FIELDS[knob]
    allowed = f"{', '.join(presets)}, or a dict with {', '.join(fields)}"
    if isinstance(entry, str):
        if entry in presets:
            return ()
        return (
            Problem(
                f"unknown preset {entry[:60]!r}",
                key,
                suggestion=nearest(entry[:60], presets) or "",
                allowed=allowed,
            ),
        )
    if not isinstance(entry, Mapping):
        return (Problem(f"{_shown(entry)} is neither a preset id nor a dict", key, allowed=allowed),)
    found = [
        Problem(
            "no such key",
            f"{key}.{name}",
            suggestion=nearest(str(name), fields) or "",
            allowed=", ".join(fields),
        )
        for name in entry
        if name not in fields
    ]
    if missing := [name for name in fields if name not in entry]:
        found.append(
            Problem(f"the dict lacks {', '.join(missing)}", key, remedy="a dict entry spells out every field")
        )
    values = [(name, entry[name]) for name in fields if name in entry]
    wrong = [problem for name, value in values if (problem := _value_problem(name, value, f"{key}.{name}"))]
    found.extend(wrong)
    if not found and (problem := _pair_problem(entry, key)):
        found.append(problem)
    return tuple(found)


def _shown(value: object) -> str:
    try:
        return ascii(value)[:60]
    except ValueError:  # Python writes no integers of more than some thousand digits
        return "a huge number"


def _value_problem(name: str, value: object, key: str) -> Problem | None:
    if name.startswith("enable_"):
        if isinstance(value, bool):
            return None
        return Problem(f"{_shown(value)} is not a boolean", key, allowed="true, false")
    low, high = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        return Problem(
            f"{_shown(value)} cannot be used here", key, allowed=f"a whole number, {low} to {high}"
        )
    if name == "fpm_sample_bucket_size" and math.isqrt(value) ** 2 != value:
        root = math.isqrt(value)
        return Problem(
            f"{value} is not a perfect square", key, allowed="1, 4, 9, 16, ...", suggestion=str(root * root)
        )
    return None


def _pair_problem(entry: Mapping[str, object], key: str) -> Problem | None:
    """The planner refuses a reactive loop that is not faster than the predictive one."""
    if not (entry.get("enable_throughput_scaling") and entry.get("enable_load_scaling")):
        return None
    slow, fast = entry["throughput_adjustment_interval_seconds"], entry["load_adjustment_interval_seconds"]
    if isinstance(slow, int) and isinstance(fast, int) and fast >= slow:
        return Problem(
            f"load_adjustment_interval_seconds ({fast}) is not shorter than "
            f"throughput_adjustment_interval_seconds ({slow})",
            key,
            remedy="with both loops on, load scaling is the fast one",
        )
    return None


def _resolve(knob: str, cls: type[C], entry: object) -> C:
    if isinstance(entry, cls):
        return entry
    if problems := composite_problems(knob, entry, knob):
        raise ConfigError(problems)
    if isinstance(entry, str):
        preset = PLANNER_PRESETS[knob][entry]
        assert isinstance(preset, cls)
        return preset
    assert isinstance(entry, Mapping)
    return cls(name=canonical_name(entry), **{field: entry[field] for field in PLANNER_FIELDS[knob]})


def resolve_composite(knob: str, entry: object) -> Composite:
    """A preset id or a dict entry as its typed value. Raises ConfigError when it is not legal."""
    if knob == "planner_scaling_policy":
        return _resolve(knob, ScalingPolicy, entry)
    if knob == "planner_fpm_sampling":
        return _resolve(knob, FpmSampling, entry)
    return _resolve(knob, LoadSensitivity, entry)


def composite_entry(knob: str, value: Composite) -> str | dict[str, bool | int]:
    """The YAML form of a typed value: its preset id, or a dict. Inverse of :func:`resolve_composite`."""
    if PLANNER_PRESETS[knob].get(value.name) == value:
        return value.name
    return {field: getattr(value, field) for field in PLANNER_FIELDS[knob]}
