"""Plans measured by the real runtime."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluation_samples import CLOSED, ENGINE, LOAD, MOE, ROUTER, Make

from spica.deployment.sample import Backend, EngineSettings, KvManager
from spica.deployment.shapes import ParallelShape
from spica.evaluate.bounds import Limits
from spica.evaluate.pool import LocalEvaluator
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.replay import ReplayOptions, requests_sent, run_replay
from spica.evaluate.timeline import worker_seconds
from spica.goals.score import value
from spica.traffic.replayed import SyntheticTraffic, TraceTraffic
from spica.trial import Metrics, Outcome, Sla, TrialResult

pytestmark = pytest.mark.real

SMALL = SyntheticTraffic(isl=500, osl=20, num_requests=16, concurrency=4)


def measure(evaluator: LocalEvaluator, *plans: ReplayPlan) -> list[Metrics]:
    results = [future.result() for future in [evaluator.submit(plan) for plan in plans]]
    for result in results:
        assert result.outcome is Outcome.FEASIBLE, result.reason + result.traceback
    return [result.metrics for result in results if result.metrics is not None]


def refused(result: TrialResult, outcome: Outcome) -> str:
    assert (result.outcome, result.metrics) == (outcome, None)
    return result.reason


def test_the_published_numbers_bit_for_bit(evaluator: LocalEvaluator) -> None:
    first, second = measure(evaluator, Make().plan(), Make().plan())
    assert round(first.summary["output_throughput_tok_s"], 3) == 2746.464
    assert round(first.summary["mean_ttft_ms"], 3) == 769.723
    assert first == second
    assert first.get("wall_time_ms") is None


def test_the_known_optima_of_three_goals(evaluator: LocalEvaluator) -> None:
    """Each the best of an exhaustive run over all 135 aggregated deployments on 8 GPUs."""
    wide = replace(ENGINE, max_num_batched_tokens=32768)
    narrow = replace(ENGINE, max_num_batched_tokens=16384)
    two = Make(shape=ParallelShape(tp=4), replicas=2, engine=wide).plan()
    one = Make(shape=ParallelShape(tp=1), replicas=1, engine=narrow).plan()
    fast, frugal = measure(evaluator, two, one)
    assert round(value("throughput", fast), 2) == 3064.08
    assert round(value("e2e_latency", fast), 2) == 6261.84
    assert round(value("throughput_per_gpu", frugal), 2) == 679.40


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_the_tokens_of_a_step_act_on_every_backend(evaluator: LocalEvaluator, backend: Backend) -> None:
    traffic = SyntheticTraffic(isl=3000, osl=60, num_requests=64, concurrency=32)
    settings = [replace(ENGINE, max_num_batched_tokens=tokens) for tokens in (8192, 32768)]
    plans = [Make(backend=backend, replicas=1, engine=engine).plan(traffic) for engine in settings]
    small, large = measure(evaluator, *plans)
    assert small.summary["mean_ttft_ms"] != large.summary["mean_ttft_ms"]


def test_disaggregated_on_every_backend(evaluator: LocalEvaluator) -> None:
    plans = [Make(backend=b, replicas=2, disagg=True).plan(SMALL) for b in ("vllm", "sglang", "trtllm")]
    metrics = measure(evaluator, *plans)
    for numbers in metrics:
        assert numbers.summary["completed_requests"] == 16
        assert (numbers.summary["prefill_gpus_per_worker"], numbers.summary["decode_gpus_per_worker"]) == (
            2,
            2,
        )
    assert len({numbers.summary["mean_ttft_ms"] for numbers in metrics}) == 3


def test_moe_shapes_and_the_kv_router(evaluator: LocalEvaluator) -> None:
    dep, one, routed = measure(
        evaluator,
        Make(model=MOE, shape=ParallelShape(1, 1, 2, 1, 2), replicas=2).plan(SMALL),
        Make(model=MOE, shape=ParallelShape(), replicas=2).plan(SMALL),
        Make(router=ROUTER).plan(SMALL),
    )
    hours = [numbers.summary["duration_ms"] / 3.6e6 for numbers in (dep, one)]
    assert dep.summary["gpu_hours"] == pytest.approx(4 * hours[0])
    assert one.summary["gpu_hours"] == pytest.approx(2 * hours[1])
    assert routed.summary["completed_requests"] == 16


def test_a_request_rate_is_a_fixed_rate(evaluator: LocalEvaluator) -> None:
    """16 requests at 2 a second: the last arrives 7.5 s after the first, whatever the seed."""
    plan = Make().plan(SyntheticTraffic(isl=500, osl=20, num_requests=16, request_rate=2.0))
    one, two = measure(evaluator, plan, replace(plan, seed=99))
    assert one == two
    assert one.summary["duration_ms"] == pytest.approx(7500 + one.summary["mean_e2e_latency_ms"], rel=0.01)


def test_every_turn_is_a_request(evaluator: LocalEvaluator) -> None:
    turns = replace(SMALL, turns_per_session=3, inter_turn_delay_ms=5.0)
    assert requests_sent(Make().plan(turns)) == 48
    (numbers,) = measure(evaluator, Make().plan(turns))
    assert numbers.summary["completed_requests"] == 48


def test_goodput_counts_what_met_the_sla(evaluator: LocalEvaluator) -> None:
    loose, tight, none = measure(
        evaluator,
        Make().plan(CLOSED, sla=Sla(ttft_ms=1e9, itl_ms=1e9)),
        Make().plan(CLOSED, sla=Sla(e2e_ms=6000.0)),
        Make().plan(CLOSED),
    )
    assert loose.get("goodput_output_throughput_tok_s") == loose.get("output_throughput_tok_s")
    good = tight.summary["goodput_output_throughput_tok_s"]
    assert 0 < good < tight.summary["output_throughput_tok_s"]
    assert none.get("goodput_output_throughput_tok_s") is None


def test_a_request_larger_than_the_kv_pool_is_no_score(evaluator: LocalEvaluator) -> None:
    """At 0.473 of its memory a single GPU has 50 blocks of KV left; 3300 + 300 tokens need 57."""
    engine = EngineSettings(8192, 256, gpu_memory_utilization=0.473)
    make = Make(shape=ParallelShape(), replicas=1, engine=engine)
    big = SyntheticTraffic(isl=3300, osl=300, num_requests=64, concurrency=8)
    grows = SyntheticTraffic(isl=3000, osl=300, num_requests=8, concurrency=8)
    futures = [evaluator.submit(make.plan(traffic)) for traffic in (big, grows)]
    reason = refused(futures[0].result(), Outcome.INFEASIBLE)
    assert "only 0 of 64 requests completed" in reason
    assert "3600 tokens" in reason
    assert "larger than a worker's whole KV pool" in refused(futures[1].result(), Outcome.INFEASIBLE)


def test_speculation_changes_the_result(evaluator: LocalEvaluator) -> None:
    plain, zero, two = measure(evaluator, *(Make(aic_nextn=n).plan(SMALL) for n in (None, 0, 2)))
    assert plain == zero
    assert two.summary["output_throughput_tok_s"] > plain.summary["output_throughput_tok_s"]


def test_host_offload_reuses_more_with_more_blocks(evaluator: LocalEvaluator) -> None:
    engine = EngineSettings(8192, 256, gpu_memory_utilization=0.6)
    turns = SyntheticTraffic(
        isl=8000,
        osl=200,
        num_requests=100,
        concurrency=100,
        turns_per_session=4,
        inter_turn_delay_ms=500.0,
        shared_prefix_ratio=0.5,
        num_prefix_groups=20,
    )

    def plan(kv: KvManager) -> ReplayPlan:
        return Make(shape=ParallelShape(), replicas=1, engine=engine, kv=kv).plan(turns)

    blocks = (0, 500, 2000, 20000)
    off, *levels = measure(
        evaluator, plan(KvManager()), *(plan(KvManager(n, 262144, 50.0, 50.0)) for n in blocks)
    )
    assert levels[0] == off
    reuse = [numbers.summary["prefix_cache_reused_ratio"] for numbers in levels]
    speed = [numbers.summary["output_throughput_tok_s"] for numbers in levels]
    assert reuse == sorted(reuse)
    assert speed == sorted(speed)
    assert reuse[-1] > 2 * reuse[0]
    sglang = replace(plan(KvManager(500, 262144)).sample, backend="sglang")
    result = evaluator.submit(replace(plan(KvManager()), sample=sglang)).result()
    assert "vllm only" in refused(result, Outcome.UNSUPPORTED)


def _trace(path: Path, rows: int, gap_ms: Any) -> TraceTraffic:
    with path.open("w") as file:
        now = 0.0
        for row in range(rows):
            now += gap_ms(now)
            entry = {
                "timestamp": round(now),
                "input_length": 3000,
                "output_length": 300,
                "hash_ids": [6 * row + i for i in range(6)],
            }
            file.write(json.dumps(entry) + "\n")
    return TraceTraffic(str(path), rows, rows * 3300)


def test_a_trace_in_both_loops(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    traffic = _trace(tmp_path / "trace.jsonl", 50, lambda _: 400.0)
    as_is, twice, capped = measure(
        evaluator,
        Make().plan(traffic),
        Make().plan(replace(traffic, arrival_speedup_ratio=2.0)),
        Make().plan(replace(traffic, replay_concurrency=4)),
    )
    # 49 gaps, then the last request's own time, which is below ten seconds at this load.
    for numbers, gap in ((as_is, 400), (twice, 200)):
        assert 0 < numbers.summary["duration_ms"] - 49 * gap < 10_000
    assert capped.summary["total_input_tokens"] == 50 * 3000
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"timestamp": 1, "input_length": 5, "output_length": 2}\n')
    result = evaluator.submit(Make().plan(TraceTraffic(str(broken), 1, 7))).result()
    assert "trace line 1 is missing hash_ids" in refused(result, Outcome.FAILED)


def test_the_planner_scales_and_its_timeline_is_the_gpu_time(
    evaluator: LocalEvaluator, tmp_path: Path
) -> None:
    """One minute of calm, one of load, one of calm. The area under the replica timeline must be the
    worker-seconds the runtime counted itself."""
    gap = lambda now: 150.0 if 60_000 < now < 120_000 else 1000.0  # noqa: E731
    traffic = _trace(tmp_path / "trace.jsonl", 520, gap)
    agg, disagg = measure(
        evaluator,
        Make(planner=LOAD, startup_time=20.0, replicas=2).plan(traffic),
        Make(planner=LOAD, startup_time=20.0, replicas=1, disagg=True).plan(
            traffic, target="sla", sla=Sla(ttft_ms=1000.0, itl_ms=30.0)
        ),
    )
    for numbers in (agg, disagg):
        assert numbers.planner_total_ticks is not None
        assert numbers.planner_total_ticks > 20
        assert len({(r.prefill, r.decode) for r in numbers.replicas}) > 1
        seconds = numbers.summary["duration_ms"] / 1000
        counted = (numbers.summary["prefill_worker_seconds"], numbers.summary["decode_worker_seconds"])
        assert worker_seconds(numbers.replicas, seconds) == pytest.approx(counted)
        assert numbers.summary["gpu_hours"] == pytest.approx(2 * sum(counted) / 3600)
    assert agg.replicas[0].decode == 2
    assert disagg.get("goodput_output_throughput_tok_s") is not None


def test_what_cannot_be_measured_has_its_reason(evaluator: LocalEvaluator) -> None:
    cases = {
        "no KV budget": (
            Make(shape=ParallelShape(), engine=EngineSettings(8192, 256, 64, 0.3)),
            "infeasible",
        ),
        "illegal parallel shape": (Make(model=MOE, shape=ParallelShape(2, 1, 1, 1, 4)), "infeasible"),
        "no performance data": (Make(sku="no_such_sku"), "unsupported"),
        "cannot shard the experts": (
            Make(model="MiniMaxAI/MiniMax-M2.5", shape=ParallelShape(8, 1, 1, 8, 1), replicas=1),
            "infeasible",
        ),
    }
    futures = {text: evaluator.submit(make.plan(SMALL)) for text, (make, _) in cases.items()}
    for text, future in futures.items():
        assert text in refused(future.result(), Outcome(cases[text][1]))


def test_an_impossible_candidate_is_refused_with_its_numbers() -> None:
    """10240 prompt tokens x 64512 in flight x 100: 6.45 million requests, 264 GB of prompts."""
    traffic = SyntheticTraffic(isl=10240, osl=1024, num_requests=6_451_200, concurrency=64512)
    options = ReplayOptions(limits=Limits(max_seconds=600, max_bytes=4 * 2**30))
    reason = refused(run_replay(Make().plan(traffic), options), Outcome.FAILED)
    assert "6,451,200 requests" in reason
    assert f"{6_451_200 * 10240 * 4 / 2**30:.0f}"[:2] in reason
    slow = SyntheticTraffic(isl=16, osl=4096, num_requests=1_000_000, concurrency=64)
    options = ReplayOptions(limits=Limits(max_seconds=600))
    assert "at least 824 s" in refused(run_replay(Make().plan(slow), options), Outcome.TIMED_OUT)
    assert math.isclose(1_000_000 * 5e-6 + 4096e6 * 2e-7, 824.2)


def test_an_unexpected_exception_is_a_failed_trial_with_its_traceback() -> None:
    broken = replace(Make().plan(SMALL), sample=None)  # type: ignore[arg-type]
    result = run_replay(broken)
    assert "AttributeError" in refused(result, Outcome.FAILED)
    assert "Traceback" in result.traceback
