"""Rows of the planner's composites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spica.knobs.bindings import (
    Holder,
    Inert,
    PinnedAs,
    Place,
    PlannerFields,
    Search,
)
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.rows.forms import listed
from spica.knobs.setting import ValueType
from spica.knobs.when import When
from spica.optimize.protocol import Influence
from spica.planner.predictors import LOAD_PREDICTOR_FIELDS, LOAD_PREDICTOR_PRESETS
from spica.planner.presets import PLANNER_FIELDS, PLANNER_PRESETS

PREDICTOR_KEYS: Final = tuple(dict.fromkeys(key for keys in LOAD_PREDICTOR_FIELDS.values() for key in keys))


def _composite(
    name: str,
    title: str,
    presets: Mapping[str, object],
    meaning: str,
    lives: tuple[Place, ...],
    when: When,
    search: Search | Inert | None = None,
    rules: tuple[str, ...] = (),
) -> Knob:
    """A bundle of the planner's fields, by preset or dict."""
    return Knob(
        listed(name, ValueType.DICT, tuple(presets), meaning),
        title,
        KnobKind.COMPOSITE,
        "Planner",
        lives,
        search or Search(Influence.FREE),
        PlannerFields(),
        PlannerFields(),
        PinnedAs("its fields, or its preset"),
        when,
        rules,
    )


def _scaling(name: str, holder: Holder = Holder.SCALING) -> tuple[Place, ...]:
    return tuple(Place(holder, field) for field in PLANNER_FIELDS[name])


PLANNER: Final = (
    _composite(
        "planner_scaling_policy",
        "Scaling policy",
        PLANNER_PRESETS["planner_scaling_policy"],
        "which scaling loops run, and how often",
        tuple(
            Place(Holder.PLANNER if field.startswith("enable_") else Holder.SCALING, field)
            for field in PLANNER_FIELDS["planner_scaling_policy"]
        ),
        When.ALWAYS,
    ),
    _composite(
        "planner_fpm_sampling",
        "Pass sampling",
        PLANNER_PRESETS["planner_fpm_sampling"],
        "how many forward-pass measurements the planner keeps",
        _scaling("planner_fpm_sampling"),
        When.SCALING,
        rules=("planner_by_thresholds",),
    ),
    _composite(
        "planner_load_sensitivity",
        "Load sensitivity",
        PLANNER_PRESETS["planner_load_sensitivity"],
        "how readily load scaling shrinks",
        _scaling("planner_load_sensitivity"),
        When.SCALING,
        rules=("planner_by_thresholds",),
    ),
    _composite(
        "load_predictor_candidates",
        "Load forecasters",
        LOAD_PREDICTOR_PRESETS,
        "forecasters of predictive scaling; the best per interval is found before the sweep",
        tuple(Place(Holder.PREDICTOR, key) for key in PREDICTOR_KEYS),
        When.THROUGHPUT_SCALING,
        Inert("they compete before the sweep"),
    ),
)
