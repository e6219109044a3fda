"""The load-predictor knob: presets, the keys a dict entry may carry, and what an entry resolves to.

Nothing heavy is imported here, so that the configuration can be validated in milliseconds. The defaults of
the family fields are those of the planner's own ``PlannerConfig``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from spica.errors import ConfigError, Problem, nearest

FAMILIES: Final = ("constant", "arima", "prophet", "kalman")

#: Defaults of the family fields of an entry that does not name them.
LOAD_PREDICTOR_DEFAULTS: Final[Mapping[str, int | float]] = MappingProxyType(
    {
        "prophet_window_size": 50,
        "kalman_q_level": 1.0,
        "kalman_q_trend": 0.1,
        "kalman_r": 10.0,
        "kalman_min_points": 5,
    }
)

#: The fields that only one family reads.
FAMILY_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "constant": (),
        "arima": (),
        "prophet": ("prophet_window_size",),
        "kalman": ("kalman_q_level", "kalman_q_trend", "kalman_r", "kalman_min_points"),
    }
)

#: Every key a dict entry of a family may carry; ``load_predictor`` is the only required one.
LOAD_PREDICTOR_FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {family: ("load_predictor", "load_predictor_log1p", *fields) for family, fields in FAMILY_FIELDS.items()}
)

_COUNTS: Final = frozenset({"prophet_window_size", "kalman_min_points"})


@dataclass(frozen=True, slots=True)
class PredictorSpec:
    """One load predictor, fully spelled out.

    ``name`` is the preset id, or a name made of the fields for a dict entry. Fields of other families are
    None. ``prophet_window_size`` and ``kalman_min_points`` count windows; the Kalman noises are variances in
    the unit of the series (log1p of it when ``load_predictor_log1p``).
    """

    name: str
    load_predictor: str
    load_predictor_log1p: bool = False
    prophet_window_size: int | None = None
    kalman_q_level: float | None = None
    kalman_q_trend: float | None = None
    kalman_r: float | None = None
    kalman_min_points: int | None = None

    def planner_fields(self) -> dict[str, str | bool | int | float]:
        """The ``PlannerConfig`` fields this predictor sets: family, log1p, and its own family's fields."""
        fields: dict[str, str | bool | int | float] = {
            "load_predictor": self.load_predictor,
            "load_predictor_log1p": self.load_predictor_log1p,
        }
        for key in FAMILY_FIELDS[self.load_predictor]:
            value = getattr(self, key)
            fields[key] = LOAD_PREDICTOR_DEFAULTS[key] if value is None else value
        return fields


def _kalman(name: str, log1p: bool, level: float, trend: float, r: float, points: int) -> PredictorSpec:
    return PredictorSpec(
        name,
        "kalman",
        log1p,
        kalman_q_level=level,
        kalman_q_trend=trend,
        kalman_r=r,
        kalman_min_points=points,
    )


_PRESETS: Final = (
    PredictorSpec("constant_last", "constant"),
    PredictorSpec("arima_raw", "arima", False),
    PredictorSpec("arima_log1p", "arima", True),
    PredictorSpec("prophet_w20_raw", "prophet", False, prophet_window_size=20),
    PredictorSpec("prophet_w20_log1p", "prophet", True, prophet_window_size=20),
    PredictorSpec("prophet_w50_raw", "prophet", False, prophet_window_size=50),
    PredictorSpec("prophet_w50_log1p", "prophet", True, prophet_window_size=50),
    _kalman("kalman_default_raw", False, 1.0, 0.1, 10.0, 5),
    _kalman("kalman_default_log1p", True, 1.0, 0.1, 10.0, 5),
    _kalman("kalman_reactive_raw", False, 10.0, 1.0, 5.0, 3),
    _kalman("kalman_reactive_log1p", True, 10.0, 1.0, 5.0, 3),
)

#: Preset id -> predictor, in the order in which they are listed and in which ties are broken.
LOAD_PREDICTOR_PRESETS: Final[Mapping[str, PredictorSpec]] = MappingProxyType({p.name: p for p in _PRESETS})


