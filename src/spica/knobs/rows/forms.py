"""Short ways to a row."""

from __future__ import annotations

from typing import Final

from spica.knobs.bindings import (
    Files,
    Holder,
    Inert,
    Pinned,
    Place,
    Repin,
    Replay,
)
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.setting import Choice, Setting, ValueType
from spica.knobs.when import When

TIMING: Final = "engine.timing_model.config"


def listed(
    name: str,
    type_: ValueType,
    choices: tuple[Choice, ...],
    meaning: str,
    unit: str = "",
    default: tuple[Choice, ...] | None = None,
    limits: tuple[float, float] | None = None,
) -> Setting:
    """A list knob. With ``limits`` (both included) a pin may be any number between them."""
    low, high = limits or (None, None)
    given = choices if default is None else default
    return Setting(name, type_, given, meaning, unit, choices, low, high, is_list=True)


#: Why a pinned setting is no dimension.
FIXED: Final = Inert("one value for all candidates of a sweep")


def pinned(
    holder: Holder,
    setting: Setting,
    title: str,
    group: str,
    replay: Replay,
    files: Files,
    repin: Repin | None = None,
    when: When = When.ALWAYS,
) -> Knob:
    """A setting with one value, at a place of its own name."""
    return Knob(
        setting, title, KnobKind.PINNED, group, (Place(holder, setting.name),), FIXED, replay, files,
        repin or Pinned(), when,
    )  # fmt: skip
