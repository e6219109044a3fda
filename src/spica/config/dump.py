"""Writing a configuration back, with every default spelled out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import yaml

from spica.config.block import Block
from spica.config.model import SmartSearchConfig
from spica.config.settings import SETTINGS
from spica.config.shapes import config_entry
from spica.deployment.shapes import AggConfig, DisaggConfig
from spica.knobs.table import KNOBS
from spica.planner.predictors import LOAD_PREDICTOR_PRESETS, PredictorSpec
from spica.planner.presets import FpmSampling, LoadSensitivity, ScalingPolicy, composite_entry

Yaml = str | int | float | bool | None | list["Yaml"] | dict[str, "Yaml"]

_TOP: Final = ("search_space", "workload", "goal", "sweep")


def dump_resolved(config: SmartSearchConfig) -> dict[str, Yaml]:
    """Every setting of the configuration as it would stand in a YAML file, defaults included.

    Settings that are only carried are left out while they have their default: runs that were begun before
    there was such a setting have this configuration on record, and can be resumed.
    ``config_from_mapping(dump_resolved(c)) == c``.
    """
    return {
        block: {
            name: _plain(name, value)
            for name, setting in SETTINGS[block].items()
            if (value := getattr(getattr(config, block), name)) != setting.default
            or not (block == "search_space" and KNOBS[name].carried)
        }
        for block in _TOP
    }


def dump_yaml(config: SmartSearchConfig) -> str:
    """``dump_resolved`` as the text of a YAML file."""
    return yaml.safe_dump(dump_resolved(config), sort_keys=False, allow_unicode=True, width=110)


def _plain(name: str, value: object) -> Yaml:
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    if isinstance(value, (ScalingPolicy, FpmSampling, LoadSensitivity)):
        return _entry(composite_entry(name, value))
    if isinstance(value, PredictorSpec):
        is_preset = LOAD_PREDICTOR_PRESETS.get(value.name) == value
        return value.name if is_preset else _entry(value.planner_fields())
    if isinstance(value, (AggConfig, DisaggConfig)):
        return _entry(config_entry(value))
    if isinstance(value, Block):
        return {field: _plain(field, getattr(value, field)) for field in SETTINGS[value.path]}
    if isinstance(value, Enum):
        return str(value)
    assert value is None or isinstance(value, (str, int, float, bool)), value
    return value


def _entry(entry: str | Mapping[str, object]) -> Yaml:
    """A composite entry as YAML: a preset id or a dict of plain values."""
    return (
        entry
        if isinstance(entry, str)
        else {k: _entry(v) if isinstance(v, Mapping) else _plain(k, v) for k, v in entry.items()}
    )
