"""The JSON Schema of a configuration, for editors that complete and check. Made from the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spica.config.settings import SETTINGS
from spica.config.shapes import DIMENSIONS, ROLES
from spica.knobs.knob import KnobKind
from spica.knobs.setting import Setting, ValueType
from spica.knobs.table import KNOBS

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

#: Where an editor may look for it; a name, not an address that is fetched.
SCHEMA_ID: Final = "urn:spica:configuration"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TYPES: Final[Mapping[ValueType, str]] = {
    ValueType.STR: "string",
    ValueType.INT: "integer",
    ValueType.FLOAT: "number",
    ValueType.BOOL: "boolean",
    ValueType.DICT: "object",
}


def json_schema() -> dict[str, Json]:
    """The schema (draft 2020-12): types, choices, limits, defaults, units and meanings of every setting.

    It says what one setting may be. The rules between settings are those of ``spica check`` alone, so what
    this accepts may still be refused there; what it refuses is always refused there.
    """
    blocks = [path for path in SETTINGS if "." not in path]
    return {
        "$schema": _DIALECT,
        "$id": SCHEMA_ID,
        "title": "Spica configuration",
        **_object({path: _block(path) for path in blocks}, required=["search_space"]),
    }


def _object(properties: dict[str, Json], required: list[str]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": list[Json](required)} if required else {}),
    }


def _block(path: str) -> dict[str, Json]:
    settings = SETTINGS[path]
    return _object(
        {name: _setting(path, setting) for name, setting in settings.items()},
        [name for name, setting in settings.items() if setting.required],
    )


def _setting(path: str, setting: Setting) -> dict[str, Json]:
    """One setting with its title, description and default."""
    value = _value(path, setting)
    if setting.is_list:
        empty = setting.default == ()
        value = {"type": "array", "items": value, "minItems": 0 if empty else 1}
        if setting.free_pin:
            alone: Json = {"type": "array", "items": _limits(setting), "minItems": 1, "maxItems": 1}
            value = {"anyOf": [value, alone]}
    if setting.optional:
        value = {"anyOf": [value, {"type": "null"}]}
    unit = f" ({setting.unit})" if setting.unit else ""
    described: dict[str, Json] = {"title": _title(path, setting), "description": setting.meaning + unit}
    if not setting.required:
        default = setting.default
        described["default"] = list(default) if isinstance(default, tuple) else default
    return described | value


def _title(path: str, setting: Setting) -> str:
    return KNOBS[setting.name].title if path == "search_space" else setting.name.replace("_", " ")


def _value(path: str, setting: Setting) -> dict[str, Json]:
    """What one value may be; the entry of a list for a list."""
    if f"{path}.{setting.name}" in SETTINGS:
        return _block(f"{path}.{setting.name}")
    if path == "search_space" and KNOBS[setting.name].kind is KnobKind.PARALLEL:
        return {"anyOf": [_workers(), _object({role: _workers() for role in ROLES}, list(ROLES))]}
    if setting.type is ValueType.DICT and setting.choices:
        return {"anyOf": [{"enum": list(setting.choices)}, {"type": "object"}]}
    if setting.choices:
        return {"enum": list(setting.choices)}
    if setting.name == "kv_load_ratio":
        one = _limits(setting)
        ends: dict[str, Json] = {"type": "array", "items": one, "minItems": 2, "maxItems": 2}
        return {"anyOf": [one, ends]}
    return _limits(setting)


def _limits(setting: Setting) -> dict[str, Json]:
    value: dict[str, Json] = {"type": _TYPES[setting.type]}
    if setting.low is not None:
        value["exclusiveMinimum" if setting.low_open else "minimum"] = setting.low
    if setting.high is not None:
        value["maximum"] = setting.high
    return value


def _workers() -> dict[str, Json]:
    """The workers of one role, as ``parallel_configs`` writes them."""
    return _object({name: _limits(setting) for name, setting in DIMENSIONS.items()}, ["tp"])
