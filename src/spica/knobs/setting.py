"""What one field of the configuration may hold. Read by the schema, the checks and the documents."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Choice = str | int | float


class ValueType(StrEnum):
    """What one value of a setting is; ``dict`` entries have their own rules."""

    STR = "str"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    DICT = "dict"


@dataclass(frozen=True, slots=True)
class Setting:
    """One field: its type, default, meaning, unit and limits (``low_open``: the lower one is excluded).

    ``choices`` are the only legal values where there are any, but for numbers with limits: one of them that
    stands alone in its list is a pin, and may be any legal number. ``optional`` fields may be null. A field
    with ``is_list`` holds a non-empty list of such values.
    """

    name: str
    type: ValueType
    default: Any
    meaning: str
    unit: str = ""
    choices: tuple[Choice, ...] = ()
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    optional: bool = False
    required: bool = False
    is_list: bool = False

    @property
    def free_pin(self) -> bool:
        """Whether a value that stands alone in the list need not be one of the choices."""
        return self.is_list and bool(self.choices) and self.low is not None

    @property
    def allowed(self) -> str:
        """What one value may be, in words."""
        if self.choices:
            return ", ".join(str(c) for c in self.choices)
        return self.legal

    @property
    def legal(self) -> str:
        """The type and the limits, in words."""
        noun = {"int": "a whole number", "float": "a number", "bool": "true, false"}.get(self.type, "text")
        if self.low is None:
            return noun
        low = f"greater than {_number(self.low)}" if self.low_open else f"at least {_number(self.low)}"
        return noun + f", {low}" + (f", at most {_number(self.high)}" if self.high is not None else "")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def whole(
    name: str,
    default: int | None,
    low: int,
    high: int,
    meaning: str,
    unit: str = "",
    *,
    optional: bool = False,
) -> Setting:
    """A whole number; ``optional`` when the default is None."""
    optional = optional or default is None
    return Setting(name, ValueType.INT, default, meaning, unit, (), low, high, optional=optional)


def real(
    name: str,
    default: float | None,
    low: float,
    high: float,
    meaning: str,
    unit: str = "",
    *,
    above: bool = False,
    optional: bool = False,
) -> Setting:
    """A finite number; ``above``: greater than ``low``. ``optional`` when the default is None."""
    optional = optional or default is None
    return Setting(name, ValueType.FLOAT, default, meaning, unit, (), low, high, above, optional)


def text(name: str, meaning: str, default: str | None = None, *, required: bool = False) -> Setting:
    """A string; ``optional`` when it is neither required nor has a default."""
    optional = default is None and not required
    return Setting(name, ValueType.STR, default, meaning, optional=optional, required=required)


def flag(name: str, default: bool, meaning: str) -> Setting:
    """A boolean."""
    return Setting(name, ValueType.BOOL, default, meaning)
