"""Each canonical rule on the real replay: what it makes equal replays bit for bit alike, and what it keeps
apart does not (so that the comparison can fail at all)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from canonical_cases import DEP2, ROUTER, Case, menu, scaling

from spica.canonical import canonicalize
from spica.evaluate.protocol import (
    Metrics,
    PlannerTarget,
    ReplayPlan,
    Sla,
    SyntheticTraffic,
    TraceTraffic,
    Traffic,
)
from spica.evaluate.replay import run_replay
from spica.facts import kv_capacity
from spica.sample import Backend, KvRouterSettings

pytestmark = pytest.mark.real

CLOSED = SyntheticTraffic(1000, 60, 72, concurrency=24)
BACKENDS: tuple[Backend, ...] = ("vllm", "sglang", "trtllm")
OTHER_WEIGHTS = KvRouterSettings(0.0, 8.0, 1.0)


def measure(case: Case, traffic: Traffic, target: PlannerTarget = "throughput") -> Metrics:
    result = run_replay(ReplayPlan(case.sample, traffic, target))
    assert result.metrics is not None, result.reason
    return result.metrics


def prove(
    rule: str,
    same: Sequence[Case],
    traffic: Traffic,
    apart: Case | None = None,
    target: PlannerTarget = "throughput",
    seqs: tuple[int, ...] = (8, 24, 256, 1024),
) -> Metrics:
    """The cases in ``same`` have one canonical sample by ``rule`` and equal metrics; ``apart`` differs in
    both."""
    found = [
        canonicalize(c.sample, traffic, menu(c.sample, kv_capacity, target=target, seqs=seqs)) for c in same
    ]
    assert len({f.sample for f in found}) == 1
    assert {name for f in found for name in f.rules} == {rule}
    first, *others = [measure(case, traffic, target) for case in same]
    for other in others:
        assert other == first
    if apart is not None:
        kept = canonicalize(apart.sample, traffic, menu(apart.sample, kv_capacity, seqs=seqs))
        assert kept.sample != found[0].sample
        assert measure(apart, traffic, target) != first
    return first


SEQS = "seqs_beyond_the_load"


@pytest.mark.parametrize("backend", BACKENDS)
def test_seqs_beyond_the_load_agg(backend: Backend) -> None:
    case = Case(backend)
    prove(SEQS, [case.change(seqs=n) for n in (24, 256, 1024)], CLOSED, apart=case.change(seqs=8))


@pytest.mark.parametrize("backend", BACKENDS)
def test_seqs_beyond_the_load_disagg(backend: Backend) -> None:
    traffic = SyntheticTraffic(200, 400, 72, concurrency=24)  # long outputs, so that decode has a queue
    case = Case(backend, disagg=True, seqs=24)
    prove(SEQS, [case.change(decode_seqs=n) for n in (24, 1024)], traffic, apart=case.change(decode_seqs=8))


@pytest.mark.parametrize("backend", BACKENDS)
def test_seqs_beyond_the_load_of_attention_ranks(backend: Backend) -> None:
    case = Case(backend, shape=DEP2)
    prove(SEQS, [case.change(seqs=n) for n in (24, 1024)], CLOSED, apart=case.change(seqs=8))


def trace(folder: Path, requests: int, *, quiet_rate: float, busy_rate: float, seed: int = 3) -> TraceTraffic:
    """Arrivals at one rate (requests per second) in even minutes and another in odd ones; some prompts
    shared."""
    draw = random.Random(seed)
    now, rows, tokens = 0.0, [], 0
    for i in range(requests):
        now += draw.expovariate(busy_rate if int(now // 60) % 2 else quiet_rate)
        isl, osl = draw.randint(512, 3500), draw.randint(20, 300)
        own = [10 * i + k + 1 for k in range(-(-isl // 512))]
        own[0] = -1 - i % 4 if i % 2 else own[0]
        ids = [abs(h) + 10**6 * (h < 0) for h in own]
        row = {"timestamp": int(now * 1000), "input_length": isl, "output_length": osl, "hash_ids": ids}
        rows.append(row)
        tokens += isl + osl
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return TraceTraffic(str(path), requests, tokens)


def test_seqs_beyond_the_load_of_other_traffic(tmp_path: Path) -> None:
    case, small = Case(), Case(seqs=8)
    turns = SyntheticTraffic(1000, 60, 30, concurrency=20, turns_per_session=3, inter_turn_delay_ms=5.0)
    few = SyntheticTraffic(1000, 60, 20, concurrency=64)
    burst = SyntheticTraffic(1000, 60, 24, request_rate=100.0)
    recorded = trace(tmp_path, 22, quiet_rate=50, busy_rate=50)
    for traffic in (turns, few, burst, recorded):
        prove(SEQS, [case.change(seqs=n) for n in (24, 1024)], traffic, apart=small)


def test_seqs_beyond_the_load_with_speculation() -> None:
    case = Case(nextn=2)
    prove(SEQS, [case.change(seqs=n) for n in (24, 1024)], CLOSED, apart=case.change(seqs=8))


def test_seqs_beyond_the_load_under_the_router() -> None:
    """The router repeats itself exactly while it always meets equal workers: as many in flight on each."""
    case = Case(replicas=4, router=ROUTER)
    traffic = SyntheticTraffic(1000, 60, 96, concurrency=24)
    again = measure(case.change(seqs=24), traffic)
    assert measure(case.change(seqs=24), traffic) == again
    assert prove(SEQS, [case.change(seqs=n) for n in (24, 1024)], traffic) == again


@pytest.mark.parametrize("backend", BACKENDS)
def test_prefill_seqs_beyond_a_step(backend: Backend) -> None:
    """Prompts of 3000: a step of 8192 tokens holds at most (8192 - 2) // 3000 + 2 = 4 sequences."""
    traffic = SyntheticTraffic(3000, 20, 72, concurrency=24)
    case = Case(backend, disagg=True, decode_seqs=24)
    same = [case.change(seqs=n) for n in (4, 5, 24)]
    seqs = (3, 4, 5, 24)
    prove("prefill_seqs_beyond_a_step", same, traffic, apart=case.change(seqs=3), seqs=seqs)


