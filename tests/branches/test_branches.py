"""What is searched, and what is left out and why."""

from __future__ import annotations

from typing import Any

import pytest
from branch_fakes import ALL_PAIRS, CONTEXT, Fake, config, plan

from spica.branches import Branch, BranchPlan, Dropped, build_branches, kept_policies
from spica.branches.backend_pool import BackendFacts, PoolRequest
from spica.deployment.sample import PlannerSettings, PredictorSettings
from spica.errors import ConfigError, NoPerfDatabase, NoViableParallelConfig, PinError, StackError
from spica.planner.presets import PlannerTarget

PARETO = {"target": "pareto"}
GOODPUT = {"target": "goodput", "sla": {"ttft_ms": 500, "itl_ms": 50}}
ROUTER = ["overlap_score_credit", "prefill_load_scale", "router_temperature"]
WEIGHTS = ["host_cache_hit_weight", "disk_cache_hit_weight"]
OFFLOAD = {"num_g2_blocks": 10, "kv_bytes_per_token": 1024}


def names(branch: Branch) -> list[str]:
    return [d.name for d in branch.dimensions]


def dropped(found: BranchPlan, kind: str) -> list[str]:
    return [d.what for d in found.dropped if d.kind == kind]


def test_one_branch_per_mode_in_the_order_of_the_configuration() -> None:
    for modes in (["disagg", "agg"], ["agg", "disagg"]):
        found = plan(config({"deployment_mode": modes}))
        assert [b.mode for b in found.branches] == modes


def test_only_what_can_act_is_a_dimension() -> None:
    branch = plan(config()).branches[0]
    assert names(branch) == [
        "used_gpu_ratio",
        "agg_num_gpus_per_engine_target",
        "agg_max_num_batched_tokens",
        "agg_max_num_seqs",
    ]
    disagg = plan(config({"deployment_mode": ["disagg"]})).branches[0]
    assert [n for n in names(disagg) if "max_num" in n] == [
        "prefill_max_num_batched_tokens",
        "prefill_max_num_seqs",
        "decode_max_num_seqs",  # decode_max_num_batched_tokens has one choice
    ]


def test_single_values_are_constants() -> None:
    space = {"parallel_configs": [{"tp": 2}], "agg_max_num_batched_tokens": [8192], "agg_max_num_seqs": [512]}
    branch = plan(config(space)).branches[0]
    assert branch.dimensions == ()
    sample = branch.decode({}).sample
    assert sample.parallel.groups[0][1].shape.tp == 2
    # 512 sequences are more than the 64 in flight, but the menu has no other choice.
    assert sample.engine("agg").max_num_seqs == 512


@pytest.mark.parametrize(
    ("space", "present", "dead"),
    [
        ({"router_mode": ["round_robin"]}, [], ROUTER + WEIGHTS),
        ({"router_mode": ["kv_router"]}, ROUTER, WEIGHTS),
        ({"router_mode": ["kv_router", "round_robin"]}, ["router_mode", *ROUTER], WEIGHTS),
        ({"router_mode": ["round_robin", "kv_router"], **OFFLOAD}, ["router_mode", *ROUTER, *WEIGHTS], []),
        ({"router_mode": ["kv_router"], "router_temperature": [0.5]}, ROUTER[:2], WEIGHTS),
        ({"router_mode": ["round_robin"], "router_temperature": [0.5]}, [], ROUTER[:2] + WEIGHTS),
    ],
)
def test_router_knobs(space: dict[str, Any], present: list[str], dead: list[str]) -> None:
    found = plan(config(space))
    assert [n for n in names(found.branches[0]) if n in ["router_mode", *ROUTER, *WEIGHTS]] == present
    assert [w for w in dropped(found, "knob") if w in ROUTER + WEIGHTS] == dead


PLANNER = ["planner_scaling_policy", "planner_fpm_sampling", "planner_load_sensitivity"]


