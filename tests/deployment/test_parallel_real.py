"""Pools of the installed performance database and memory estimator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spica.branches.backend_pool import (
    BackendPool,
    NoViableShape,
    PoolRequest,
    RoleLimits,
    backend_facts,
    parallel_configs_for,
)
from spica.branches.pins import pinned_pools
from spica.deployment.shapes import AggConfig, ParallelShape, WorkerGroup
from spica.errors import NoPerfDatabase, PinError

pytestmark = pytest.mark.real

AGG = (RoleLimits("agg", 8192, 256, 0.9),)
DEEPSEEK = PoolRequest("agg", "deepseek-ai/DeepSeek-V3", "gb200", "trtllm", 4, AGG)
MINIMAX = PoolRequest("agg", "MiniMaxAI/MiniMax-M2.5", "h200_sxm", "vllm", 8, AGG)


def kept_and_rejected(pool: BackendPool) -> tuple[list[str], dict[str, str]]:
    kept = sorted({str(group.shape) for config in pool.configs for _, group in config.groups})
    return kept, {str(r.shape): r.reason for r in pool.rejected}


def test_deepseek_on_one_gb200_node() -> None:
    kept, rejected = kept_and_rejected(parallel_configs_for(DEEPSEEK))
    # 350,938 and 278,741 tokens per rank, of which one sequence takes 163,840.
    assert kept == ["tp4-ep4", "tp4-moe_tp4"]
    assert rejected["tp1-dp4-ep4"].startswith("no KV budget")
    # 150,274 tokens do not hold the model's longest sequence, but do hold a shorter one.
    sglang = replace(DEEPSEEK, backend="sglang")
    with pytest.raises(NoViableShape) as caught:
        parallel_configs_for(sglang)
    assert caught.value.min_gpus == 8
    reasons = {str(r.shape): r.reason for r in caught.value.rejected}
    assert "150,274 tokens" in reasons["tp4-ep4"]
    kept, _ = kept_and_rejected(parallel_configs_for(replace(sglang, context_length=100_000)))
    assert kept == ["tp4-ep4"]


def test_deepseek_is_spread_wide_and_a_small_model_is_not() -> None:
    # 4 x 198,674,743,296 bytes are less than twice 671e9 FP8 parameters; 8 x 151e9 are more than twice 229e9.
    assert backend_facts(DEEPSEEK).wide_ep
    assert not backend_facts(MINIMAX).wide_ep
    rejected = kept_and_rejected(
        parallel_configs_for(replace(DEEPSEEK, backend="sglang", gpu_budget=8, context_length=4096))
    )[1]
    assert "wideEP" in rejected["tp8-moe_tp8"]


def test_experts_that_cannot_be_sharded_are_dropped_with_that_reason_and_the_others_stay() -> None:
    kept, rejected = kept_and_rejected(parallel_configs_for(MINIMAX))
    assert "Invalid quantized MoE configuration" in rejected["tp8-moe_tp8"]
    assert {"tp8-ep8", "tp4-moe_tp4", "tp1-dp8-ep8"} <= set(kept)
    assert "tp8-moe_tp8" not in kept


def test_a_shape_that_cannot_split_the_heads_is_dropped_and_the_others_stay() -> None:
    request = PoolRequest("agg", "Qwen/Qwen3.5-27B", "h200_sxm", "vllm", 16, AGG)
    kept, rejected = kept_and_rejected(parallel_configs_for(request))
    assert kept == ["tp1", "tp2", "tp4", "tp8"]
    assert rejected == {"tp16": "num_heads 24 should be divisible by tp_size 16"}


def test_the_fewest_gpus_for_a_large_dense_model() -> None:
    # 812 GB of weights: eight H200 hold 1,211 GB, four hold 606.
    request = PoolRequest("agg", "meta-llama/Meta-Llama-3.1-405B", "h200_sxm", "vllm", 4, AGG)
    with pytest.raises(NoViableShape) as caught:
        parallel_configs_for(request)
    assert caught.value.min_gpus == 8


def test_a_backend_without_data_has_no_pool() -> None:
    with pytest.raises(NoPerfDatabase, match=r"no performance data for trtllm on b60"):
        parallel_configs_for(PoolRequest("agg", "Qwen/Qwen3-8B", "b60", "trtllm", 8, AGG))


def test_a_one_gpu_moe_worker_may_be_pinned_when_it_fits() -> None:
    one = AggConfig(WorkerGroup(ParallelShape(), 2))
    fits = PoolRequest("agg", "Qwen/Qwen3-30B-A3B", "h200_sxm", "vllm", 8, AGG)
    (pool,) = pinned_pools([one], [fits])
    assert pool.configs == (one,)
    with pytest.raises(PinError, match="no KV budget"):
        pinned_pools([one], [replace(fits, model="Qwen/Qwen3-235B-A22B")])
