"""A configuration that pins one measured candidate, to measure it again or under other traffic."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import yaml

from spica.config.settings import SETTINGS
from spica.deployment.sample import FlatConfig
from spica.ship.workers import take

_DIMS = ("tp", "pp", "attention_dp", "moe_tp", "moe_ep", "replicas")
_ROUTER = (
    "overlap_score_credit",
    "prefill_load_scale",
    "router_temperature",
    "host_cache_hit_weight",
    "disk_cache_hit_weight",
)
_COMPOSITES = {
    "planner_fpm_sampling": ("max_num_fpm_samples", "fpm_sample_bucket_size"),
    "planner_load_sensitivity": ("load_scaling_down_sensitivity", "load_min_observations"),
}
_PREDICTOR = (
    "load_predictor",
    "load_predictor_log1p",
    "prophet_window_size",
    "kalman_q_level",
    "kalman_q_trend",
    "kalman_r",
    "kalman_min_points",
)


#: Settings that say what was measured, spelled out whatever their defaults.
_SPELLED_OUT = ("model_name", "hardware_sku", "gpu_budget", "target")


def repin_text(config: Mapping[str, Any], candidate: FlatConfig, told: str) -> str:
    """``repinned`` as the text of a YAML file headed by ``told``, without what is the default anyway."""
    pinned = _pins(candidate).keys()
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
    pins = {
        "deployment_mode": [mode],
        "backend": [take(candidate, "backend", str)],
        "parallel_configs": [_parallel(candidate, mode)],
        "router_mode": [take(candidate, "router_mode", str)],
    }
    for role in ("agg",) if mode == "agg" else ("prefill", "decode"):
        for knob in (f"{role}_max_num_batched_tokens", f"{role}_max_num_seqs"):
            pins[knob] = [take(candidate, knob, int)]
    pins |= {knob: [candidate[knob]] for knob in _ROUTER if candidate.get(knob) is not None}
    return pins | _planner(candidate)


def _parallel(candidate: FlatConfig, mode: str) -> dict[str, Any]:
    if mode == "agg":
        return _shape(candidate, "")
    return {"prefill": _shape(candidate, "prefill_"), "decode": _shape(candidate, "decode_")}


def _shape(candidate: FlatConfig, prefix: str) -> dict[str, int]:
    return {dim: take(candidate, prefix + dim, int) for dim in _DIMS}


def _planner(candidate: FlatConfig) -> dict[str, Any]:
    policy = take(candidate, "planner_scaling_policy", str)
    # A custom policy goes by the JSON of its dict.
    pinned: dict[str, Any] = {
        "planner_scaling_policy": [json.loads(policy) if policy.startswith("{") else policy]
    }
    for knob, fields in _COMPOSITES.items():
        if all(candidate.get(field) is not None for field in fields):
            pinned[knob] = [{field: candidate[field] for field in fields}]
    if candidate.get("load_predictor") is not None:
        found = {field: candidate[field] for field in _PREDICTOR if candidate.get(field) is not None}
        pinned["load_predictor_candidates"] = [found]
    return pinned
