"""The four blocks as Python values: what they decode to, derive and refuse."""

from __future__ import annotations

import os
import warnings

import pytest
from pydantic import ValidationError

from spica.config import (
    ConfigWarning,
    Goal,
    OptimizationTarget,
    SearchSpace,
    SlaTargets,
    SmartSearchConfig,
    SweepOptions,
    Workload,
    WorkloadShape,
)
from spica.config.load import config_from_mapping
from spica.deployment.shapes import AggConfig, DisaggConfig, ParallelShape, WorkerGroup
from spica.errors import ConfigError
from spica.planner.presets import SCALING_POLICIES

SPACE = {"model_name": "Qwen/Qwen3-32B", "hardware_sku": "h200_sxm"}
SYNTHETIC = {"isl": 3000, "osl": 300, "num_request_ratio": 4}
LOAD = {**SYNTHETIC, "concurrency": 64}


def config(**blocks: object) -> SmartSearchConfig:
    return config_from_mapping({"search_space": SPACE, "workload": LOAD, **blocks})


def keys(error: ConfigError) -> list[str]:
    return [problem.key for problem in error.problems]


def test_a_minimal_configuration_has_the_defaults() -> None:
    c = config()
    assert c.goal.target is OptimizationTarget.THROUGHPUT
    assert c.search_space.gpu_budget == 32
    assert c.search_space.deployment_mode == ("disagg", "agg")
    assert c.search_space.planner_scaling_policy == tuple(SCALING_POLICIES.values())
    assert len(c.search_space.load_predictor_candidates) == 11
    assert (c.sweep.max_rounds, c.sweep.random_seed, c.sweep.max_eval_seconds) == (20, 1, 600.0)
    assert c.sweep.confirm is None


def test_blocks_are_frozen() -> None:
    c = config()
    with pytest.raises(ValidationError):
        c.search_space.gpu_budget = 3
    with pytest.raises(ValidationError):
        c.goal = Goal()  # type: ignore[misc]


def test_blocks_may_be_given_as_models() -> None:
    space, load = SearchSpace.model_validate(SPACE), Workload.model_validate(LOAD)
    direct = SmartSearchConfig(search_space=space, workload=load, goal=Goal(), sweep=SweepOptions())
    assert direct == config()


def test_a_block_alone_raises_config_errors_with_every_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        SearchSpace(model_name="m", gpu_budget=True, backend="vllm")  # type: ignore[call-arg]
    found = ["search_space.backend", "search_space.hardware_sku", "search_space.gpu_budget"]
    assert sorted(keys(caught.value)) == sorted(found)


def test_problems_of_all_blocks_and_between_them_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        config(
            search_space={**SPACE, "gpu_budge": 3, "context_length": 100},
            goal={"target": "goodput"},
            sweep={"max_rounds": 0},
        )
    assert keys(caught.value) == [
        "search_space.gpu_budge",
        "goal.sla",
        "sweep.max_rounds",
        "workload.isl",
    ]


def test_a_rule_is_not_told_on_a_field_that_is_already_wrong() -> None:
    with pytest.raises(ConfigError) as caught:
        config(search_space={**SPACE, "gpu_budget": "many", "min_gpu_budget": 64})
    assert keys(caught.value) == ["search_space.gpu_budget"]


def test_duplicates_are_dropped_in_order_with_a_warning() -> None:
    with pytest.warns(ConfigWarning, match="listed twice") as caught:
        c = config(
            search_space={**SPACE, "agg_max_num_seqs": [512, 256, 512, 256], "router_temperature": [0, 0.0]}
        )
    assert c.search_space.value("agg_max_num_seqs") == (512, 256)
    assert c.search_space.value("router_temperature") == (0.0,)
    assert [str(w.message).split(":")[0] for w in caught] == [
        "search_space.agg_max_num_seqs[2]",
        "search_space.agg_max_num_seqs[3]",
        "search_space.router_temperature[1]",
    ]


def test_decode_prefix_caching_is_forced_off_with_a_warning() -> None:
    with pytest.warns(ConfigWarning, match="always off on decode workers"):
        c = config(search_space={**SPACE, "decode_enable_prefix_caching": True})
    assert c.search_space.value("decode_enable_prefix_caching") is False


def test_nothing_is_warned_about_without_cause() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config(search_space={**SPACE, "decode_enable_prefix_caching": False})


def test_pins_are_typed_and_default_to_one() -> None:
    agg = {**SPACE, "deployment_mode": ["agg"], "parallel_configs": [{"tp": 4, "moe_ep": 4, "replicas": 2}]}
    tep = ParallelShape(tp=4, moe_ep=4)
    assert config(search_space=agg).search_space.parallel_configs == (AggConfig(WorkerGroup(tep, 2)),)
    disagg = {
        **SPACE,
        "deployment_mode": ["disagg"],
        "parallel_configs": [
            {"prefill": {"tp": 8, "moe_ep": 8}, "decode": {"tp": 1, "attention_dp": 8, "moe_ep": 8}}
        ],
    }
    (pin,) = config(search_space=disagg).search_space.parallel_configs
    assert isinstance(pin, DisaggConfig)
    assert (pin.prefill.shape.strategy, pin.decode.shape.strategy, pin.used_gpus) == ("tep", "dep", 16)