@pytest.mark.parametrize(
    ("policies", "present"),
    [
        (["disabled"], []),
        (["disabled", "load_180_5"], PLANNER),
        (["load_180_5"], PLANNER[1:]),
        (["disabled", "throughput_180_5"], []),  # the latter needs an SLA and is dropped first
    ],
)
def test_planner_knobs_are_dead_when_nothing_scales(policies: list[str], present: list[str]) -> None:
    found = plan(config({"planner_scaling_policy": policies}))
    assert [n for n in names(found.branches[0]) if n in PLANNER] == present
    assert dropped(found, "knob")[-2:] == (PLANNER[1:] if not present else WEIGHTS)


def test_both_loops_off_in_a_dict_is_static() -> None:
    off = {
        "enable_throughput_scaling": False,
        "enable_load_scaling": False,
        "throughput_adjustment_interval_seconds": 60,
        "load_adjustment_interval_seconds": 5,
    }
    found = plan(config({"planner_scaling_policy": ["disabled", off]}))
    assert [n for n in names(found.branches[0]) if n in PLANNER] == PLANNER[:1]


def test_policies_follow_the_goal() -> None:
    every = {"planner_scaling_policy": ["disabled", "throughput_180_5", "load_180_5", "hybrid_600_5"]}
    plain = kept_policies(config(every))
    assert [p.name for p in plain.composites.policies] == ["disabled", "load_180_5"]
    assert [d.what for d in plain.dropped] == ["throughput_180_5", "hybrid_600_5"]
    assert plain.throughput_intervals == ()
    sla = kept_policies(config(every, goal=GOODPUT))
    assert len(sla.composites.policies) == 4
    assert sla.throughput_intervals == (180, 600)
    e2e = kept_policies(config(every, goal={"target": "goodput", "sla": {"e2e_ms": 9000}}))
    assert [p.name for p in e2e.composites.policies] == ["disabled"]
    with pytest.raises(ConfigError, match="no policy is left"):
        kept_policies(config({"planner_scaling_policy": ["throughput_180_5"]}))


def test_the_pool_is_the_union_over_backends() -> None:
    # sglang has room from 4 GPUs on: of the dense shapes tp 1, 2, 4, 8 it keeps the last two.
    found = plan(config({"backend": ["vllm", "sglang"]}), Fake(tight={"sglang": 4}))
    branch = found.branches[0]
    # vllm: 8 + 4 + 2 + 1 configs; sglang: 2 + 1, all of them among vllm's.
    assert (len(branch.pool), [s.configs for s in branch.summaries]) == (15, [15, 3])
    assert names(branch)[0] == "backend"
    assert {c.groups[0][1].shape.tp for c in branch.pool.for_backend("sglang")} == {4, 8}
    assert [str(r.shape) for r in branch.summaries[1].rejected] == ["tp1", "tp2"]
    small = {"used_gpu_ratio": 0.125, "agg_num_gpus_per_engine_target": 1.0}
    rest = {"agg_max_num_batched_tokens": 8192.0, "agg_max_num_seqs": 256.0}
    on_vllm = branch.decode({"backend": "vllm", **small, **rest}).sample
    on_sglang = branch.decode({"backend": "sglang", **small, **rest}).sample
    assert str(on_vllm.parallel) == "1x(tp1)"
    assert str(on_sglang.parallel) == "1x(tp4)"


def test_a_pair_the_runner_cannot_replay_is_dropped_and_the_other_mode_stays() -> None:
    cfg = config({"backend": ["trtllm"], "deployment_mode": ["disagg", "agg"]})
    found = plan(cfg, pairs=ALL_PAIRS - {("trtllm", "disagg")})
    assert [b.mode for b in found.branches] == ["agg"]
    reason = "the installed runner cannot replay trtllm in disagg mode"
    assert Dropped("pair", "trtllm disagg", reason) in found.dropped
    assert dropped(found, "mode") == ["disagg"]
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith("deployment mode disagg is skipped")
    assert reason in found.warnings[0]


