"""KV load by hand, to the token."""

from __future__ import annotations

import pytest
from branch_fakes import Fake, config, plan

from spica.deployment.kv_load import RoleKv, kv_load
from spica.deployment.sample import KvLoad
from spica.deployment.shapes import Role


def role(
    name: Role, tokens: int | None, *, block: int = 64, dp: int = 1, replicas: int = 1, reason: str = ""
) -> RoleKv:
    return RoleKv(name, tokens, block, dp, replicas, reason)


def test_agg_by_hand() -> None:
    # 751,550 tokens are 11,742 whole blocks of 64, 751,488 tokens; on 4 replicas 3,005,952.
    # A request is worth 3000 + 150; 3,005,952 / 3,150 = 954.27; 0.7 of 954 is 667.8.
    assert kv_load(0.7, 3000, 300, [role("agg", 751_550, replicas=4)]) == KvLoad(
        kv_load_ratio=0.7,
        concurrency=667,
        concurrency_capacity=954,
        capacity_tokens=3_005_952,
        role_capacity_tokens=(("agg", 3_005_952),),
    )


def test_attention_dp_and_replicas_count_once_each() -> None:
    # 10,000 tokens per rank in blocks of 16: 625 whole blocks, 10,000; x 8 ranks x 3 replicas = 240,000.
    load = kv_load(1.0, 1000, 101, [role("agg", 10_000, block=16, dp=8, replicas=3)])
    assert isinstance(load, KvLoad)
    assert load.capacity_tokens == 240_000
    # 1000 + 50 (half of 101, rounded down): 240,000 / 1,050 = 228.57
    assert load.concurrency == load.concurrency_capacity == 228


def test_decode_drives_and_both_roles_are_recorded() -> None:
    load = kv_load(0.5, 900, 200, [role("prefill", 64_000, replicas=5), role("decode", 6_400, dp=2)])
    assert isinstance(load, KvLoad)
    assert load.role_capacity_tokens == (("prefill", 320_000), ("decode", 12_800))
    assert (load.capacity_tokens, load.concurrency_capacity, load.concurrency) == (12_800, 12, 6)


@pytest.mark.parametrize(("ratio", "expected"), [(0.0, 1), (0.05, 1), (0.1, 1), (0.2, 2), (2.5, 25)])
def test_a_ratio_may_be_zero_and_may_exceed_one(ratio: float, expected: int) -> None:
    load = kv_load(ratio, 90, 20, [role("agg", 1_000, block=10)])
    assert isinstance(load, KvLoad)
    assert (load.concurrency_capacity, load.concurrency) == (10, expected)


def test_no_budget_in_either_role_is_infeasible_with_its_reason() -> None:
    nothing = role("prefill", None, reason="weights fill the memory")
    assert kv_load(1.0, 10, 10, [nothing, role("decode", 64_000)]) == (
        "prefill workers have no KV budget: weights fill the memory"
    )
    assert isinstance(kv_load(1.0, 10, 10, [role("prefill", 64_000), role("decode", 63)]), str)


def test_less_than_one_request_is_infeasible_and_exactly_one_is_not() -> None:
    reason = kv_load(1.0, 1000, 100, [role("agg", 1_049, block=1)])
    assert isinstance(reason, str)
    assert "1,049" in reason
    assert "1,050" in reason
    one = kv_load(9.0, 1000, 100, [role("agg", 1_050, block=1)])
    assert isinstance(one, KvLoad)
    assert (one.concurrency_capacity, one.concurrency) == (1, 9)


def test_a_candidate_is_sized_by_its_own_settings() -> None:
    """DEP 2 x 2 workers: (100,000 / 2 - 8192 / 2) tokens per rank, in blocks of 64, on 2 ranks of 2
    replicas."""
    cfg = config(
        {
            "parallel_configs": [{"tp": 1, "attention_dp": 2, "moe_ep": 2, "replicas": 2}],
            "agg_max_num_batched_tokens": [8192, 16384],
            "agg_max_num_seqs": [256],
            "context_length": 4096,
        },
        {"kv_load_ratio": [0.0, 2.0]},
        {"target": "pareto"},
    )
    branch = plan(cfg, Fake(moe=True)).branches[0]
    assert [d.name for d in branch.dimensions] == ["agg_max_num_batched_tokens", "kv_load_ratio"]
    for budget, tokens in ((8192.0, 50_000 - 4096), (16384.0, 50_000 - 8192)):
        sample = branch.decode({"agg_max_num_batched_tokens": budget, "kv_load_ratio": 0.5}).sample
        assert sample.kv_load is not None
        assert sample.kv_load.capacity_tokens == tokens // 64 * 64 * 2 * 2
        assert sample.kv_load.concurrency_capacity == sample.kv_load.capacity_tokens // 1050
        assert sample.concurrency == sample.kv_load.concurrency_capacity // 2
        assert branch.traffic(sample).num_requests == 4 * sample.concurrency


def test_what_no_cache_can_carry_is_infeasible_before_replay() -> None:
    # Room for two requests of isl + osl / 2 with 8192 batched tokens, for none with 32768.
    cfg = config(
        {"parallel_configs": [{"tp": 1}], "agg_max_num_seqs": [256], "context_length": 35_000},
        {"kv_load_ratio": 1.0, "isl": 34_000, "osl": 200},
    )
    branch = plan(cfg, Fake(tokens_cost=1.0)).branches[0]
    fits = branch.decode({"agg_max_num_batched_tokens": 8192.0})
    assert fits.feasible
    assert fits.sample.concurrency == 1
    tight = branch.decode({"agg_max_num_batched_tokens": 32768.0})
    assert "less than one request of 34,100" in tight.reason
    assert tight.sample.kv_load is None
    assert tight.sample.concurrency is None
    assert tight.key != fits.key


def test_one_request_is_a_load_and_a_token_less_is_none() -> None:
    # 900 + half of 200 is 1,000 tokens: 100 blocks of 10.
    fits = kv_load(1.0, 900, 200, [role("agg", 1_000, block=10)])
    assert isinstance(fits, KvLoad)
    assert (fits.concurrency_capacity, fits.concurrency) == (1, 1)
    short = kv_load(1.0, 900, 200, [role("agg", 999, block=10)])
    assert isinstance(short, str)
    assert "holds 990 tokens in all, less than one request of 1,000" in short


def test_one_block_is_a_budget_and_a_token_less_is_none() -> None:
    decode = role("decode", 64_000)
    assert isinstance(kv_load(1.0, 10, 10, [role("prefill", 64), decode]), KvLoad)
    short = kv_load(1.0, 10, 10, [role("prefill", 63), decode])
    assert short == "prefill workers have no KV budget: 63 tokens per rank are less than one block of 64"