def _field_problem(key: str, value: object, at: str) -> Problem | None:
    """What is wrong with one value of a dict entry, if anything."""
    if key == "load_predictor_log1p":
        return (
            None
            if isinstance(value, bool)
            else Problem(f"{value!r} is not a boolean", key=at, allowed="true, false")
        )
    if key in _COUNTS:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return None
        return Problem(f"{value!r} is not a count of windows", key=at, allowed="a whole number >= 1")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return None
    return Problem(f"{value!r} is not a noise variance", key=at, allowed="a finite number > 0")


def predictor_problems(entry: object, key: str = "load_predictor_candidates") -> tuple[Problem, ...]:
    """All that is wrong with one entry of ``load_predictor_candidates``; empty when it is legal.

    ``key`` is the dotted path of the entry, such as ``search_space.load_predictor_candidates[2]``.
    """
    presets = ", ".join(LOAD_PREDICTOR_PRESETS)
    if isinstance(entry, str):
        if entry in LOAD_PREDICTOR_PRESETS:
            return ()
        near = nearest(entry, LOAD_PREDICTOR_PRESETS) or ""
        return (Problem(f"unknown load predictor {entry!r}", key=key, suggestion=near, allowed=presets),)
    if not isinstance(entry, Mapping):
        return (Problem(f"{entry!r} is neither a preset id nor a dict", key=key, allowed=presets),)
    family = entry.get("load_predictor")
    if family is None:
        return (Problem("a dict entry needs load_predictor", key=key, allowed=", ".join(FAMILIES)),)
    if not isinstance(family, str) or family not in FAMILIES:
        near = nearest(str(family), FAMILIES) or ""
        at = f"{key}.load_predictor"
        return (Problem(f"unknown family {family!r}", key=at, suggestion=near, allowed=", ".join(FAMILIES)),)
    legal = LOAD_PREDICTOR_FIELDS[family]
    found: list[Problem] = []
    for name, value in entry.items():
        at = f"{key}.{name}"
        if name not in legal:
            near = nearest(str(name), legal) or ""
            found.append(
                Problem(f"no such key for {family}", key=at, suggestion=near, allowed=", ".join(legal))
            )
        elif name != "load_predictor" and (problem := _field_problem(name, value, at)):
            found.append(problem)
    return tuple(found)


def _dict_name(family: str, log1p: bool, values: Mapping[str, int | float]) -> str:
    """A name that tells two dict entries apart: the family, the scale, and each family field."""
    parts = [f"{k.removeprefix(family + '_')}={v:g}" for k, v in values.items()]
    return f"{family}({', '.join([*parts, 'log1p' if log1p else 'raw'])})"


def resolve_predictor(entry: str | Mapping[str, object] | PredictorSpec) -> PredictorSpec:
    """A preset id or a dict entry, as a :class:`PredictorSpec` with the family's defaults filled in.

    Raises ConfigError when the entry is not legal (see :func:`predictor_problems`).
    """
    if isinstance(entry, PredictorSpec):
        return entry
    if problems := predictor_problems(entry):
        raise ConfigError(problems)
    if isinstance(entry, str):
        return LOAD_PREDICTOR_PRESETS[entry]
    family = str(entry["load_predictor"])
    log1p = bool(entry.get("load_predictor_log1p", False)) and family != "constant"
    values: dict[str, int | float] = {}
    for key in FAMILY_FIELDS[family]:
        value = entry.get(key, LOAD_PREDICTOR_DEFAULTS[key])
        assert isinstance(value, (int, float))
        values[key] = value
    fields = {k: v if k in _COUNTS else float(v) for k, v in values.items()}
    return PredictorSpec(
        name=_dict_name(family, log1p, values),
        load_predictor=family,
        load_predictor_log1p=log1p,
        prophet_window_size=_whole(fields.get("prophet_window_size")),
        kalman_q_level=fields.get("kalman_q_level"),
        kalman_q_trend=fields.get("kalman_q_trend"),
        kalman_r=fields.get("kalman_r"),
        kalman_min_points=_whole(fields.get("kalman_min_points")),
    )


def _whole(value: int | float | None) -> int | None:
    return None if value is None else int(value)
