"""Branches on the installed performance database, estimator, planner and replay."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from branch_fakes import ALL_PAIRS

from spica.branches import BranchPlan, build_branches, predictor_settings
from spica.branches.space import bytes_text, rejected_shapes
from spica.config import SmartSearchConfig
from spica.deployment.sample import PredictorSettings
from spica.errors import ConfigError, NoPerfDatabase, NoViableParallelConfig
from spica.evaluate.planner_config import validate_planner_fields
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.replay import run_replay
from spica.planner.predictors import LOAD_PREDICTOR_PRESETS

pytestmark = pytest.mark.real

QWEN = {"model_name": "Qwen/Qwen3-32B", "hardware_sku": "h200_sxm", "gpu_budget": 8}
PLAIN = {"router_mode": ["round_robin"], "planner_scaling_policy": ["disabled"]}
CLOSED = {"isl": 3000, "osl": 300, "concurrency": 64, "num_request_ratio": 4}


def plan(
    space: Mapping[str, object],
    workload: Mapping[str, object] = CLOSED,
    goal: Mapping[str, object] | None = None,
) -> BranchPlan:
    blocks = {"search_space": {**PLAIN, **space}, "workload": dict(workload), "goal": dict(goal or {})}
    config = SmartSearchConfig.model_validate(blocks)
    return build_branches(config, runner_pairs=ALL_PAIRS, planner_validator=validate_planner_fields)


def test_dense_model_on_eight_gpus() -> None:
    found = plan({**QWEN, "deployment_mode": ["agg", "disagg"], "backend": ["vllm", "sglang", "trtllm"]})
    agg, disagg = found.branches
    assert agg.versions == {"vllm": "0.24.0", "sglang": "0.5.14", "trtllm": "1.3.0rc20"}
    # 8 + 4 + 2 + 1 replica counts of tp 1, 2, 4, 8.
    assert (len(agg.pool), len(agg.summaries)) == (15, 3)
    # Pairs of groups of tp 1, 2, 4 (and 8, which leaves nothing for the other role) with at most 8 GPUs.
    sizes = [g * r for g in (1, 2, 4, 8) for r in range(1, 8 // g + 1)]
    assert len(disagg.pool) == sum(a + b <= 8 for a in sizes for b in sizes)
    assert found.max_seq_len == 40_960


def test_a_pinned_candidate_is_measured_at_its_published_value() -> None:
    space = {"parallel_configs": [{"tp": 2, "replicas": 4}], "deployment_mode": ["agg"]}
    found = plan({**QWEN, **space, "agg_max_num_batched_tokens": [8192]})
    branch = found.branches[0]
    assert [d.name for d in branch.dimensions] == ["agg_max_num_seqs"]
    decoded = branch.decode({"agg_max_num_seqs": 1024.0})
    assert decoded.sample.engine("agg").max_num_seqs == 256
    result = run_replay(ReplayPlan(decoded.sample, branch.traffic(decoded.sample), found.planner_target))
    assert result.metrics is not None, result.reason
    assert result.metrics.summary["output_throughput_tok_s"] == pytest.approx(2746.464, abs=5e-4)
    assert result.metrics.summary["mean_ttft_ms"] == pytest.approx(769.723, abs=5e-4)


def test_kv_load_of_the_published_capacity() -> None:
    space = {"parallel_configs": [{"tp": 2, "replicas": 4}], "deployment_mode": ["agg"]}
    load = {"isl": 3000, "osl": 300, "kv_load_ratio": 0.5, "num_request_ratio": 2}
    found = plan({**QWEN, **space, "agg_max_num_batched_tokens": [8192], "agg_max_num_seqs": [256]}, load)
    sample = found.branches[0].decode({}).sample
    # 751,550 tokens per rank: 11,742 blocks of 64 on 4 replicas hold 3,005,952 tokens, 954 requests of 3,150.
    assert sample.kv_load is not None
    assert sample.kv_load.capacity_tokens == 3_005_952
    assert (sample.kv_load.concurrency_capacity, sample.concurrency) == (954, 477)


def test_moe_backends_that_hold_the_model_are_kept() -> None:
    space = {
        "model_name": "deepseek-ai/DeepSeek-V3",
        "hardware_sku": "gb200",
        "gpu_budget": 4,
        "deployment_mode": ["agg"],
        "context_length": 100_000,
        "agg_max_num_batched_tokens": [8192],
        "agg_max_num_seqs": [256],
    }
    found = plan({**space, "backend": ["vllm", "sglang", "trtllm"]})
    branch = found.branches[0]
    # sglang has room in TEP only (150,274 tokens), trtllm in TEP and pure TP (350,938 and 278,741).
    assert {s.backend: s.configs for s in branch.summaries} == {"sglang": 1, "trtllm": 2}
    (drop,) = (d for d in found.dropped if d.kind == "backend")
    assert drop.what == "vllm for agg"
    # Where the memory of each shape goes is known for a backend that was dropped, too.
    shapes = {
        str(shape.shape): bytes_text(shape) for where, shape in rejected_shapes(found) if where == "agg vllm"
    }
    assert "weights" in shapes["tp4-ep4"]
    assert "GPU 185.0 GiB" in shapes["tp4-ep4"]
    with pytest.raises(NoViableParallelConfig) as caught:
        plan({**space, "backend": ["vllm"]})
    assert caught.value.min_gpus == 8


def test_a_shape_that_cannot_shard_quantized_experts_keeps_its_reason() -> None:
    space = {"model_name": "MiniMaxAI/MiniMax-M2.5", "hardware_sku": "h200_sxm", "gpu_budget": 8}
    (summary,) = plan({**space, "deployment_mode": ["agg"]}).branches[0].summaries
    (gone,) = (r for r in summary.rejected if r.shape.moe_tp == 8 and r.shape.tp == 8)
    assert "Invalid quantized MoE configuration" in gone.reason
    assert summary.configs > 0


def test_an_unknown_model_or_sku_is_one_error() -> None:
    with pytest.raises(NoPerfDatabase, match="h100_sxm"):
        plan({**QWEN, "hardware_sku": "H100-SXM5-80GB"})
    with pytest.raises(NoPerfDatabase, match="Qwen/Qwen3-32B"):
        plan({**QWEN, "model_name": "Qwen/Qwen3-32"})


def test_the_models_own_maximum_bounds_the_request() -> None:
    with pytest.raises(ConfigError, match="40960"):
        plan(QWEN, {**CLOSED, "isl": 40_900})


def test_custom_planner_dicts_pass_the_planner() -> None:
    policy = {
        "enable_throughput_scaling": False,
        "enable_load_scaling": True,
        "throughput_adjustment_interval_seconds": 240,
        "load_adjustment_interval_seconds": 7,
    }
    shrink = {"load_scaling_down_sensitivity": 33, "load_min_observations": 4}
    space = {"planner_scaling_policy": [policy], "planner_load_sensitivity": [shrink]}
    branch = plan({**QWEN, **space, "deployment_mode": ["agg"]}).branches[0]
    scaling = branch.decode(branch.centre).sample.planner.scaling
    assert scaling is not None
    assert (scaling.load_adjustment_interval_seconds, scaling.load_scaling_down_sensitivity) == (7, 33)


def test_predictors_of_the_sub_sweep_become_settings() -> None:
    kalman = predictor_settings(LOAD_PREDICTOR_PRESETS["kalman_reactive_log1p"])
    assert kalman == PredictorSettings(
        "kalman", True, kalman_q_level=10.0, kalman_q_trend=1.0, kalman_r=5.0, kalman_min_points=3
    )
    assert predictor_settings(LOAD_PREDICTOR_PRESETS["arima_raw"]) == PredictorSettings("arima")