def test_a_backend_without_data_is_dropped_with_its_reason() -> None:
    found = plan(config({"backend": ["vllm", "trtllm"]}), Fake(no_data=("trtllm",)))
    assert found.branches[0].backends == ("vllm",)
    assert Dropped("backend", "trtllm for agg", "no performance data for trtllm on sku") in found.dropped
    assert found.warnings == ()


def test_a_backend_without_a_viable_config_is_dropped_with_its_reason() -> None:
    found = plan(config({"backend": ["vllm", "sglang"]}), Fake(tight={"sglang": 16}))
    assert found.branches[0].backends == ("vllm",)
    (drop,) = (d for d in found.dropped if d.kind == "backend")
    assert drop.what == "sglang for agg"
    assert "within 8 GPUs" in drop.reason
    (pool,) = found.rejected
    assert (pool.mode, pool.backend) == ("agg", "sglang")
    assert [r.shape.tp for r in pool.rejected] == [1, 2, 4, 8]
    assert all(r.verdict is not None and "weights do not fit" in r.reason for r in pool.rejected)


def test_nothing_viable_names_the_fewest_gpus_when_the_budget_is_the_cause() -> None:
    cfg = config({"backend": ["vllm", "sglang"], "deployment_mode": ["disagg", "agg"], "gpu_budget": 2})
    with pytest.raises(NoViableParallelConfig) as caught:
        plan(cfg, Fake(tight={"vllm": 4, "sglang": 8}))
    assert caught.value.min_gpus == 4  # one aggregated worker of 4 GPUs on vllm
    assert "sglang for disagg" in str(caught.value)


def test_nothing_viable_at_any_size_collects_the_reasons() -> None:
    with pytest.raises(NoViableParallelConfig) as caught:
        plan(config({"backend": ["vllm", "trtllm"]}), Fake(tight={"vllm": 99}, no_data=("trtllm",)))
    assert caught.value.min_gpus is None
    assert "the weights do not fit" in str(caught.value)
    assert "no performance data for trtllm" in str(caught.value)


def test_no_data_for_any_backend_is_a_missing_database() -> None:
    cfg = config({"backend": ["vllm", "trtllm"], "deployment_mode": ["disagg", "agg"]})
    with pytest.raises(NoPerfDatabase) as caught:
        plan(cfg, Fake(no_data=("vllm", "trtllm")))
    assert len(caught.value.problems) == 2


def test_no_pair_can_be_replayed() -> None:
    with pytest.raises(NoViableParallelConfig, match="cannot replay vllm in agg mode"):
        plan(config(), pairs=[])


def test_a_pin_stays_on_the_backends_that_can_run_it() -> None:
    space = {"backend": ["vllm", "sglang"], "parallel_configs": [{"tp": 2}, {"tp": 4, "replicas": 2}]}
    found = plan(config(space), Fake(tight={"sglang": 4}))
    branch = found.branches[0]
    assert [s.configs for s in branch.summaries] == [2, 1]
    gone = plan(config(space | {"parallel_configs": [{"tp": 2}]}), Fake(tight={"sglang": 4}))
    assert gone.branches[0].backends == ("vllm",)
    (drop,) = (d for d in gone.dropped if d.kind == "backend")
    assert drop == Dropped("backend", "sglang for agg", "agg tp2: no KV budget: the weights do not fit")
    assert gone.rejected[0].backend == "sglang"


def test_a_pin_legal_nowhere_is_an_error_that_names_it() -> None:
    space = {"backend": ["vllm", "sglang"], "parallel_configs": [{"tp": 2}, {"tp": 3}]}
    with pytest.raises(PinError, match=r"parallel_configs\[1\]"):
        plan(config(space))


