"""A published frontier and ours: GLM-5-FP8 on up to 72 B200s, sglang, disaggregated, 1024 tokens in and out.

    python bench/references_frontier.py [--rounds N] [--minutes M] [--out FILE]

The published frontier (output tokens per second and GPU against tokens per second and user, round robin) is
known by its ends and by its best deployment. Three things are made, all through ``run_smart_search``:

1. the published best deployment as a pin: 2 x DEP8 prefill and 6 x DTP8 decode, at the published number of
   requests in flight, and that number again as a share of the KV cache;
2. a search of the default knobs for the default Pareto goal, with the load searched from one request to a
   full KV cache; far fewer candidates than a published search has, and bounded in time;
3. both ends and the hypervolume of what was found beside the published ends.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from spica import Candidate, SweepResult, run_smart_search
from spica.facts import resolve_backend_version
from spica.goals.ranking import hypervolume
from spica.sweep.events import Silent

RESULTS = Path(__file__).parent / "results"
MODEL, SKU, BACKEND, GPUS = "zai-org/GLM-5-FP8", "b200_sxm", "sglang", 72
ISL = OSL = 1024
PUBLISHED_CONCURRENCY = 11_940
#: (tokens/s per GPU, tokens/s per user) of the published ends.
PUBLISHED_ENDS = ((1788.4, 23.56), (3.6, 87.79))
DEP8 = {"tp": 1, "attention_dp": 8, "moe_tp": 1, "moe_ep": 8}
DTP8 = {"tp": 1, "attention_dp": 8, "moe_tp": 8, "moe_ep": 1}
TEP8 = {"tp": 8, "attention_dp": 1, "moe_tp": 1, "moe_ep": 8}
TP8 = {"tp": 8, "attention_dp": 1, "moe_tp": 8, "moe_ep": 1}
TEP16 = {"tp": 16, "attention_dp": 1, "moe_tp": 1, "moe_ep": 16}
BEST_SHAPE = {"prefill": DEP8 | {"replicas": 2}, "decode": DTP8 | {"replicas": 6}}
SMALL_STEPS, LARGE_STEPS = (16384, 16, 512), (32768, 64, 1024)
#: 3.6 tokens/s on each of 72 GPUs at 87.79 per user are three requests in flight.
FEW = 3
FAST_SHAPES = {
    "3 in flight, TEP8 + 8 x TEP8": {"prefill": TEP8, "decode": TEP8 | {"replicas": 8}},
    "3 in flight, TP8 + 8 x TP8": {"prefill": TP8, "decode": TP8 | {"replicas": 8}},
    "3 in flight, TEP8 + 4 x TEP16": {"prefill": TEP8, "decode": TEP16 | {"replicas": 4}},
}


@dataclass(frozen=True)
class Point:
    """One deployment; throughputs in output tokens per second, latencies in milliseconds."""

    deployment: str
    gpus: int
    concurrency: int | None
    per_gpu: float
    per_user: float
    mean_ttft_ms: float | None
    mean_tpot_ms: float | None
    prefill_max_num_batched_tokens: object
    prefill_max_num_seqs: object
    decode_max_num_seqs: object
    planner_scaling_policy: object

    @staticmethod
    def of(candidate: Candidate) -> Point:
        per_gpu, per_user = candidate.objectives
        config, metrics = candidate.config, candidate.metrics
        load = config.get("concurrency")
        return Point(
            deployment=str(candidate.sample.parallel),
            gpus=candidate.used_gpus,
            concurrency=load if isinstance(load, int) else None,
            per_gpu=round(per_gpu, 2),
            per_user=round(per_user, 2),
            mean_ttft_ms=metrics.get("mean_ttft_ms"),
            mean_tpot_ms=metrics.get("mean_tpot_ms"),
            prefill_max_num_batched_tokens=config["prefill_max_num_batched_tokens"],
            prefill_max_num_seqs=config["prefill_max_num_seqs"],
            decode_max_num_seqs=config["decode_max_num_seqs"],
            planner_scaling_policy=config["planner_scaling_policy"],
        )


def configuration(
    load: dict[str, object],
    *,
    pin: object = None,
    batching: tuple[int, int, int] = SMALL_STEPS,
    rounds: int = 1,
    per_round: int = 1,
) -> dict[str, object]:
    """The published problem; with ``pin`` that deployment and nothing else.

    ``batching``: tokens and sequences of a prefill step, sequences of a decode step. The published ones are
    not known."""
    space: dict[str, object] = {
        "model_name": MODEL,
        "hardware_sku": SKU,
        "gpu_budget": GPUS,
        "deployment_mode": ["disagg"],
        "backend": [BACKEND],
        "router_mode": ["round_robin"],
        "context_length": 4096,
    }
    if pin is not None:
        space |= {
            "parallel_configs": [pin],
            "prefill_max_num_batched_tokens": [batching[0]],
            "prefill_max_num_seqs": [batching[1]],
            "decode_max_num_seqs": [batching[2]],
            "planner_scaling_policy": ["disabled"],
        }
    return {
        "search_space": space,
        "workload": {"isl": ISL, "osl": OSL, "num_request_ratio": 2} | load,
        "goal": {"target": "pareto"},
        "sweep": {"max_rounds": rounds, "candidates_per_round": per_round, "max_eval_seconds": 300},
    }


def run(config: dict[str, object], minutes: float) -> tuple[SweepResult, float]:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = run_smart_search(
            config, out=Path(folder) / "run", jobs=2, max_minutes=minutes, observer=Silent()
        )
    return result, time.monotonic() - started


def volume(points: list[tuple[float, float]]) -> float:
    """Of (per GPU, per user), from (0, 0)."""
    return hypervolume(points, (True, True), (0.0, 0.0))


def pinned() -> dict[str, object]:
    """The published best deployment at the published load and at others; fast shapes at a tiny load."""
    found: dict[str, object] = {}
    published: dict[str, object] = {"concurrency": PUBLISHED_CONCURRENCY, "num_request_ratio": 4}
    few: dict[str, object] = {"concurrency": FEW, "num_request_ratio": 8}
    pins: dict[str, tuple[object, dict[str, object], tuple[int, int, int]]] = {
        f"{PUBLISHED_CONCURRENCY} in flight": (BEST_SHAPE, published, SMALL_STEPS),
        f"{PUBLISHED_CONCURRENCY} in flight, large steps": (BEST_SHAPE, published, LARGE_STEPS),
        "48 in flight": (BEST_SHAPE, {"concurrency": 48}, SMALL_STEPS),
        "full KV cache": (BEST_SHAPE, {"kv_load_ratio": 1.0}, SMALL_STEPS),
    }
    pins |= {name: (shape, few, SMALL_STEPS) for name, shape in FAST_SHAPES.items()}
    for name, (shape, load, batching) in pins.items():
        result, seconds = run(configuration(load, pin=shape, batching=batching), minutes=6)
        best = result.best
        if best is None:
            found[name] = [f"{o.outcome.value}: {o.reason}" for o in result.outcomes]
        else:
            capacity = best.config.get("kv_load_concurrency_capacity")
            found[name] = asdict(Point.of(best)) | {"kv_load_concurrency_capacity": capacity}
        print(f"{name} ({seconds:.0f} s): {json.dumps(found[name])}", flush=True)
    return found


def searched(rounds: int, minutes: float) -> dict[str, object]:
    """The search, its front, and the hypervolume after each round."""
    result, seconds = run(configuration({}, rounds=rounds, per_round=8), minutes)
    front = [Point.of(c) for c in result.front]
    points = [(p.per_gpu, p.per_user) for p in front]
    fastest = max(front, key=lambda p: p.per_user)
    densest = max(front, key=lambda p: p.per_gpu)
    found: dict[str, object] = {
        "candidates": len(result.candidates),
        "seconds": round(seconds),
        "stopped_by": result.stop or "rounds",
        "hypervolume": round(volume(points), 1),
        "hypervolume_per_round": [(v.replays, round(v.hypervolume, 1)) for v in result.hypervolumes],
        "most_per_gpu": asdict(densest),
        "most_per_user": asdict(fastest),
        "knee": None if result.knee is None else asdict(Point.of(result.knee)),
        "front": [asdict(p) for p in front],
        "outcomes": [f"{o.count} {o.outcome.value}: {o.reason}" for o in result.outcomes],
        "warnings": list(result.warnings),
    }
    print(json.dumps({k: v for k, v in found.items() if k != "front"}, indent=1), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--out", type=Path, default=RESULTS / "references_frontier.json")
    parser.add_argument("--pins-only", action="store_true", help="keep the search of an earlier run")
    args = parser.parse_args()
    earlier = json.loads(args.out.read_text())["searched"] if args.pins_only else None
    record = {
        "database": f"{BACKEND} {resolve_backend_version(SKU, BACKEND)} on {SKU}",
        "published": {
            "ends": PUBLISHED_ENDS,
            "hypervolume_of_ends": round(volume(list(PUBLISHED_ENDS)), 1),
            "best": "2 x DEP8 prefill + 6 x DTP8 decode",
            "concurrency": PUBLISHED_CONCURRENCY,
        },
        "pinned": pinned(),
        "searched": earlier or searched(args.rounds, args.minutes),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
