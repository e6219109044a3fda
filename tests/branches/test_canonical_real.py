"""Each canonical rule on the real replay: what it makes equal replays bit for bit alike, and what it keeps
apart does not (so that the comparison can fail at all)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from canonical_cases import DEP2, ROUTER, Case, menu, scaling

from spica.deployment.canonical import canonicalize
from spica.deployment.sample import Backend, KvRouterSettings
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.replay import run_replay
from spica.facts import kv_capacity
from spica.planner.presets import PlannerTarget
from spica.traffic.replayed import SyntheticTraffic, TraceTraffic, Traffic
from spica.trial import Metrics, Sla

pytestmark = pytest.mark.real

CLOSED = SyntheticTraffic(1000, 60, 72, concurrency=24)
BACKENDS: tuple[Backend, ...] = ("vllm", "sglang", "trtllm")
#: One backend by default, the others in the long run.
ONE_BACKEND = ("vllm", *(pytest.param(name, marks=pytest.mark.slow) for name in BACKENDS[1:]))
SEQS = "seqs_beyond_the_load"
STEP = "prefill_seqs_beyond_a_step"
ROUTE = "router_without_a_choice"
WEIGHTS = (ROUTER, KvRouterSettings(0.0, 8.0, 1.0))


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


def trace(
    folder: Path,
    requests: int,
    *,
    rates: tuple[float, float],
    isl: tuple[int, int] = (512, 3500),
    osl: tuple[int, int] = (20, 300),
) -> TraceTraffic:
    """Arrivals at ``rates`` (requests per second) of even and of odd minutes; some prompts share a prefix."""
    draw = random.Random(3)
    now, rows, tokens = 0.0, [], 0
    for i in range(requests):
        now += draw.expovariate(rates[int(now // 60) % 2])
        prompt, output = draw.randint(*isl), draw.randint(*osl)
        ids = [10 * i + k + 10 for k in range(-(-prompt // 512))]
        ids[0] = i % 4 if i % 2 else ids[0]
        rows.append(
            {
                "timestamp": int(now * 1000),
                "input_length": prompt,
                "output_length": output,
                "hash_ids": ids,
            }
        )
        tokens += prompt + output
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return TraceTraffic(str(path), requests, tokens)


def rush(folder: Path, disagg: bool) -> TraceTraffic:
    """A quiet minute, then more than one worker can serve: prompts for aggregated workers, outputs for decode
    ones."""
    if disagg:
        return trace(folder, 1000, rates=(2.0, 40.0), isl=(512, 700), osl=(700, 1000))
    return trace(folder, 1000, rates=(2.0, 40.0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_seqs_beyond_the_load_agg(backend: Backend) -> None:
    case = Case(backend)
    prove(SEQS, [case.change(seqs=n) for n in (24, 1024)], CLOSED, apart=case.change(seqs=8))


@pytest.mark.parametrize("backend", ONE_BACKEND)
def test_seqs_beyond_the_load_disagg(backend: Backend) -> None:
    traffic = SyntheticTraffic(200, 400, 72, concurrency=24)  # long outputs, so that decode has a queue
    case = Case(backend, disagg=True, seqs=24)
    prove(SEQS, [case.change(decode_seqs=n) for n in (24, 1024)], traffic, apart=case.change(decode_seqs=8))


@pytest.mark.parametrize("backend", ONE_BACKEND)
def test_seqs_beyond_the_load_of_attention_ranks(backend: Backend) -> None:
    case = Case(backend, shape=DEP2)
    prove(SEQS, [case.change(seqs=n) for n in (24, 1024)], CLOSED, apart=case.change(seqs=8))


@pytest.mark.parametrize(
    "traffic",
    [
        SyntheticTraffic(1000, 60, 30, concurrency=20, turns_per_session=3, inter_turn_delay_ms=5.0),
        SyntheticTraffic(1000, 60, 24, request_rate=100.0),
        pytest.param(SyntheticTraffic(1000, 60, 20, concurrency=64), marks=pytest.mark.slow),
    ],
    ids=["sessions", "open loop", "few requests"],
)
def test_seqs_beyond_the_load_of_other_traffic(traffic: Traffic) -> None:
    prove(SEQS, [Case(seqs=n) for n in (24, 1024)], traffic, apart=Case(seqs=8))


@pytest.mark.slow
def test_seqs_beyond_the_load_of_a_trace(tmp_path: Path) -> None:
    recorded = trace(tmp_path, 22, rates=(50.0, 50.0))
    prove(SEQS, [Case(seqs=n) for n in (24, 1024)], recorded, apart=Case(seqs=8))


@pytest.mark.slow
def test_seqs_beyond_the_load_with_speculation() -> None:
    case = Case(nextn=2)
    prove(SEQS, [case.change(seqs=n) for n in (24, 1024)], CLOSED, apart=case.change(seqs=8))


def test_seqs_beyond_the_load_under_the_router() -> None:
    """The router repeats itself exactly while it always meets equal workers: as many in flight on each."""
    case = Case(replicas=4, router=ROUTER)
    traffic = SyntheticTraffic(1000, 60, 96, concurrency=24)
    first = prove(SEQS, [case.change(seqs=n) for n in (24, 1024)], traffic)
    assert measure(case.change(seqs=24), traffic) == first


@pytest.mark.parametrize("backend", BACKENDS)
def test_prefill_seqs_beyond_a_step(backend: Backend) -> None:
    """Prompts of 3000: a step of 8192 tokens holds at most (8192 - 2) // 3000 + 2 = 4 sequences."""
    traffic = SyntheticTraffic(3000, 20, 48, concurrency=24)
    case = Case(backend, disagg=True, decode_seqs=24)
    same = [case.change(seqs=n) for n in (4, 24)]
    prove(STEP, same, traffic, apart=case.change(seqs=3), seqs=(3, 4, 5, 24))


