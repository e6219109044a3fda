"""Replays beside measurements on real GPUs: TTFT and TPOT of pinned deployments.

    python bench/references_silicon.py CSV [--only TEXT] [--out FILE]

CSV is a file in the column format of the configurator's silicon references (``id, backend, model_path,
system, precision, mode, isl, osl, batch_size, tp_size, ..., silicon_ttft_ms, silicon_tpot_ms``); it is not
part of the project. Each row becomes a configuration with every knob pinned and runs through
``run_smart_search``.

Fixed before any number was seen, and the same for all rows:

- requests in flight: the row's concurrency, which is batch size x attention DP x decode workers;
- ten times as many requests, at most 10,000, with all lengths exactly isl and osl;
- a prefill worker takes as many prompts at once as the row says; other limits: 8192 tokens and the smallest
  allowed number of sequences from the batch on, 0.9 of the memory; round robin, and no prefix is shared;
- the backend version is the installed database's default, not the measured one: it has no data of the latter.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from spica import InputError, SpicaError, run_smart_search
from spica.errors import Problem
from spica.facts import model_facts, resolve_backend_version
from spica.knobs.table import KNOBS
from spica.sweep.events import Silent

RESULTS = Path(__file__).parent / "results"
REQUESTS_PER_SLOT, MOST_REQUESTS = 10, 10_000
#: (model of a row, quantisation its layers were run in) -> the shipped checkpoint with those layers.
CHECKPOINTS = {
    ("deepseek-ai/DeepSeek-V3", "nvfp4"): "nvidia/DeepSeek-V3.1-NVFP4",
    ("deepseek-ai/DeepSeek-R1", "nvfp4"): "nvidia/DeepSeek-V3.1-NVFP4",
    ("moonshotai/Kimi-K2.5", "nvfp4"): "nvidia/Kimi-K2.5-NVFP4",
    ("Qwen/Qwen3-32B", "fp8"): "Qwen/Qwen3-32B-FP8-Static-PerTensor",
    ("Qwen/Qwen3-32B", "fp8_block"): "Qwen/Qwen3-32B-FP8",
}
#: What a checkpoint's scheme is called in the rows.
SCHEMES = {"fp8_block": ("fp8", "fp8_block"), "fp8": ("fp8",), "nvfp4": ("nvfp4",), None: ("",)}


@dataclass(frozen=True)
class Row:
    """One measured deployment, as far as it is replayed. Times in milliseconds."""

    id: str
    model: str
    system: str
    backend: str
    measured_version: str
    mode: str
    quantization: str
    isl: int
    osl: int
    concurrency: int
    batch: int
    prefill_batch: int
    parallel: dict[str, object]
    gpus: int
    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True)
class Compared:
    """A row with its replay; errors are replayed / measured - 1."""

    id: str
    model: str
    deployment: str
    backend: str
    measured_version: str
    concurrency: int
    ttft_ms: float
    replayed_ttft_ms: float
    ttft_error: float
    tpot_ms: float
    replayed_tpot_ms: float
    tpot_error: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Uncovered:
    id: str
    reason: str


def _whole(cells: Mapping[str, str], name: str) -> int:
    """A count; one that is empty or 0 (an expert dimension of a dense model) is 1."""
    return max(1, int(float(cells[name] or 1)))


def _workers(cells: Mapping[str, str], prefix: str = "") -> dict[str, int]:
    replicas = _whole(cells, f"{prefix}num_workers") if prefix else 1
    names = {
        "tp": "tp_size",
        "attention_dp": "attention_dp_size",
        "moe_tp": "moe_tp_size",
        "moe_ep": "moe_ep_size",
        "pp": "pp_size",
    }
    return {ours: _whole(cells, prefix + theirs) for ours, theirs in names.items()} | {"replicas": replicas}


def _gpus(workers: Mapping[str, int]) -> int:
    return workers["tp"] * workers["pp"] * workers["attention_dp"] * workers["replicas"]


def parse(cells: Mapping[str, str]) -> Row:
    """One line of the CSV. Raises ValueError when batch size and stated concurrency contradict each other."""
    disagg = cells["mode"] == "disagg"
    serving = _workers(cells, "decode_" if disagg else "")
    prefill = _workers(cells, "prefill_") if disagg else None
    batch = _whole(cells, "decode_batch_size" if disagg else "batch_size")
    concurrency = batch * serving["attention_dp"] * serving["replicas"]
    stated = re.search(r"silicon_concurrency=(\d+)", cells["silicon_data_source"])
    if stated and int(stated[1]) != concurrency:
        raise ValueError(f"{cells['id']}: batch size says {concurrency} in flight, the row {stated[1]}")
    parallel: dict[str, object] = {"prefill": prefill, "decode": serving} if prefill else dict(serving)
    return Row(
        id=cells["id"],
        model=cells["model_path"],
        system=cells["system"],
        backend=cells["backend"],
        measured_version=cells["backend_version"],
        mode=cells["mode"],
        quantization=cells["moe_quant_mode"] or cells["gemm_quant_mode"],
        isl=int(cells["isl"]),
        osl=int(cells["osl"]),
        concurrency=concurrency,
        batch=batch,
        prefill_batch=_whole(cells, "prefill_batch_size"),
        parallel=parallel,
        gpus=_gpus(serving) + (_gpus(prefill) if prefill else 0),
        ttft_ms=float(cells["silicon_ttft_ms"]),
        tpot_ms=float(cells["silicon_tpot_ms"]),
    )


def checkpoint(row: Row) -> str:
    """The shipped model with the row's layers. Raises InputError when none has its number format."""
    name = CHECKPOINTS.get((row.model, row.quantization), row.model)
    scheme = model_facts(name).quantization
    if row.quantization not in SCHEMES.get(scheme, ()):
        has = "16 bit" if scheme is None else scheme
        raise InputError(
            Problem(f"no checkpoint with {row.quantization or '16-bit'} layers ships: {name} is {has}")
        )
    return name


