"""Pools and pins, with verdicts given instead of estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from spica.branches.backend_pool import (
    BackendFacts,
    BackendPool,
    NoViableShape,
    PoolRequest,
    RoleLimits,
    parallel_configs_for,
    union_of,
)
from spica.branches.pins import pinned_pools, validate_pin
from spica.deployment.shapes import AggConfig, DisaggConfig, ParallelShape, WorkerGroup
from spica.errors import PinError
from spica.facts import FeasibilityQuery, KvCapacity, MemoryBreakdown, ShapeFeasibility

DENSE = BackendFacts("1.0", "some/model", is_moe=False, max_seq_len=1000, wide_ep=False)
MOE = replace(DENSE, is_moe=True)
AGG = PoolRequest("agg", "some/model", "sku", "vllm", 8, (RoleLimits("agg", 8192, 256),))
DISAGG = PoolRequest(
    "disagg", "some/model", "sku", "vllm", 8, (RoleLimits("prefill", 4096, 1), RoleLimits("decode", 8192, 64))
)
BYTES = MemoryBreakdown(100, 90, 10, 5, 5)


def needs(
    gpus: dict[str, int] | int,
) -> Callable[[Iterable[ParallelShape], FeasibilityQuery], dict[ParallelShape, ShapeFeasibility]]:
    """Verdicts of a model that needs so many GPUs per worker (by backend)."""

    def judge(
        shapes: Iterable[ParallelShape], query: FeasibilityQuery
    ) -> dict[ParallelShape, ShapeFeasibility]:
        least = gpus if isinstance(gpus, int) else gpus[query.backend]
        fits = ShapeFeasibility(True, KvCapacity(5000, breakdown=BYTES))
        not_fits = ShapeFeasibility(
            False, KvCapacity(None, breakdown=BYTES, reason="no KV budget"), "no KV budget"
        )
        return {s: fits if s.gpus_per_worker >= least else not_fits for s in shapes}

    return judge


def agg(tp: int, replicas: int = 1, **dims: int) -> AggConfig:
    return AggConfig(WorkerGroup(ParallelShape(tp=tp, **dims), replicas))


def test_rejected_shapes_keep_reason_and_bytes() -> None:
    pool = parallel_configs_for(AGG, facts=DENSE, feasibility=needs(4))
    assert pool.configs == (agg(4, 1), agg(4, 2), agg(8, 1))
    assert [(r.shape.tp, r.reason) for r in pool.rejected] == [(1, "no KV budget"), (2, "no KV budget")]
    assert all(r.verdict is not None and r.verdict.capacity.breakdown == BYTES for r in pool.rejected)
    assert pool.facts.max_seq_len == 1000


def test_backend_filters_reject_before_the_cache_is_asked() -> None:
    asked: list[ParallelShape] = []

    def judge(
        shapes: Iterable[ParallelShape], query: FeasibilityQuery
    ) -> dict[ParallelShape, ShapeFeasibility]:
        asked.extend(shapes)
        return needs(1)(asked, query)

    request = replace(AGG, backend="sglang", gpu_budget=2)
    pool = parallel_configs_for(request, facts=replace(MOE, wide_ep=True), feasibility=judge)
    assert {s.moe_tp for s in asked} == {1}
    assert {str(r.shape) for r in pool.rejected} == {"tp1-dp2-moe_tp2", "tp2-moe_tp2"}
    assert all("wideEP" in r.reason for r in pool.rejected)


def test_each_role_is_judged_in_its_own_setting() -> None:
    queries: list[FeasibilityQuery] = []

    def judge(
        shapes: Iterable[ParallelShape], query: FeasibilityQuery
    ) -> dict[ParallelShape, ShapeFeasibility]:
        queries.append(query)
        return needs(4 if query.max_num_tokens == 8192 else 1)(shapes, query)

    pool = parallel_configs_for(replace(DISAGG, gpu_budget=6), facts=DENSE, feasibility=judge)
    assert [(q.max_num_tokens, q.max_batch_size, q.max_seq_len) for q in queries] == [
        (4096, 1, 1000),
        (8192, 64, 1000),
    ]
    assert [str(c) for c in pool.configs] == [
        "prefill 1x(tp1) + decode 1x(tp4)",
        "prefill 2x(tp1) + decode 1x(tp4)",
        "prefill 1x(tp2) + decode 1x(tp4)",
    ]
    assert {(r.role, r.shape.tp) for r in pool.rejected} == {("decode", 1), ("decode", 2)}


def test_without_an_estimator_every_legal_shape_is_kept() -> None:
    pool = parallel_configs_for(AGG, facts=replace(DENSE, kv_filtered=False), feasibility=needs(99))
    assert {c.workers.shape.tp for c in pool.configs if isinstance(c, AggConfig)} == {1, 2, 4, 8}
    assert not pool.facts.kv_filtered


@pytest.mark.parametrize(
    ("request_", "least", "expected"),
    [
        (replace(AGG, gpu_budget=4), 8, 8),
        (replace(DISAGG, gpu_budget=8), 8, 16),
        (replace(DISAGG, gpu_budget=1), 1, 2),
        (replace(AGG, gpu_budget=7, min_gpu_budget=7), 2, 8),
        (AGG, 17, None),
    ],
)
def test_the_fewest_gpus_that_would_do_are_named(
    request_: PoolRequest, least: int, expected: int | None
) -> None:
    with pytest.raises(NoViableShape) as caught:
        parallel_configs_for(request_, facts=DENSE, feasibility=needs(least))
    assert caught.value.min_gpus == expected
    if expected is None:
        assert "no KV budget" in str(caught.value)
        assert len(caught.value.rejected) == 5
    else:
        assert f"{expected} GPUs would do" in str(caught.value)


def test_the_union_knows_who_can_run_what() -> None:
    pools = [
        parallel_configs_for(
            replace(AGG, backend=b, gpu_budget=4), facts=DENSE, feasibility=needs({"vllm": 2, "sglang": 4})
        )
        for b in ("vllm", "sglang")
    ]
    union = union_of(pools)
    assert dict(zip(union.configs, union.backends, strict=True)) == {
        agg(2, 1): {"vllm"},
        agg(2, 2): {"vllm"},
        agg(4, 1): {"vllm", "sglang"},
    }
    assert list(union.configs) == sorted(union.configs)
    assert union.for_backend("sglang") == (agg(4, 1),)


def pins_of(
    config: AggConfig | DisaggConfig, *requests: PoolRequest, facts: BackendFacts
) -> tuple[BackendPool, ...]:
    return pinned_pools(
        [config],
        requests,
        facts={r.backend: facts for r in requests},
        feasibility=needs({"vllm": 1, "sglang": 4, "trtllm": 1}),
    )


def test_a_pin_is_kept_where_it_is_legal() -> None:
    vllm, sglang = pins_of(agg(2, 3), AGG, replace(AGG, backend="sglang"), facts=DENSE)
    assert vllm.configs == (agg(2, 3),)
    assert sglang.configs == ()
    assert [str(r) for r in sglang.rejected] == ["agg tp2: no KV budget"]


def test_a_one_gpu_moe_worker_and_a_mixed_shape_may_be_pinned() -> None:
    mixed = agg(2, attention_dp=2, moe_ep=4)
    for config in (agg(1, 4), mixed):
        (pool,) = pins_of(config, AGG, facts=MOE)
        assert pool.configs == (config,)
    trtllm = replace(AGG, backend="trtllm")
    with pytest.raises(PinError, match="trtllm cannot combine"):
        pins_of(mixed, trtllm, facts=MOE)


def test_pins_legal_nowhere_are_all_named_with_each_backends_reason() -> None:
    configs = [agg(8, 2), agg(2), agg(4, moe_tp=2, moe_ep=2)]
    requests = [AGG, replace(AGG, backend="trtllm")]
    facts = {"vllm": MOE, "trtllm": MOE}
    with pytest.raises(PinError) as caught:
        pinned_pools(configs, requests, facts=facts, feasibility=needs(1))
    first, second = caught.value.problems
    assert first.key == "search_space.parallel_configs[0]"
    assert "uses 16 GPUs, more than gpu_budget 8" in first.message
    assert second.key == "search_space.parallel_configs[1]"
    assert "vllm, trtllm: agg tp2: tp x attention_dp = 2 differs from moe_tp x moe_ep = 1" in second.message


def test_every_reason_against_a_pin_is_given() -> None:
    request = replace(DISAGG, gpu_budget=16, min_gpu_budget=12)
    config = DisaggConfig(WorkerGroup(ParallelShape(tp=3)), WorkerGroup(ParallelShape(tp=2)))
    reasons = [str(r) for r in validate_pin(config, request, DENSE, feasibility=needs(4))]
    assert reasons == [
        "prefill tp3: tp x attention_dp = 3 GPUs per worker is not one of 1, 2, 4, 8, 16",
        "decode tp2: no KV budget",
        "uses 5 GPUs, fewer than min_gpu_budget 12",
    ]


def test_a_request_must_name_its_roles() -> None:
    with pytest.raises(ValueError, match="disagg needs the limits of"):
        replace(DISAGG, roles=AGG.roles)


@pytest.mark.parametrize(("tokens", "helps"), [(None, False), (0, False), (600, True)])
@pytest.mark.parametrize("budget", [4, 8])
def test_a_shorter_context_is_advised_only_where_it_can_help(
    tokens: int | None, helps: bool, budget: int
) -> None:
    """Two GPUs hold ``tokens`` of the 1000 needed; with a budget of 4 eight would do, else nothing does."""

    def judge(
        shapes: Iterable[ParallelShape], query: FeasibilityQuery
    ) -> dict[ParallelShape, ShapeFeasibility]:
        none = ShapeFeasibility(False, KvCapacity(None, reason="no KV budget"), "no KV budget")
        small = ShapeFeasibility(False, KvCapacity(tokens, reason="x"), "too small")
        fits = ShapeFeasibility(True, KvCapacity(5000, breakdown=BYTES))
        verdicts = {s: small if s.gpus_per_worker == 2 else none for s in shapes}
        return verdicts | {s: fits for s in verdicts if budget == 4 and s.gpus_per_worker == 8}

    with pytest.raises(NoViableShape) as caught:
        parallel_configs_for(replace(AGG, gpu_budget=budget), facts=DENSE, feasibility=judge)
    assert caught.value.min_gpus == (8 if budget == 4 else None)
    assert ("lower context_length" in caught.value.remedy) is helps


def test_every_gpu_of_both_roles_counts_once() -> None:
    prefill = WorkerGroup(ParallelShape(tp=2), 2)
    decode = WorkerGroup(ParallelShape(tp=1, attention_dp=4, moe_ep=4), 3)
    assert DisaggConfig(prefill, decode).used_gpus == 2 * 2 + 3 * 4
    assert AggConfig(decode).used_gpus == 12
