"""A planner that scales beats every fixed number of workers on a day of traffic, per GPU."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from spica.config.load import config_from_mapping
from spica.evaluate.pool import LocalEvaluator
from spica.evaluate.protocol import ReplayPlan
from spica.goals.score import avg_gpu, value
from spica.sweep.prepare import prepare
from spica.traffic.synth import SynthSpec, synthesize
from spica.traffic.write import write_mooncake
from spica.trial import Metrics, Sla

SLA = Sla(ttft_ms=2000.0, itl_ms=60.0)
#: Fifteen minutes instead of a day, so all of the planner's times are short too.
WAVE = SynthSpec(
    kind="sine", rate=6.0, duration=900.0, period=900.0, isl=2000, osl=200, amplitude=0.95, seed=1
)
POLICY = {
    "enable_throughput_scaling": True,
    "enable_load_scaling": True,
    "throughput_adjustment_interval_seconds": 30,
    "load_adjustment_interval_seconds": 5,
}


def _plan(folder: Path, trace: Path, policy: object, replicas: int) -> ReplayPlan:
    config = config_from_mapping(
        {
            "search_space": {
                "model_name": "Qwen/Qwen3-32B",
                "hardware_sku": "h200_sxm",
                "gpu_budget": 8,
                "deployment_mode": ["agg"],
                "backend": ["vllm"],
                "parallel_configs": [{"tp": 1, "replicas": replicas}],
                "agg_max_num_batched_tokens": [8192],
                "agg_max_num_seqs": [256],
                "router_mode": ["round_robin"],
                "planner_scaling_policy": [policy],
                "planner_fpm_sampling": ["default"],
                "planner_load_sensitivity": ["default"],
                "load_predictor_candidates": ["constant_last"],
                "startup_time": 5,
            },
            "workload": {"trace_path": str(trace)},
            "goal": {"target": "goodput_per_gpu", "sla": {"ttft_ms": SLA.ttft_ms, "itl_ms": SLA.itl_ms}},
        }
    )
    prepared = prepare(config, folder=folder)
    (branch,) = prepared.plan.branches
    decoded = branch.decode({})
    assert decoded.feasible
    target = prepared.plan.planner_target
    return ReplayPlan(decoded.sample, branch.traffic(decoded.sample), target, SLA)


@pytest.mark.real
def test_scaling_beats_static_per_gpu_and_its_gpus_are_its_timeline(tmp_path: Path) -> None:
    trace = write_mooncake(synthesize(WAVE), tmp_path / "wave.jsonl")
    static = (2, 3, 4, 5, 6)
    with LocalEvaluator(2, log_dir=None) as evaluator:
        plans = [_plan(tmp_path, trace, POLICY, 2), *(_plan(tmp_path, trace, "disabled", n) for n in static)]
        results = [f.result() for f in [evaluator.submit(plan) for plan in plans]]
    found: list[Metrics] = []
    for result in results:
        assert result.metrics is not None, result.reason
        found.append(result.metrics)
    scaled, *fixed = found
    assert [avg_gpu(m) for m in fixed] == pytest.approx(static)
    best = max(value("goodput_per_gpu", m) for m in fixed)
    # 9.6% at the time of writing: with its model of the engine the planner keeps more workers for the SLA.
    assert value("goodput_per_gpu", scaled) > 1.05 * best
    # No fixed number is too small or too large by accident: the best of them stands in the middle.
    assert best not in (value("goodput_per_gpu", fixed[0]), value("goodput_per_gpu", fixed[-1]))

    end = scaled.summary["duration_ms"] / 1000
    times = [r.at_s for r in scaled.replicas if r.at_s < end]
    workers = [r.decode for r in scaled.replicas if r.at_s < end]
    assert times[0] == 0
    assert (min(workers), max(workers)) != (2, 2)
    area = sum((b - a) * n for (a, b), n in zip(pairwise([*times, end]), workers, strict=True))
    assert avg_gpu(scaled) == pytest.approx(area / end)
    assert scaled.planner_total_ticks == pytest.approx(end / 5, abs=3)
