"""The load of a KV ratio, recomputed from the estimator: attention ranks and replicas count once each."""

from __future__ import annotations

import pytest

from spica.config.load import config_from_mapping
from spica.sweep.prepare import prepare

pytestmark = pytest.mark.real

MODEL, SKU = "Qwen/Qwen3-30B-A3B", "h200_sxm"
ISL, OSL, RATIO = 1500, 301, 0.37


def _tokens_per_rank(tp: int, dp: int, ep: int, batched: int, seqs: int) -> int:
    from aisimulate_core.sdk.memory import estimate_kv_cache

    found = estimate_kv_cache(
        MODEL,
        SKU,
        "vllm",
        backend_version="0.24.0",
        max_num_tokens=batched,
        max_batch_size=seqs,
        memory_fraction_kind="of_total",
        memory_fraction_value=0.9,
        tp_size=tp,
        pp_size=1,
        attention_dp_size=dp,
        moe_tp_size=1,
        moe_ep_size=ep,
        nextn=0,
    )
    return int(found["total_kv_size_tokens"])


def test_both_roles_of_a_deployment_with_attention_ranks() -> None:
    space = {
        "model_name": MODEL,
        "hardware_sku": SKU,
        "gpu_budget": 16,
        "deployment_mode": ["disagg"],
        "backend": ["vllm"],
        "parallel_configs": [
            {
                "prefill": {"tp": 2, "moe_ep": 2, "replicas": 2},
                "decode": {"tp": 1, "attention_dp": 4, "moe_ep": 4, "replicas": 3},
            }
        ],
        "prefill_max_num_batched_tokens": [16384],
        "prefill_max_num_seqs": [8],
        "decode_max_num_seqs": [512],
        "router_mode": ["round_robin"],
        "planner_scaling_policy": ["disabled"],
    }
    workload = {"isl": ISL, "osl": OSL, "num_request_ratio": 2, "kv_load_ratio": RATIO}
    prepared = prepare(config_from_mapping({"search_space": space, "workload": workload}))
    (branch,) = prepared.plan.branches
    sample = branch.decode({}).sample
    decode_engine = sample.engine("decode")
    prefill = _tokens_per_rank(2, 1, 2, 16384, 8) // 64 * 64 * 1 * 2
    decode = _tokens_per_rank(1, 4, 4, decode_engine.max_num_batched_tokens, 512) // 64 * 64 * 4 * 3
    assert sample.kv_load is not None
    assert dict(sample.kv_load.role_capacity_tokens) == {"prefill": prefill, "decode": decode}
    assert sample.kv_load.capacity_tokens == decode
    capacity = decode // (ISL + OSL // 2)
    assert sample.kv_load.concurrency_capacity == capacity
    assert sample.concurrency == int(RATIO * capacity)
    flat = sample.config()
    assert flat["decode_kv_capacity_tokens"] == decode
    assert flat["prefill_kv_capacity_tokens"] == prefill
    assert branch.traffic(sample).num_requests == 2 * int(RATIO * capacity)
