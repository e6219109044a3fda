"""What suggestions stand for: always legal, every candidate reachable, equal exactly when the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from branch_fakes import Fake, all_points, config, plan
from hypothesis import given, settings
from hypothesis import strategies as st

from spica.branches import Branch
from spica.config import SmartSearchConfig
from spica.goals.score import Scoring
from spica.optimize.protocol import FloatParameter, Value
from spica.sweep.inputs import study_of
from spica.sweep.prepare import scoring_of_goal

OFFLOAD = {"num_g2_blocks": 10, "kv_bytes_per_token": 1024}
SPACES = {
    "all knobs, two backends": (
        {
            "deployment_mode": ["disagg", "agg"],
            "backend": ["vllm", "sglang"],
            "gpu_budget": 16,
            "min_gpu_budget": 4,
            "router_mode": ["kv_router", "round_robin"],
            "planner_scaling_policy": ["disabled", "load_180_5", "load_180_10"],
        },
        None,
        None,
    ),
    "offload and a KV-load range": (
        {"deployment_mode": ["agg", "disagg"], "router_mode": ["kv_router"], **OFFLOAD},
        {"kv_load_ratio": [0.0, 1.5]},
        {"target": "pareto"},
    ),
    "a menu of pins": (
        {
            "deployment_mode": ["disagg"],
            "parallel_configs": [
                {"prefill": {"tp": 2, "moe_ep": 2}, "decode": {"tp": 1, "attention_dp": 4, "moe_ep": 4}},
                {"prefill": {"tp": 1}, "decode": {"tp": 2, "moe_tp": 2, "replicas": 2}},
            ],
        },
        None,
        None,
    ),
}


def point(branch: Branch, draw: Callable[..., Any]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for p in branch.parameters:
        if isinstance(p, FloatParameter):
            values[p.name] = draw(st.floats(p.low, p.high))
        else:
            values[p.name] = draw(st.sampled_from(p.choices))
    return values


BRANCHES = [
    (name, cfg, branch)
    for name, blocks in SPACES.items()
    for cfg in [config(*blocks)]
    for branch in plan(cfg, Fake(moe=True, tight={"sglang": 2})).branches
]


@pytest.mark.parametrize(("name", "cfg", "branch"), BRANCHES, ids=[f"{n}: {b.mode}" for n, _, b in BRANCHES])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_suggestion_is_legal_and_inside_the_menus(
    name: str, cfg: SmartSearchConfig, branch: Branch, data: st.DataObject
) -> None:
    space = cfg.search_space
    values = point(branch, data.draw)
    decoded = branch.decode(values)
    for sample in (decoded.sample, decoded.requested):
        assert sample.parallel in branch.pool.for_backend(sample.backend)
        assert (space.min_gpu_budget or 1) <= sample.used_gpus <= space.gpu_budget
        assert [role for role, _ in sample.engines] == [role for role, _ in sample.parallel.groups]
        for role, engine in sample.engines:
            assert engine.max_num_seqs in getattr(space, f"{role}_max_num_seqs")
            assert engine.max_num_batched_tokens in getattr(space, f"{role}_max_num_batched_tokens")
            assert not (role == "decode" and engine.enable_prefix_caching)
        assert sample.router_mode in space.router_mode
        assert (sample.router is not None) == (sample.router_mode == "kv_router")
        if sample.router is not None:
            assert sample.router.overlap_score_credit in space.value("overlap_score_credit")
            assert (sample.router.host_cache_hit_weight is not None) == (space.num_g2_blocks > 0)
        assert (sample.planner.scaling is not None) == (sample.planner.policy != "disabled")
    assert decoded.feasible == (decoded.reason == "")
    assert branch.identity(values) == decoded.key
    assert branch.gpus(values) == decoded.sample.used_gpus


@pytest.mark.parametrize(("name", "cfg", "branch"), BRANCHES, ids=[f"{n}: {b.mode}" for n, _, b in BRANCHES])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_canonical_point_stands_for_the_same_candidate(
    name: str, cfg: SmartSearchConfig, branch: Branch, data: st.DataObject
) -> None:
    values = point(branch, data.draw)
    canonical = branch.canonical(values)
    assert set(canonical) == {p.name for p in branch.parameters}
    for p in branch.parameters:
        if isinstance(p, FloatParameter):
            assert p.low <= float(canonical[p.name]) <= p.high
        else:
            assert canonical[p.name] in p.choices
    assert branch.identity(canonical) == branch.identity(values)
    assert branch.canonical(canonical) == canonical


@pytest.mark.parametrize(
    ("space", "workload", "offered"),
    [
        ({}, {"request_rate": 5}, True),
        ({}, {"concurrency": 64}, False),
        ({}, {"kv_load_ratio": [0.0, 1.0]}, False),
        ({"planner_scaling_policy": ["disabled", "load_180_5"]}, {"request_rate": 5}, False),
    ],
)
def test_a_load_is_offered_when_requests_do_not_wait_and_nothing_scales(
    space: dict[str, object], workload: dict[str, object], offered: bool
) -> None:
    goals: list[dict[str, object]] = [
        {"target": "goodput_per_gpu", "sla": {"ttft_ms": 500, "itl_ms": 30}},
        {"target": "throughput_per_gpu"},
    ]
    if "kv_load_ratio" in workload:
        goals = [{"target": "pareto"}]
    for goal in goals:
        made = plan(config(space, workload, goal))
        for branch in made.branches:
            assert branch.offered_load is offered
            study = study_of(branch, scoring_of_goal(config(space, workload, goal)), 0)
            assert (study.divisor is not None) is offered
    if offered:
        whole = plan(config(space, workload, {"target": "throughput"})).branches[0]
        assert study_of(whole, Scoring("throughput"), 0).divisor is None


def test_count_of_candidates_by_brute_force() -> None:
    """15 dense configs on 8 GPUs x 3 token budgets; of 256, 512, 1024 sequences only one acts at 64 in
    flight."""
    branch = plan(config()).branches[0]
    points = list(all_points(branch, floats=41))
    assert len(points) == 41 * 4 * 3 * 3
    decoded = [branch.decode(p) for p in points]
    assert {d.sample.parallel for d in decoded} == set(branch.pool.configs)
    assert len({d.key for d in decoded}) == 15 * 3
    assert len({d.requested.key() for d in decoded}) == 15 * 3 * 3


def test_count_of_candidates_with_more_in_flight_than_sequences() -> None:
    branch = plan(config(workload={"concurrency": 600})).branches[0]
    keys = {branch.identity(p) for p in all_points(branch, floats=41)}
    # 600 in flight: 256 and 512 bind, 1024 does not and has no smaller stand-in.
    assert len(keys) == 15 * 3 * 3


def test_count_of_candidates_with_a_router() -> None:
    """One pinned worker pair: 4 replicas tell routers apart, 1 + 1 workers do not."""
    space = {
        "deployment_mode": ["agg"],
        "agg_max_num_batched_tokens": [8192],
        "router_mode": ["kv_router", "round_robin"],
        "parallel_configs": [{"tp": 2, "replicas": 4}],
    }
    keys = {branch.identity(p) for branch in plan(config(space)).branches for p in all_points(branch)}
    assert len(keys) == 1 + 3 * 9 * 4
    space["parallel_configs"] = [{"tp": 2}]
    keys = {branch.identity(p) for branch in plan(config(space)).branches for p in all_points(branch)}
    assert len(keys) == 1


def test_only_active_settings_are_in_the_flat_form() -> None:
    space = {
        "router_mode": ["kv_router", "round_robin"],
        "planner_scaling_policy": ["disabled", "load_180_5"],
    }
    branch = plan(config(space)).branches[0]
    on = branch.decode(branch.centre | {"planner_scaling_policy": "load_180_5"}).sample.config()
    off = branch.decode(branch.centre | {"router_mode": "round_robin"}).sample.config()
    assert set(on) - set(off) == {
        "overlap_score_credit",
        "prefill_load_scale",
        "router_temperature",
        "throughput_adjustment_interval_seconds",
        "load_adjustment_interval_seconds",
        "max_num_fpm_samples",
        "fpm_sample_bucket_size",
        "load_scaling_down_sensitivity",
        "load_min_observations",
    }
    assert off["concurrency"] == 64


def test_settings_that_leave_no_room_are_infeasible_with_the_numbers() -> None:
    # tp 1 holds 50,000 tokens less the batched ones: 41,808 with 8192, 17,232 with 32768; the context is
    # 40,000.
    space = {"agg_max_num_seqs": [256], "parallel_configs": [{"tp": 1}]}
    branch = plan(config(space), Fake(tokens_cost=1.0)).branches[0]
    assert branch.decode({"agg_max_num_batched_tokens": 8192.0}).feasible
    reason = branch.decode({"agg_max_num_batched_tokens": 32768.0}).reason
    assert "agg_max_num_batched_tokens 32768" in reason
    assert "17,232 tokens per rank" in reason
    assert "40,000" in reason


def test_capacities_are_asked_for_once_and_not_for_every_batch_size() -> None:
    fake = Fake()
    branch = plan(config({"parallel_configs": [{"tp": 1}, {"tp": 2}]}), fake).branches[0]
    before = fake.asked
    for values in all_points(branch):
        branch.decode(values)
    # 2 shapes x 3 token budgets x the ends of the menu of sequences.
    assert fake.asked - before == 2 * 3 * 2


def test_values_outside_the_space_are_refused() -> None:
    branch = plan(config({"backend": ["vllm", "sglang"]})).branches[0]
    for wrong in ({"agg_max_num_seqs": 100.0}, {"backend": "trtllm"}):
        with pytest.raises(ValueError, match="is not one of"):
            branch.decode(branch.centre | wrong)
    with pytest.raises(ValueError, match="agg_max_num_seqs"):
        branch.decode({k: v for k, v in branch.centre.items() if k != "agg_max_num_seqs"})


def test_defaults_of_the_dimensions() -> None:
    space = {"deployment_mode": ["disagg"], "router_mode": ["kv_router", "round_robin"]}
    centre = plan(config(space)).branches[0].centre
    # sqrt(1 * 256) = 16, sqrt(256 * 1024) = 512, sqrt(8192 * 32768) = 16384; the router's own where listed.
    expected = {
        "prefill_max_num_seqs": 16.0,
        "decode_max_num_seqs": 512.0,
        "prefill_max_num_batched_tokens": 16384.0,
        "router_mode": "kv_router",
        "overlap_score_credit": 1.0,
        "prefill_load_scale": 1.0,
        "router_temperature": 0.0,
    }
    assert {name: centre[name] for name in expected} == expected


def test_a_trace_branch_decodes_without_its_trace_but_gives_no_traffic() -> None:
    branch = plan(config(workload={"trace_path": "t.jsonl"})).branches[0]
    decoded = branch.decode(branch.centre)
    assert decoded.rules == ()
    with pytest.raises(ValueError, match="without the trace"):
        branch.traffic(decoded.sample)
