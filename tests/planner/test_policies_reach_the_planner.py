"""From the configuration file to the planner's own object: every preset and a dict, with every field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spica.config.load import config_from_mapping
from spica.evaluate.planner_config import planner_config
from spica.sweep.prepare import prepare
from spica.trial import Sla

pytestmark = pytest.mark.real

OWN: dict[str, object] = {
    "enable_throughput_scaling": True,
    "enable_load_scaling": True,
    "throughput_adjustment_interval_seconds": 90,
    "load_adjustment_interval_seconds": 15,
}
# throughput scaling, load scaling, throughput interval, load interval: the table of the reference
POLICIES: dict[str, tuple[object, tuple[bool, bool, int, int]]] = {
    "throughput_180_5": ("throughput_180_5", (True, False, 180, 5)),
    "throughput_600_5": ("throughput_600_5", (True, False, 600, 5)),
    "load_180_5": ("load_180_5", (False, True, 180, 5)),
    "load_180_10": ("load_180_10", (False, True, 180, 10)),
    "hybrid_180_5": ("hybrid_180_5", (True, True, 180, 5)),
    "hybrid_600_5": ("hybrid_600_5", (True, True, 600, 5)),
    "own": (OWN, (True, True, 90, 15)),
}
PINS: dict[str, dict[str, object]] = {
    "agg": {"tp": 2, "replicas": 2},
    "disagg": {"prefill": {"tp": 1, "replicas": 2}, "decode": {"tp": 4}},
}


def _fields(policy: object, mode: str) -> dict[str, Any] | None:
    space = {
        "model_name": "Qwen/Qwen3-32B",
        "hardware_sku": "h200_sxm",
        "gpu_budget": 8,
        "min_gpu_budget": 4,
        "min_endpoint": 1,
        "deployment_mode": [mode],
        "backend": ["vllm"],
        "parallel_configs": [PINS[mode]],
        "router_mode": ["round_robin"],
        "planner_scaling_policy": [policy],
        "planner_fpm_sampling": ["fine"],
        "planner_load_sensitivity": [
            {"load_scaling_down_sensitivity": 65, "load_min_observations": 7},
        ],
        "startup_time": 12,
    } | {f"{role}_max_num_batched_tokens": [8192] for role in ("agg", "prefill", "decode")}
    space |= {f"{role}_max_num_seqs": [n] for role, n in (("agg", 256), ("prefill", 16), ("decode", 256))}
    workload = {"isl": 2000, "osl": 200, "request_rate": 4, "num_request_ratio": 10}
    goal = {"target": "goodput", "sla": {"ttft_ms": 1500, "itl_ms": 25}}
    prepared = prepare(config_from_mapping({"search_space": space, "workload": workload, "goal": goal}))
    (branch,) = prepared.plan.branches
    decoded = branch.decode({})
    assert decoded.feasible, decoded.reason
    return planner_config(decoded.sample, prepared.plan.planner_target, Sla(1500.0, 25.0))


@pytest.mark.parametrize("mode", ["agg", "disagg"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_field_of_a_policy_reaches_the_planner(policy: str, mode: str) -> None:
    from dynamo.planner.config.planner_config import PlannerConfig

    entry, (throughput, load, long, short) = POLICIES[policy]
    fields = _fields(entry, mode)
    planner = PlannerConfig.from_config_arg(json.dumps(fields))
    assert (planner.enable_throughput_scaling, planner.enable_load_scaling) == (throughput, load)
    assert (planner.throughput_adjustment_interval_seconds, planner.load_adjustment_interval_seconds) == (
        long,
        short,
    )
    assert (planner.max_num_fpm_samples, planner.fpm_sample_bucket_size) == (128, 64)
    assert (planner.load_scaling_down_sensitivity, planner.load_min_observations) == (65, 7)
    assert (planner.max_gpu_budget, planner.min_gpu_budget, planner.min_endpoint) == (8, 4, 1)
    assert (planner.mode, planner.backend, planner.optimization_target) == (mode, "vllm", "sla")
    assert (planner.ttft_ms, planner.itl_ms) == (1500.0, 25.0)
    gpus = (planner.prefill_engine_num_gpu, planner.decode_engine_num_gpu)
    assert gpus == ((None, 2) if mode == "agg" else (1, 4))
    # Static traffic has nothing to forecast: the last value is taken, for predictive scaling only.
    assert fields is not None
    assert fields.get("load_predictor") == ("constant" if throughput else None)


@pytest.mark.parametrize("mode", ["agg", "disagg"])
def test_the_seventh_preset_has_no_planner(mode: str) -> None:
    assert _fields("disabled", mode) is None