@pytest.mark.parametrize(
    ("workload", "shape"),
    [
        ({"trace_path": "t.jsonl"}, WorkloadShape.TRACE),
        ({"trace_path": "t.jsonl", "replay_concurrency": 3}, WorkloadShape.TRACE_CAPPED),
        ({**SYNTHETIC, "request_rate": 3}, WorkloadShape.REQUEST_RATE),
        ({**SYNTHETIC, "concurrency": 3}, WorkloadShape.CONCURRENCY),
        ({**SYNTHETIC, "kv_load_ratio": 0.5}, WorkloadShape.KV_LOAD),
    ],
)
def test_the_load_shape_is_told_from_what_is_set(workload: dict[str, object], shape: WorkloadShape) -> None:
    c = config(workload=workload)
    assert c.workload.shape is shape
    assert c.workload.is_trace == shape.startswith("trace")
    assert c.workload.kv_load_range is None


def test_a_pareto_goal_without_a_load_searches_the_whole_kv_capacity() -> None:
    c = config(workload=SYNTHETIC, goal={"target": "pareto"})
    assert c.workload.kv_load_ratio == (0.0, 1.0)
    assert c.workload.kv_load_range == (0.0, 1.0)
    assert c.workload.shape is WorkloadShape.KV_LOAD


@pytest.mark.parametrize("load", [{"concurrency": 3}, {"request_rate": 3}, {"kv_load_ratio": 2}])
def test_a_pareto_goal_keeps_the_load_that_is_set(load: dict[str, object]) -> None:
    c = config(workload={**SYNTHETIC, **load}, goal={"target": "pareto"})
    assert {name: getattr(c.workload, name) for name in load} == load
    assert c.workload.kv_load_range is None


@pytest.mark.parametrize("fmt", ["mooncake", "azure", "burstgpt", "requests", "dynamo", "auto"])
def test_every_trace_format_is_taken(fmt: str) -> None:
    assert config(workload={"trace_path": "t", "trace_format": fmt}).workload.trace_format == fmt


def test_the_planner_target_follows_the_goal() -> None:
    targets = {target.value: target.planner_optimization_target for target in OptimizationTarget}
    assert targets == {
        "throughput": "throughput",
        "throughput_per_gpu": "throughput",
        "throughput_per_user": "throughput",
        "e2e_latency": "latency",
        "goodput": "sla",
        "goodput_per_gpu": "sla",
        "pareto": "throughput",
    }
    assert [t for t in OptimizationTarget if not t.maximize] == [OptimizationTarget.E2E_LATENCY]


def test_the_objectives_are_one_target_or_the_pareto_ones() -> None:
    assert Goal(target=OptimizationTarget.E2E_LATENCY).objectives == (OptimizationTarget.E2E_LATENCY,)
    assert Goal(target=OptimizationTarget.PARETO).objectives == (
        OptimizationTarget.THROUGHPUT_PER_GPU,
        OptimizationTarget.THROUGHPUT_PER_USER,
    )


@pytest.mark.parametrize(
    ("sla", "satisfying", "throughput", "load"),
    [
        ({"e2e_ms": 9000}, True, False, False),
        ({"ttft_ms": 500, "itl_ms": 50}, True, True, True),
        ({"ttft_ms": 500, "itl_ms": 50, "e2e_ms": 9000}, True, True, True),
        ({"e2e_ms": 9000, "itl_ms": 50}, True, False, False),
        ({"ttft_ms": 500}, False, False, False),
        ({"itl_ms": 50}, False, False, False),
        ({}, False, False, False),
    ],
)
def test_which_slas_satisfy_and_which_scaling_they_allow(
    sla: dict[str, float], satisfying: bool, throughput: bool, load: bool
) -> None:
    assert SlaTargets(**sla).satisfying == satisfying
    given = {"target": "goodput", "sla": sla}
    if not satisfying:
        with pytest.raises(ConfigError, match="not complete enough"):
            Goal.model_validate(given)
        return
    goal = Goal.model_validate(given)
    assert (goal.allows_throughput_scaling, goal.allows_load_scaling) == (throughput, load)


def test_other_goals_allow_load_scaling_alone() -> None:
    for target in ("throughput", "e2e_latency", "pareto"):
        goal = Goal.model_validate({"target": target})
        assert (goal.allows_throughput_scaling, goal.allows_load_scaling) == (False, True)


def test_the_numbers_of_a_sweep_are_resolved_for_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert SweepOptions().resolved_parallel_evals == 4
    assert SweepOptions().resolved_candidates_per_round == 4
    assert SweepOptions(parallel_evals=64).resolved_parallel_evals == 64
    assert SweepOptions(parallel_evals=3).resolved_candidates_per_round == 3
    assert SweepOptions(candidates_per_round=9).resolved_candidates_per_round == 9
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    assert SweepOptions().resolved_parallel_evals == 16


def test_no_cap_on_a_replay_is_null() -> None:
    assert config(sweep={"max_eval_seconds": None}).sweep.max_eval_seconds is None


def test_a_length_equal_to_the_context_fits() -> None:
    assert config(search_space={**SPACE, "context_length": 3300}).search_space.context_length == 3300


def test_admission_control_is_inert_under_round_robin() -> None:
    space = {**SPACE, "router_mode": ["round_robin"], "active_decode_blocks_threshold": 7}
    assert config(search_space=space).search_space.value("active_decode_blocks_threshold") == 7


@pytest.mark.parametrize("given", [None, 3, "text", [], ("a",)])
def test_what_is_not_a_mapping_is_no_configuration(given: object) -> None:
    with pytest.raises(ConfigError, match="is not a configuration"):
        config_from_mapping(given)  # type: ignore[arg-type]
