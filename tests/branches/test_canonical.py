"""Where the canonical rules apply, and where they must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from canonical_cases import DEP2, ROUTER, Case, menu, scaling

from spica.branches.capacity import Capacity
from spica.deployment.canonical import Canonical, canonicalize, most_in_flight
from spica.deployment.sample import Backend, KvLoad, KvManager
from spica.facts import KvCapacity, KvQuery
from spica.traffic.replayed import SyntheticTraffic, TraceTraffic, Traffic

CLOSED = SyntheticTraffic(1000, 100, 96, concurrency=24)
SCALES = scaling("load_180_5", "fine", "conservative")
NO_RULE_ON = {
    "a scaling deployment": Case(seqs=1024, planner=SCALES),
    "host offload": Case(seqs=1024, kv=KvManager(num_g2_blocks=5, kv_bytes_per_token=1)),
}


def ample(query: KvQuery) -> KvCapacity:
    return KvCapacity(100_000)


def shrinking(query: KvQuery) -> KvCapacity:
    """Room that depends on the batch size and on the batched tokens."""
    return KvCapacity(100_000 - query.max_batch_size - query.max_num_tokens)


def canonical(
    case: Case, traffic: Traffic = CLOSED, capacity: Capacity | None = ample, **options: Any
) -> Canonical:
    return canonicalize(case.sample, traffic, menu(case.sample, capacity, **options))


@pytest.mark.parametrize(
    ("traffic", "most"),
    [
        (CLOSED, 24),
        (SyntheticTraffic(1000, 100, 20, concurrency=24), 20),
        (SyntheticTraffic(1000, 100, 96, request_rate=5.0), 96),
        (SyntheticTraffic(1000, 100, 96, concurrency=24, turns_per_session=5), 24),
        (TraceTraffic("t", 70, 1), 70),
        (TraceTraffic("t", 70, 1, replay_concurrency=12), 12),
    ],
)
def test_most_in_flight(traffic: Traffic, most: int) -> None:
    assert most_in_flight(traffic) == most


@pytest.mark.parametrize(("seqs", "expected"), [(8, 8), (24, 24), (256, 24), (1024, 24)])
def test_seqs_come_down_to_the_smallest_choice_that_never_binds(seqs: int, expected: int) -> None:
    found = canonical(Case(seqs=seqs))
    assert found.sample == Case(seqs=expected).sample
    assert found.rules == (("seqs_beyond_the_load",) if seqs != expected else ())


def test_seqs_stay_on_the_menu() -> None:
    assert canonical(Case(seqs=1024), seqs=(8, 256, 1024)).sample == Case(seqs=256).sample
    assert canonical(Case(seqs=23), seqs=(8, 23)).rules == ()


def test_both_roles_are_lowered() -> None:
    found = canonical(Case(disagg=True, seqs=1024, decode_seqs=256, tokens=32768))
    assert found.sample == Case(disagg=True, seqs=24, decode_seqs=24, tokens=32768).sample


@pytest.mark.parametrize("capacity", [shrinking, None], ids=["capacity moves", "capacity unknown"])
def test_nothing_that_may_move_the_kv_cache(capacity: Capacity | None) -> None:
    for case in (Case(seqs=1024), Case("sglang", seqs=8, tokens=32768), Case(disagg=True, decode_seqs=1024)):
        assert canonical(case, capacity=capacity).rules == ()


@pytest.mark.parametrize("name", NO_RULE_ON)
def test_only_static_deployments_without_offload(name: str) -> None:
    case = NO_RULE_ON[name]
    for changed in (case, case.change(backend="sglang", tokens=32768), case.change(router=ROUTER)):
        assert canonical(changed, target="sla").rules == ()


def test_prefill_seqs_follow_the_token_budget() -> None:
    # 8192 tokens admit the end of one prompt of 1000, seven or eight whole ones, and the start of another.
    # (8192 - 2) // 1000 + 2 = 10.
    many = SyntheticTraffic(1000, 100, 999, concurrency=500)
    options: dict[str, Any] = {"traffic": many, "seqs": (8, 9, 10, 11, 64)}
    for seqs, expected in ((8, 8), (9, 9), (10, 10), (11, 10), (64, 10)):
        found = canonical(Case(disagg=True, seqs=seqs, decode_seqs=64), **options)
        assert found.sample == Case(disagg=True, seqs=expected, decode_seqs=64).sample
    assert canonical(Case(disagg=True, seqs=64), **options).rules == ("prefill_seqs_beyond_a_step",)
    assert canonical(Case(seqs=64), **options).rules == ()  # decoding holds sequences for long
    assert canonical(Case(disagg=True, seqs=64, nextn=1), **options).rules == ()


def test_prefill_seqs_stay_where_prompts_may_be_cheaper_than_they_are_long() -> None:
    seqs = (8, 9, 10, 11, 64)
    for traffic in (
        SyntheticTraffic(1000, 100, 999, concurrency=500, turns_per_session=2),
        SyntheticTraffic(1000, 100, 999, concurrency=500, shared_prefix_ratio=0.5, num_prefix_groups=1),
        TraceTraffic("t", 999, 1),
    ):
        assert canonical(Case(disagg=True, seqs=64, decode_seqs=8), traffic, seqs=seqs).rules == ()


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_tokens_act_on_every_backend(backend: Backend) -> None:
    assert canonical(Case(backend, seqs=8, tokens=32768)).rules == ()


@pytest.mark.parametrize("disagg", [False, True])
def test_a_router_with_one_worker_per_role(disagg: bool) -> None:
    case = Case(disagg=disagg, seqs=8, decode_seqs=8, router=ROUTER)
    found = canonical(case)
    assert found.rules == ("router_without_a_choice",)
    assert found.sample == case.change(router=None).sample
    # Where round robin is not on the menu the router stays, with its standing weights.
    weights = canonical(case, round_robin=False).sample
    assert weights.router_mode == "kv_router"
    assert weights.router == menu(case.sample, ample).router
    for several in (case.change(replicas=2), case.change(shape=DEP2)):
        assert canonical(several).rules == ()


def test_planner_thresholds_without_an_sla() -> None:
    for target in ("throughput", "latency"):
        found = canonical(Case(planner=SCALES), target=target)
        assert found.sample == Case(planner=scaling("load_180_5", "small", "aggressive")).sample
    assert canonical(Case(planner=SCALES), target="sla").rules == ()


@pytest.mark.parametrize(
    ("ratio", "concurrency", "capacity", "span", "expected"),
    [
        (0.57, 5, 10, (0.0, 1.0), 0.5),
        (0.02, 1, 10, (0.0, 1.0), 0.1),
        (0.56, 5, 10, (0.55, 1.0), 0.55),
        (0.02, 1, 10, (0.0, 0.05), 0.05),
        (0.5, 5, 10, (0.0, 1.0), 0.5),
    ],
)
def test_ratios_of_one_concurrency(
    ratio: float, concurrency: int, capacity: Any, span: tuple[float, float], expected: Any
) -> None:
    load = KvLoad(ratio, concurrency, capacity, 1000, (("agg", 1000),))
    sample = replace(Case(seqs=8).sample, concurrency=concurrency, kv_load=load)
    found = canonicalize(sample, CLOSED, menu(sample, ample, kv_load=span)).sample
    assert found.kv_load == replace(load, kv_load_ratio=expected)


def test_every_ratio_keeps_its_concurrency() -> None:
    """Over capacities that floating point divides badly: the standing ratio floors to the same
    concurrency."""
    for capacity in range(1, 400):
        for concurrency in {1, capacity // 3 + 1, max(1, capacity - 1), capacity}:
            load = KvLoad((concurrency + 0.5) / capacity, concurrency, capacity, 1, (("agg", 1),))
            sample = replace(Case(seqs=8).sample, concurrency=concurrency, kv_load=load)
            found = canonicalize(sample, CLOSED, menu(sample, ample, kv_load=(0.0, 2.0))).sample.kv_load
            assert found is not None
            assert int(found.kv_load_ratio * capacity) == concurrency
            assert found.kv_load_ratio == pytest.approx(concurrency / capacity)


def test_idempotent() -> None:
    for case in (Case("sglang", True, 1024, 32768, 1024, router=ROUTER), Case(planner=SCALES, seqs=1024)):
        once = canonical(case).sample
        assert canonicalize(once, CLOSED, menu(once, ample)).rules == ()
