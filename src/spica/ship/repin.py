"""A configuration that pins one measured candidate, to measure it again or under other traffic."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import yaml

from spica.config.settings import SETTINGS
from spica.deployment.sample import FlatConfig
from spica.knobs.bindings import Pinned
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.table import COMPOSITE_REQUIRED_KEYS, KNOBS
from spica.ship.workers import take

_DIMS = ("tp", "pp", "attention_dp", "moe_tp", "moe_ep", "replicas")

#: Settings that say what was measured, spelled out whatever their defaults.
_SPELLED_OUT = ("model_name", "hardware_sku", "gpu_budget", "target")


def repin_text(config: Mapping[str, Any], candidate: FlatConfig, told: str) -> str:
    """``repinned`` as the text of a YAML file headed by ``told``, without what is the default anyway."""
    pinned = {name for name in _pins(candidate) if KNOBS[name].setting.is_list}
    kept = {
        block: {name: value for name, value in settings.items() if _needed(block, name, value, pinned)}
        for block, settings in repinned(config, candidate).items()
    }
    text = yaml.safe_dump({block: settings for block, settings in kept.items() if settings}, sort_keys=False)
    return f"# {' '.join(told.split())}\n# Settings that are left out have their defaults.\n{text}"


def _needed(block: str, name: str, value: object, pinned: Collection[str]) -> bool:
    if name in _SPELLED_OUT or (block == "search_space" and name in pinned):
        return True
    default = SETTINGS[block][name].default
    return value != (list(default) if isinstance(default, tuple) else default)


def repinned(config: Mapping[str, Any], candidate: FlatConfig) -> dict[str, Any]:
    """``config`` (resolved, in YAML form) with every searched knob pinned to what ``candidate`` has.

    Raises ValueError when ``candidate`` is not a candidate's flat config.
    """
    pinned = {**config, "search_space": {**config["search_space"], **_pins(candidate)}}
    sweep = {**config.get("sweep", {}), "max_rounds": 1, "candidates_per_round": 1}
    sweep.pop("parallel_evals", None)  # changes no result, and is the machine's affair
    pinned["sweep"] = sweep
    ratio = candidate.get("kv_load_ratio")
    if ratio is not None:
        pinned["workload"] = {**config["workload"], "kv_load_ratio": ratio}
    return pinned


def _pins(candidate: FlatConfig) -> dict[str, Any]:
    """The knobs of the search space that ``candidate`` has a value of."""
    mode = take(candidate, "deployment_mode", str)
    take(candidate, "backend", str)
    pins: dict[str, Any] = {"parallel_configs": [_parallel(candidate, mode)]}
    for name, knob in KNOBS.items():
        if isinstance(knob.repin, Pinned) and candidate.get(name) is not None:
            pins[name] = [candidate[name]] if knob.searched else candidate[name]
    for name, knob in KNOBS.items():
        if knob.kind is KnobKind.COMPOSITE and (entry := _entry(knob, candidate)) is not None:
            pins[name] = [entry]
    return pins


def _entry(knob: Knob, candidate: FlatConfig) -> str | dict[str, Any] | None:
    """A composite as the candidate has it: a policy by its name, which is the JSON of a custom one; else a
    dict of its fields. None when the candidate says nothing of it."""
    if knob.name == "planner_scaling_policy":
        policy = take(candidate, knob.name, str)
        custom: dict[str, Any] = json.loads(policy) if policy.startswith("{") else {}
        return custom or policy
    if any(candidate.get(field) is None for field in COMPOSITE_REQUIRED_KEYS[knob.name]):
        return None
    return {p.name: candidate[p.name] for p in knob.places if candidate.get(p.name) is not None}


def _parallel(candidate: FlatConfig, mode: str) -> dict[str, Any]:
    if mode == "agg":
        return _shape(candidate, "")
    return {"prefill": _shape(candidate, "prefill_"), "decode": _shape(candidate, "decode_")}


def _shape(candidate: FlatConfig, prefix: str) -> dict[str, int]:
    return {dim: take(candidate, prefix + dim, int) for dim in _DIMS}