def test_lengths_beyond_the_context_are_refused() -> None:
    with pytest.raises(ConfigError, match=f"search_space.context_length: {CONTEXT + 1} tokens is more than"):
        plan(config({"context_length": CONTEXT + 1}))
    long = {"isl": CONTEXT - 99, "osl": 100, "concurrency": 1}
    with pytest.raises(ConfigError, match=r"workload.isl: a request has .* = 40001 tokens"):
        plan(config(workload=long))
    assert plan(config(workload=long | {"osl": 99})).max_seq_len == CONTEXT


def test_without_an_estimator_shapes_are_not_filtered_and_kv_load_is_refused_first() -> None:
    fake = Fake(has_estimator=False, tight={"vllm": 16})
    found = plan(config(), fake)
    assert len(found.branches[0].pool) == 15
    assert "memory estimator cannot be imported" in found.warnings[0]
    assert found.branches[0].decode(found.branches[0].centre).feasible
    assert fake.asked == 0

    class Watched(Fake):
        def facts(self, request: PoolRequest) -> BackendFacts:
            raise AssertionError("enumeration started")

    with pytest.raises(StackError, match="kv_load_ratio"):
        plan(config(workload={"kv_load_ratio": 0.5}), Watched(has_estimator=False))


def test_the_planner_is_asked_about_custom_dicts_only() -> None:
    custom = {"max_num_fpm_samples": 10, "fpm_sample_bucket_size": 9}
    space = {"planner_scaling_policy": ["load_180_5"], "planner_fpm_sampling": ["small", custom]}
    asked: list[tuple[int, int, str]] = []

    def validator(planner: PlannerSettings, target: PlannerTarget) -> str:
        assert planner.scaling is not None
        asked.append((planner.scaling.max_num_fpm_samples, planner.scaling.fpm_sample_bucket_size, target))
        return "too few samples"

    cfg = config(space, goal={"target": "e2e_latency"})
    with pytest.raises(ConfigError, match=r"planner_fpm_sampling\[1\].*too few samples"):
        build_branches(cfg, runner_pairs=ALL_PAIRS, components=Fake().components, planner_validator=validator)
    assert asked == [(10, 9, "latency")]


def test_predictors_are_looked_up_by_the_throughput_interval() -> None:
    space = {"planner_scaling_policy": ["disabled", "throughput_180_5", "throughput_600_5", "load_180_5"]}
    kalman = PredictorSettings(
        "kalman", kalman_q_level=1.0, kalman_q_trend=0.1, kalman_r=1.0, kalman_min_points=5
    )
    found = build_branches(
        config(space, goal=GOODPUT),
        runner_pairs=ALL_PAIRS,
        predictor_winners={180: kalman},
        components=Fake().components,
    )
    branch = found.branches[0]

    def predictor(policy: str) -> PredictorSettings | None:
        scaling = branch.decode(branch.centre | {"planner_scaling_policy": policy}).sample.planner.scaling
        return scaling.predictor if scaling else None

    assert predictor("throughput_180_5") == kalman
    assert predictor("throughput_600_5") == PredictorSettings("constant")
    assert predictor("load_180_5") is None
    assert predictor("disabled") is None
    assert found.planner_target == "sla"


def test_one_gpu_workers_of_a_mixture_of_experts_are_named_as_left_to_pins() -> None:
    said = [d for d in plan(config(), Fake(moe=True)).dropped if d.kind == "shape"]
    assert [d.what for d in said] == ["one-GPU worker (tp 1)"]
    assert "parallel_configs" in said[0].reason
    pinned = config({"deployment_mode": ["agg"], "parallel_configs": [{"tp": 1}]})
    for cfg, fake in ((config(), Fake(moe=False)), (pinned, Fake(moe=True))):
        assert not [d for d in plan(cfg, fake).dropped if d.kind == "shape"]


def test_a_setting_the_replay_has_no_place_for_is_said() -> None:
    space = {"num_g2_blocks": 1000, "kv_bytes_per_token": 1024, "offload_batch_size": 8}
    assert any("offload_batch_size 8" in warning for warning in plan(config(space)).warnings)
    assert not any("offload" in warning for warning in plan(config()).warnings)
