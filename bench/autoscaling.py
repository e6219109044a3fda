"""Scaling policies against static deployments on a day of traffic: goodput per GPU.

    python bench/autoscaling.py [--jobs N] [--out FILE]

The problem is ``examples/goodput-planner.yaml`` with a menu of one- and two-GPU workers: every static number
of them up to the budget, and every scaling preset and the example's own policy starting from two. All are
measured, so that the best static deployment is known and not just the best one a search saw. Two loads:

- the example's own trace, a wave of a quarter of an hour, with workers that start within 5 s;
- the same wave in two hours, with workers that start within 30 s: slow against the presets' intervals, as a
  real day is.

Beside each goodput stands the average number of GPUs twice: as the runtime counted GPU hours, and as the area
under the replica timeline that the planner's decisions gave.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from spica.config import SmartSearchConfig
from spica.config.load import load_config
from spica.deployment.sample import Sample
from spica.evaluate.pool import LocalEvaluator
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.timeline import worker_seconds
from spica.goals.score import avg_gpu, value
from spica.planner.presets import SCALING_POLICIES
from spica.sweep.prepare import prepare
from spica.traffic.synth import SynthSpec, synthesize
from spica.traffic.write import write_mooncake
from spica.trial import Sla, TrialResult
from truth_table import Problem, points

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
EXAMPLE = ROOT / "examples" / "goodput-planner.yaml"
SLOW = SynthSpec(kind="sine", rate=6.0, duration=7200, period=7200, isl=2000, osl=200, amplitude=0.95)
OWN = {
    "enable_throughput_scaling": True,
    "enable_load_scaling": True,
    "throughput_adjustment_interval_seconds": 30,
    "load_adjustment_interval_seconds": 5,
}


@dataclass(frozen=True)
class Load:
    """A trace, and the seconds until a new worker serves."""

    trace: Path
    startup_time: int


@dataclass(frozen=True)
class Measured:
    """One deployment under one policy. Goodput in output tokens per second."""

    policy: str
    deployment: str
    goodput_per_gpu: float
    goodput: float
    within_sla: float
    avg_gpu: float
    timeline_gpu: float
    most_gpus: int
    planner_ticks: int | None


def configuration(load: Load, policies: list[object], shapes: list[dict[str, int]]) -> SmartSearchConfig:
    raw = {
        "startup_time": load.startup_time,
        "parallel_configs": shapes,
        "planner_scaling_policy": policies,
        "agg_max_num_batched_tokens": [8192],
        "planner_load_sensitivity": ["default"],
    }
    overrides = [f"search_space.{name}={json.dumps(value)}" for name, value in raw.items()]
    return load_config(EXAMPLE, [*overrides, f"workload.trace_path={load.trace}"]).config


def measured(sample: Sample, result: TrialResult) -> Measured | None:
    metrics = result.metrics
    if metrics is None:
        print(f"{sample.planner.policy} {sample.parallel}: {result.reason}")
        return None
    seconds = metrics.summary["duration_ms"] / 1000
    ((_, group),) = sample.parallel.groups
    per_worker = group.shape.gpus_per_worker
    standing = (
        sum(worker_seconds(metrics.replicas, seconds)) / seconds if metrics.replicas else group.replicas
    )
    most = max((r.decode for r in metrics.replicas), default=group.replicas)
    goodput = value("goodput", metrics)
    return Measured(
        policy=sample.planner.policy,
        deployment=str(sample.parallel),
        goodput_per_gpu=round(value("goodput_per_gpu", metrics), 2),
        goodput=round(goodput, 2),
        within_sla=round(goodput / metrics.summary["output_throughput_tok_s"], 4),
        avg_gpu=round(avg_gpu(metrics), 6),
        timeline_gpu=round(standing * per_worker, 6),
        most_gpus=most * per_worker,
        planner_ticks=metrics.planner_total_ticks,
    )


def measure(config: SmartSearchConfig, jobs: int) -> list[Measured]:
    """Every distinct candidate of a configuration."""
    with tempfile.TemporaryDirectory() as folder:
        problem = Problem("autoscaling", prepare(config, folder=Path(folder), jobs=jobs))
        branch, goal = problem.branch, config.goal
        assert goal.sla is not None
        sla = Sla(goal.sla.ttft_ms, goal.sla.itl_ms, goal.sla.e2e_ms)
        pending = []
        with LocalEvaluator(jobs, log_dir=None) as evaluator:
            for point in {branch.identity(p): p for p in points(branch)}.values():
                decoded = branch.decode(point)
                if not decoded.feasible:
                    continue
                plan = ReplayPlan(
                    decoded.sample,
                    branch.traffic(decoded.sample),
                    problem.prepared.plan.planner_target,
                    sla,
                    seed=1,
                )
                pending.append((decoded.sample, evaluator.submit(plan)))
            found = [measured(sample, future.result()) for sample, future in pending]
    return [one for one in found if one is not None]


def compare(load: Load, jobs: int) -> dict[str, object]:
    static = [{"tp": tp, "replicas": n} for tp in (1, 2) for n in range(1, 8 // tp + 1)]
    starts = [{"tp": tp, "replicas": 2} for tp in (1, 2)]
    scaling: list[object] = [n for n, policy in SCALING_POLICIES.items() if not policy.is_static]
    scaling.append(OWN)
    fixed = measure(configuration(load, ["disabled"], static), jobs)
    scaled = measure(configuration(load, scaling, starts), jobs)
    by_score = lambda m: m.goodput_per_gpu  # noqa: E731
    best_fixed, best_scaled = max(fixed, key=by_score), max(scaled, key=by_score)
    holding = [m for m in fixed if m.within_sla >= best_scaled.within_sla]
    record: dict[str, object] = {
        "best_static": asdict(best_fixed),
        "best_scaled": asdict(best_scaled),
        "gain": round(best_scaled.goodput_per_gpu / best_fixed.goodput_per_gpu - 1, 4),
        "best_static_that_holds_the_sla_as_often": asdict(max(holding, key=by_score)) if holding else None,
        "largest_difference_of_average_gpus": max(abs(m.avg_gpu - m.timeline_gpu) for m in (*fixed, *scaled)),
    }
    print(json.dumps(record, indent=1), flush=True)
    return record | {"static": [asdict(m) for m in fixed], "scaled": [asdict(m) for m in scaled]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "autoscaling.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        slow = write_mooncake(synthesize(SLOW), Path(folder) / "slow.jsonl")
        record = {
            "example": compare(Load(EXAMPLE.parent / "data" / "wave.jsonl.gz", 5), args.jobs),
            "slow_wave": compare(Load(slow, 30), args.jobs),
        }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