@pytest.mark.parametrize(("isl", "bound"), [(1000, 10), (5000, 3), (20_000, 2)])
def test_prefill_seqs_beyond_a_step_of_other_lengths(isl: int, bound: int) -> None:
    traffic = SyntheticTraffic(isl, 20, 48, concurrency=24)
    case = Case(disagg=True, decode_seqs=24)
    same = [case.change(seqs=n) for n in (bound, 24)]
    seqs = (bound - 1, bound, 24)
    prove("prefill_seqs_beyond_a_step", same, traffic, apart=case.change(seqs=bound - 1), seqs=seqs)


def test_prefill_seqs_beyond_a_step_of_attention_ranks() -> None:
    traffic = SyntheticTraffic(3000, 20, 72, concurrency=24)
    case = Case("trtllm", disagg=True, decode_seqs=24, shape=DEP2)
    seqs = (3, 4, 5, 24)
    same = [case.change(seqs=n) for n in (4, 24)]
    prove("prefill_seqs_beyond_a_step", same, traffic, apart=case.change(seqs=3), seqs=seqs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("disagg", [False, True])
def test_router_without_a_choice(backend: Backend, disagg: bool) -> None:
    traffic = SyntheticTraffic(1000, 60, 24, concurrency=16, turns_per_session=2, inter_turn_delay_ms=5.0)
    case = Case(backend, disagg, seqs=8, decode_seqs=8)
    same = [case, case.change(router=ROUTER), case.change(router=OTHER_WEIGHTS)]
    prove("router_without_a_choice", same, traffic)


def test_router_without_a_choice_of_other_traffic(tmp_path: Path) -> None:
    case = Case(seqs=8)
    same = [case, case.change(router=ROUTER), case.change(router=OTHER_WEIGHTS)]
    shared = SyntheticTraffic(1000, 60, 48, request_rate=20.0, shared_prefix_ratio=0.5, num_prefix_groups=4)
    for traffic in (shared, trace(tmp_path, 60, quiet_rate=10, busy_rate=10)):
        prove("router_without_a_choice", same, traffic)


def test_router_with_a_choice_is_kept() -> None:
    """Two workers and an odd number in flight: the router does not send where round robin does."""
    case = Case(seqs=8, replicas=2)
    traffic = SyntheticTraffic(1000, 60, 60, concurrency=5)
    assert measure(case, traffic) != measure(case.change(router=OTHER_WEIGHTS), traffic)


@pytest.mark.parametrize("disagg", [False, True])
def test_sglang_tokens_unread(disagg: bool) -> None:
    traffic = SyntheticTraffic(3000, 60, 48, concurrency=24)
    case = Case("sglang", disagg, seqs=4, decode_seqs=24)
    same = [case.change(tokens=n) for n in (8192, 16384, 32768)]
    first = prove("sglang_tokens_unread", same, traffic, seqs=(4, 24))
    vllm = [measure(c.change(backend="vllm", seqs=24), traffic) for c in (same[0], same[2])]
    assert vllm[0] != vllm[1]
    assert first not in vllm


@pytest.mark.parametrize("target", ["throughput", "latency"])
@pytest.mark.parametrize("disagg", [False, True])
def test_planner_by_thresholds(tmp_path: Path, disagg: bool, target: PlannerTarget) -> None:
    traffic = trace(tmp_path, 1200, quiet_rate=2.0, busy_rate=12.0)
    presets = [("small", "aggressive"), ("fine", "conservative"), ("default", "default")]
    same = [Case(disagg=disagg, planner=scaling("load_180_5", *chosen)) for chosen in presets]
    first = prove("planner_by_thresholds", same, traffic, target=target)
    assert first.planner_total_ticks
    # The planner did scale, or there would be nothing to be inert.
    assert len({(r.prefill, r.decode) for r in first.replicas}) > 1


def test_planner_with_an_sla_is_not_one_of_them(tmp_path: Path) -> None:
    traffic = trace(tmp_path, 1200, quiet_rate=2.0, busy_rate=12.0)
    found = []
    for chosen in (("small", "aggressive"), ("fine", "conservative")):
        sample = Case(planner=scaling("load_180_5", *chosen)).sample
        result = run_replay(ReplayPlan(sample, traffic, "sla", Sla(ttft_ms=1000.0, itl_ms=30.0)))
        assert result.metrics is not None, result.reason
        found.append(result.metrics)
    assert found[0] != found[1]
