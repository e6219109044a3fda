"""The fixed cost of a replay in a warm worker, on the installed tables and on the cut-down copy.

    python bench/replay_overhead.py [--repeats N] [--out FILE]

Both are timed in turns in one process, so that the ratio does not depend on what else the machine does. The
load is one short request: nearly nothing is simulated. Seconds of wall time and of processor time per replay,
medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

os.environ |= {"DYN_LOG": "error", "OPENBLAS_NUM_THREADS": "1"}

import psutil

from spica.deployment.sample import Backend, Deployment, EngineSettings, KvManager, PlannerSettings, Sample
from spica.deployment.shapes import AggConfig, DisaggConfig, ParallelConfig, ParallelShape, WorkerGroup
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.replay import ReplayOptions, run_replay
from spica.evaluate.slim_tables import TablesRequest, prepare_systems
from spica.facts import resolve_backend_version
from spica.traffic.replayed import SyntheticTraffic

TINY = SyntheticTraffic(isl=16, osl=2, num_requests=1, concurrency=1)
LOAD = SyntheticTraffic(isl=3000, osl=300, num_requests=64, concurrency=32)
GROWTH_REPLAYS = 120
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Case:
    """One kind of candidate."""

    name: str
    model: str
    sku: str
    backend: Backend
    parallel: ParallelConfig

    def plan(self, traffic: SyntheticTraffic) -> ReplayPlan:
        engine = EngineSettings(max_num_batched_tokens=8192, max_num_seqs=256)
        sample = Sample(
            backend=self.backend,
            backend_version=resolve_backend_version(self.sku, self.backend),
            deployment=Deployment(self.model, self.sku, gpu_budget=8),
            kv_manager=KvManager(),
            parallel=self.parallel,
            engines=tuple((role, engine) for role, _ in self.parallel.groups),
            router_mode="round_robin",
            router=None,
            planner=PlannerSettings("disabled"),
        )
        return ReplayPlan(sample, traffic, "throughput")


def _agg(shape: ParallelShape) -> AggConfig:
    return AggConfig(WorkerGroup(shape, 2))


TP2, TEP2 = ParallelShape(tp=2), ParallelShape(tp=2, moe_ep=2)
CASES = (
    Case("dense agg vllm", "Qwen/Qwen3-32B", "h200_sxm", "vllm", _agg(TP2)),
    Case("dense agg sglang", "Qwen/Qwen3-32B", "h200_sxm", "sglang", _agg(TP2)),
    Case("dense agg trtllm", "Qwen/Qwen3-32B", "h200_sxm", "trtllm", _agg(TP2)),
    Case(
        "dense disagg vllm",
        "Qwen/Qwen3-32B",
        "h200_sxm",
        "vllm",
        DisaggConfig(WorkerGroup(TP2, 1), WorkerGroup(TP2, 2)),
    ),
    Case("moe agg vllm", "Qwen/Qwen3-30B-A3B", "h200_sxm", "vllm", _agg(TEP2)),
)


@dataclass(frozen=True)
class Timing:
    wall: float
    cpu: float


def _once(plan: ReplayPlan, options: ReplayOptions) -> Timing:
    wall, cpu = time.perf_counter(), time.process_time()
    result = run_replay(plan, options)
    if result.metrics is None:
        raise SystemExit(f"{plan.sample.parallel}: {result.reason}")
    return Timing(time.perf_counter() - wall, time.process_time() - cpu)


def _medians(timings: list[Timing]) -> dict[str, float]:
    return {
        "wall_s": round(statistics.median(t.wall for t in timings), 4),
        "cpu_s": round(statistics.median(t.cpu for t in timings), 4),
    }


def measure(case: Case, repeats: int, cache: Path) -> dict[str, object]:
    """Both kinds of tables in turns, after one replay each; and whether a real load gives equal results."""
    plan = case.plan(TINY)
    started = time.perf_counter()
    tables = prepare_systems(TablesRequest.of((plan.sample,)), cache)
    built = time.perf_counter() - started
    if tables.systems_path is None:
        raise SystemExit(tables.reason)
    full, cut = ReplayOptions(), ReplayOptions(systems_path=tables.systems_path)
    equal = run_replay(case.plan(LOAD), full) == run_replay(case.plan(LOAD), cut)
    pairs = [(_once(plan, full), _once(plan, cut)) for _ in range(repeats)]
    on_full, on_cut = _medians([p[0] for p in pairs]), _medians([p[1] for p in pairs])
    return {
        "case": case.name,
        "installed_tables": on_full,
        "cut_tables": on_cut,
        "cpu_ratio": round(on_full["cpu_s"] / on_cut["cpu_s"], 2),
        "bit_identical": equal,
        "rows": tables.rows,
        "full_rows": tables.full_rows,
        "make_copy_s": round(built, 2),
    }


def growth(case: Case, cache: Path) -> dict[str, object]:
    """Resident memory over many replays of different loads and batch limits in one process, in MiB."""
    process = psutil.Process()
    tables = prepare_systems(TablesRequest.of((case.plan(TINY).sample,)), cache)
    options = ReplayOptions(systems_path=tables.systems_path)
    seen: list[int] = []
    for n in range(GROWTH_REPLAYS):
        plan = case.plan(replace(LOAD, num_requests=64 + n % 32, concurrency=8 + n % 16))
        _once(plan, options)
        seen.append(process.memory_info().rss >> 20)
    return {"replays": GROWTH_REPLAYS, "rss_mib": seen[9::10]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "replay_overhead.json"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        rows = []
        for case in CASES:
            rows.append(measure(case, args.repeats, Path(cache)))
            print(json.dumps(rows[-1]), flush=True)
        memory = growth(CASES[0], Path(cache))
    print(json.dumps(memory))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"cases": rows, "memory": memory}, indent=2) + "\n")


if __name__ == "__main__":
    main()
