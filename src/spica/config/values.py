"""One value against its setting: the value as the schema holds it, and everything that is wrong with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from spica.errors import Problem, nearest
from spica.knobs.setting import Setting, ValueType

_TRUE_WORDS: Final = frozenset({"true", "yes", "on", "y"})
_FALSE_WORDS: Final = frozenset({"false", "no", "off", "n"})
_EXPONENT: Final = re.compile(r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_SHOWN: Final = 60
#: Longer lists are mistakes; checking each entry of one would only hide that.
MAX_ENTRIES: Final = 1000


def shown(value: object) -> str:
    """A value as it could stand in the YAML, printable and cut to a readable length."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        if isinstance(value, (Mapping, list, tuple)):
            written = json.dumps(value, default=str)
        else:
            written = f"'{value}'" if isinstance(value, str) and value.isprintable() else str(value)
    except ValueError:  # Python writes no integers of more than some thousand digits
        return "a huge number"
    if not written.isprintable():
        written = ascii(written)
    return written if len(written) <= _SHOWN else written[: _SHOWN - 3] + "..."


def check_scalar(
    setting: Setting, value: object, key: str, *, alone: bool = False
) -> tuple[object, Problem | None]:
    """One value (an entry of a list, or the value itself) as int, float, bool or str; or why not.

    Whole numbers stand for floats, never the reverse; booleans stand for nothing else; NaN and infinities for
    nothing at all. ``alone``: it is the only entry of its list, and so a pin.
    """
    checked, objection, remedy = _TYPED[setting.type](value)
    if objection:
        return value, Problem(objection, key, allowed=setting.allowed, remedy=remedy)
    pinned = alone and setting.free_pin
    if setting.choices and checked not in setting.choices and not pinned:
        near = _near(checked, setting)
        remedy = f"alone in its list it may be {setting.legal}" if setting.free_pin else ""
        return value, Problem(
            f"{shown(value)} is not a choice", key, allowed=setting.allowed, suggestion=near, remedy=remedy
        )
    if objection := _range_objection(setting, checked):
        return value, Problem(objection, key, allowed=setting.legal if pinned else setting.allowed)
    return checked, None


def check_list(setting: Setting, value: object, key: str) -> tuple[Sequence[object] | None, Problem | None]:
    """A non-empty list, or why it is none."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        remedy = (
            f"write {setting.name}: [{shown(value)}]" if value is not None else "leave it out for its default"
        )
        return None, Problem(f"{shown(value)} is not a list", key, allowed=_list_of(setting), remedy=remedy)
    if len(value) > MAX_ENTRIES:
        return None, Problem(f"the list has {len(value)} entries", key, allowed=f"at most {MAX_ENTRIES}")
    if not value:
        remedy = "leave the key out for its default"
        return None, Problem("the list is empty", key, allowed=_list_of(setting), remedy=remedy)
    return value, None


def _list_of(setting: Setting) -> str:
    return f"a list of one or more of {setting.allowed}" if setting.choices else "a list of one or more"


def _near(value: object, setting: Setting) -> str:
    if isinstance(value, str):
        return nearest(value[:_SHOWN], [str(c) for c in setting.choices]) or ""
    if isinstance(value, (int, float)):
        numbers = [c for c in setting.choices if isinstance(c, (int, float))]
        return str(min(numbers, key=lambda c: abs(c - value))) if numbers else ""
    return ""


def _range_objection(setting: Setting, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    low, high = setting.low, setting.high
    if low is not None and (value < low or (setting.low_open and value == low)):
        return f"{shown(value)} is too small"
    if high is not None and value > high:
        return f"{shown(value)} is too large"
    return ""


_Typed = tuple[object, str, str]


def _whole(value: object) -> _Typed:
    if isinstance(value, int) and not isinstance(value, bool):
        return value, "", ""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return value, f"{shown(value)} is not a whole number", f"write {int(value)}"
    if isinstance(value, str) and _EXPONENT.fullmatch(value) and math.isfinite(number := float(value)):
        return (
            value,
            f"{shown(value)} is text to YAML",
            f"write {int(number)}" if number == int(number) else "",
        )
    return value, _not_a(value, "whole number"), _remedy(value)


def _real(value: object) -> _Typed:
    if isinstance(value, bool):
        return value, _not_a(value, "number"), _remedy(value)
    if isinstance(value, (int, float)):
        try:
            number = float(value)
        except OverflowError:
            return value, "the number is too large", ""
        finite = math.isfinite(number)
        return (number, "", "") if finite else (value, f"{shown(value)} is not a finite number", "")
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        dotted = re.sub(r"^([-+]?\d+)[eE]([-+]?)", lambda m: f"{m[1]}.0e{m[2] or '+'}", value)
        return value, f"{shown(value)} is text to YAML", f"write {dotted}"
    return value, _not_a(value, "number"), _remedy(value)


def _flag(value: object) -> _Typed:
    if isinstance(value, bool):
        return value, "", ""
    word = value.lower() if isinstance(value, str) else ""
    if word in _TRUE_WORDS or word in _FALSE_WORDS:
        return (
            value,
            f"{shown(value)} is not a boolean",
            f"write {'true' if word in _TRUE_WORDS else 'false'}",
        )
    return value, f"{shown(value)} is not a boolean", ""


def _text(value: object) -> _Typed:
    if isinstance(value, str):
        if not value.strip():
            return value, "the text is empty", ""
        return (value, "the text has control characters", "") if not value.isprintable() else (value, "", "")
    remedy = (
        "YAML reads yes, no, on and off as booleans: put the name in quotes"
        if isinstance(value, bool)
        else ""
    )
    return value, f"{shown(value)} is not text", remedy


def _not_a(value: object, noun: str) -> str:
    if isinstance(value, bool):
        return f"{shown(value)} is a boolean, not a {noun}"
    if isinstance(value, str):
        return f"{shown(value)} is text, not a {noun}"
    return f"{shown(value)} is not a {noun}"


def _remedy(value: object) -> str:
    if isinstance(value, bool):
        return "YAML reads true, yes and on as true, and false, no and off as false"
    if isinstance(value, str) and _OCTAL.fullmatch(value):
        return f"write {int(value, 8)}"
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+(\.[0-9]+)?", value):
        return f"write {value} without quotes"
    return ""


_TYPED: Final = {
    ValueType.INT: _whole,
    ValueType.FLOAT: _real,
    ValueType.BOOL: _flag,
    ValueType.STR: _text,
}