def configuration(row: Row, model: str) -> dict[str, object]:
    """The row as a configuration with a single candidate."""
    role = "decode" if row.mode == "disagg" else "agg"
    choices = [int(c) for c in KNOBS[f"{role}_max_num_seqs"].setting.choices]
    sequences = min((c for c in choices if c >= row.batch), default=max(choices))
    if row.mode == "disagg":
        limits = {
            "prefill_max_num_batched_tokens": [8192],
            "prefill_max_num_seqs": [row.prefill_batch],
            "decode_max_num_batched_tokens": [8192],
            "decode_max_num_seqs": [sequences],
        }
    else:
        limits = {"agg_max_num_batched_tokens": [8192], "agg_max_num_seqs": [sequences]}
    space: dict[str, object] = {
        "model_name": model,
        "hardware_sku": row.system,
        "gpu_budget": row.gpus,
        "context_length": row.isl + row.osl + 256,
        "deployment_mode": [row.mode],
        "backend": [row.backend],
        "parallel_configs": [row.parallel],
        "router_mode": ["round_robin"],
        "planner_scaling_policy": ["disabled"],
    }
    ratio = min(REQUESTS_PER_SLOT, MOST_REQUESTS / row.concurrency)
    return {
        "search_space": space | limits,
        "workload": {
            "isl": row.isl,
            "osl": row.osl,
            "concurrency": row.concurrency,
            "num_request_ratio": ratio,
        },
        "goal": {"target": "throughput"},
        "sweep": {"max_rounds": 1, "candidates_per_round": 1},
    }


def replay(row: Row, folder: Path) -> Compared | Uncovered:
    """One row through the public path."""
    try:
        model = checkpoint(row)
        result = run_smart_search(configuration(row, model), out=folder / row.id, jobs=1, observer=Silent())
    except SpicaError as error:
        return Uncovered(row.id, str(error).splitlines()[0])
    if result.best is None:
        reasons = [f"{o.outcome.value}: {o.reason}" for o in result.outcomes] or [*result.dropped]
        return Uncovered(row.id, "; ".join(reasons))
    metrics = result.best.metrics
    ttft, tpot = metrics.get("mean_ttft_ms") or math.nan, metrics.get("mean_tpot_ms") or math.nan
    return Compared(
        id=row.id,
        model=model,
        deployment=str(result.best.sample.parallel),
        backend=f"{row.backend} {resolve_backend_version(row.system, row.backend)} on {row.system}",
        measured_version=row.measured_version,
        concurrency=row.concurrency,
        ttft_ms=round(row.ttft_ms, 3),
        replayed_ttft_ms=round(ttft, 3),
        ttft_error=round(ttft / row.ttft_ms - 1, 4),
        tpot_ms=round(row.tpot_ms, 3),
        replayed_tpot_ms=round(tpot, 3),
        tpot_error=round(tpot / row.tpot_ms - 1, 4),
        warnings=result.warnings,
    )


def summary(rows: list[Compared]) -> dict[str, float]:
    """Medians over the covered rows, of the signed and of the absolute relative errors."""
    found: dict[str, float] = {}
    for name, errors in (
        ("ttft", [r.ttft_error for r in rows]),
        ("tpot", [r.tpot_error for r in rows]),
    ):
        found[f"{name}_median_error"] = round(statistics.median(errors), 4)
        found[f"{name}_median_absolute_error"] = round(statistics.median(map(abs, errors)), 4)
    return found


def _told(row: Compared | Uncovered) -> str:
    if isinstance(row, Uncovered):
        return f"{row.id}\n    not covered: {row.reason}"
    lines = (
        row.id,
        f"{row.model} {row.deployment}, {row.backend}, {row.concurrency} in flight",
        f"TTFT {row.ttft_ms:9.1f} ms measured {row.replayed_ttft_ms:9.1f} replayed {row.ttft_error:+8.1%}",
        f"TPOT {row.tpot_ms:9.2f} ms measured {row.replayed_tpot_ms:9.2f} replayed {row.tpot_error:+8.1%}",
        f"(measured on version {row.measured_version or 'unknown'})",
    )
    return "\n    ".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", type=Path)
    parser.add_argument("--only", default="", help="rows whose id holds this text")
    parser.add_argument("--out", type=Path, default=RESULTS / "references_silicon.json")
    args = parser.parse_args()
    with args.csv.open(encoding="utf-8", newline="") as file:
        rows = [parse(cells) for cells in csv.DictReader(file) if args.only in cells["id"]]
    found: list[Compared | Uncovered] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            found.append(replay(row, Path(folder)))
            print(_told(found[-1]), flush=True)
    covered = [r for r in found if isinstance(r, Compared)]
    record: dict[str, object] = {"rows": len(found), "covered": len(covered)}
    if covered:
        record["errors"] = summary(covered)
    record["compared"] = [asdict(r) for r in covered]
    record["uncovered"] = [asdict(r) for r in found if isinstance(r, Uncovered)]
    print(json.dumps({k: v for k, v in record.items() if not isinstance(v, list)}))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
