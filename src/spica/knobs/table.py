"""The one table of the knobs of a search space.

The schema, the study, the sample, the replay, the deployment files, repinning and the documents all read it;
no other list of knobs exists. ``docs/change-one-thing.md`` adds a row in ten minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from spica.knobs.knob import Knob
from spica.knobs.rows.deployment import DEPLOYMENT, OFFLOAD
from spica.knobs.rows.derived import DERIVED
from spica.knobs.rows.engines import ENGINES, TURNS
from spica.knobs.rows.planner import PLANNER, PREDICTOR_KEYS
from spica.knobs.rows.router import ADMISSION, ROUTER
from spica.knobs.setting import Choice
from spica.planner.presets import PLANNER_FIELDS

__all__ = [
    "COMPOSITE_DICT_KEYS", "COMPOSITE_REQUIRED_KEYS", "DERIVED", "KNOBS", "SEARCH_CHOICES", "default", "knob",
]  # fmt: skip

#: Every knob by name, in the order of the reference.
KNOBS: Final[Mapping[str, Knob]] = MappingProxyType(
    {knob.name: knob for knob in (*DEPLOYMENT, *ENGINES, *TURNS, *OFFLOAD, *ROUTER, *ADMISSION, *PLANNER)}
)

#: List knob -> its legal entries (preset ids for the composites).
SEARCH_CHOICES: Final[Mapping[str, tuple[Choice, ...]]] = MappingProxyType(
    {name: knob.choices for name, knob in KNOBS.items() if knob.searched}
)

#: Composite knob -> every key a dict entry may carry.
COMPOSITE_DICT_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {**PLANNER_FIELDS, "load_predictor_candidates": PREDICTOR_KEYS}
)

#: Composite knob -> the keys a dict entry must carry.
COMPOSITE_REQUIRED_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {**PLANNER_FIELDS, "load_predictor_candidates": ("load_predictor",)}
)


def knob(name: str) -> Knob:
    """The knob of that name. Raises KeyError."""
    return KNOBS[name]


def default(name: str) -> Any:
    """The default of a knob, in YAML terms (preset ids for composites). Raises KeyError."""
    return KNOBS[name].default