@pytest.mark.slow
@pytest.mark.parametrize(("isl", "bound", "binds"), [(1000, 10, 8), (5000, 3, 2), (20_000, 2, 1)])
def test_prefill_seqs_beyond_a_step_of_other_lengths(isl: int, bound: int, binds: int) -> None:
    traffic = SyntheticTraffic(isl, 20, 48, concurrency=24)
    case = Case(disagg=True, decode_seqs=24)
    same = [case.change(seqs=n) for n in (bound, 24)]
    prove(STEP, same, traffic, apart=case.change(seqs=binds), seqs=(binds, bound, 24))


@pytest.mark.slow
def test_prefill_seqs_beyond_a_step_of_attention_ranks() -> None:
    traffic = SyntheticTraffic(3000, 20, 72, concurrency=24)
    case = Case("trtllm", disagg=True, decode_seqs=24, shape=DEP2)
    same = [case.change(seqs=n) for n in (4, 24)]
    prove(STEP, same, traffic, apart=case.change(seqs=3), seqs=(3, 4, 5, 24))


@pytest.mark.slow
def test_prefill_seqs_beyond_a_step_under_the_router() -> None:
    """With one worker per role the router repeats itself exactly."""
    traffic = SyntheticTraffic(3000, 20, 48, concurrency=24)
    case = Case(disagg=True, decode_seqs=24, router=ROUTER)
    found = [measure(case.change(seqs=n), traffic) for n in (3, 4, 24)]
    assert found[1] == found[2] != found[0]


@pytest.mark.parametrize("backend", ONE_BACKEND)
@pytest.mark.parametrize("disagg", [False, True])
def test_router_without_a_choice(backend: Backend, disagg: bool) -> None:
    traffic = SyntheticTraffic(1000, 60, 24, concurrency=16, turns_per_session=2, inter_turn_delay_ms=5.0)
    case = Case(backend, disagg, seqs=8, decode_seqs=8)
    prove(ROUTE, [case, *(case.change(router=weights) for weights in WEIGHTS)], traffic)


@pytest.mark.slow
def test_router_without_a_choice_of_other_traffic(tmp_path: Path) -> None:
    case = Case(seqs=8)
    same = [case, *(case.change(router=weights) for weights in WEIGHTS)]
    shared = SyntheticTraffic(1000, 60, 48, request_rate=20.0, shared_prefix_ratio=0.5, num_prefix_groups=4)
    for traffic in (shared, trace(tmp_path, 60, rates=(10.0, 10.0))):
        prove(ROUTE, same, traffic)


def test_router_with_a_choice_is_kept() -> None:
    """Two workers and an odd number in flight: the router does not send where round robin does."""
    case = Case(seqs=8, replicas=2)
    traffic = SyntheticTraffic(1000, 60, 60, concurrency=5)
    assert measure(case, traffic) != measure(case.change(router=WEIGHTS[1]), traffic)


@pytest.mark.parametrize(
    ("disagg", "target"),
    [
        (False, "latency"),
        (True, "throughput"),
        pytest.param(False, "throughput", marks=pytest.mark.slow),
        pytest.param(True, "latency", marks=pytest.mark.slow),
    ],
)
def test_planner_by_thresholds(tmp_path: Path, disagg: bool, target: PlannerTarget) -> None:
    traffic = rush(tmp_path, disagg)
    presets = [("small", "aggressive"), ("fine", "conservative")]
    # A small decode cache fills while the prefill worker keeps up.
    case = Case(disagg=disagg, decode_memory=0.4)
    same = [case.change(planner=scaling("load_180_5", *chosen)) for chosen in presets]
    first = prove("planner_by_thresholds", same, traffic, target=target)
    assert first.planner_total_ticks
    # The planner did scale, or there would be nothing to be inert.
    assert len({(r.prefill, r.decode) for r in first.replicas}) > 1


def test_planner_with_an_sla_is_not_one_of_them(tmp_path: Path) -> None:
    traffic = rush(tmp_path, disagg=False)
    found = []
    for chosen in (("small", "aggressive"), ("fine", "conservative")):
        sample = Case(planner=scaling("load_180_5", *chosen)).sample
        result = run_replay(ReplayPlan(sample, traffic, "sla", Sla(ttft_ms=1000.0, itl_ms=30.0)))
        assert result.metrics is not None, result.reason
        found.append(result.metrics)
    assert found[0] != found[1]
