"""``candidates.json``, ``candidates.csv``, ``trials.csv``, ``trials.parquet``: a run for other programs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence

from spica.deployment.sample import Scalar
from spica.report.data import Leader, RunReport, TrialRow
from spica.text import cell

Row = dict[str, Scalar]
Json = Mapping[str, "Json"] | Sequence["Json"] | Scalar


def finite(value: float | None) -> float | None:
    """JSON has no infinities: None stands for them."""
    return value if value is not None and math.isfinite(value) else None


def candidates_json(report: RunReport) -> dict[str, Json]:
    """The ranked candidates with their settings and metrics, and what they were ranked by."""
    best = report.best
    return {
        "run": report.name,
        "target": report.scoring.target,
        "objectives": [
            {"name": name, "direction": "max" if up else "min"}
            for name, up in zip(report.objectives, report.scoring.maximize, strict=True)
        ],
        "model_name": report.model,
        "hardware_sku": report.hardware,
        "gpu_budget": report.gpu_budget,
        "seed": report.seed,
        "versions": dict(report.versions),
        "stop": report.extras.stop,
        "best": None if best is None else best.key,
        "front": [leader.key for leader in report.front],
        "outcomes": outcome_counts(report),
        "lost": [{"trial": trial, "reason": reason} for trial, reason in report.lost],
        "candidates": [_leader_json(report, leader) for leader in report.leaders],
    }


def outcome_counts(report: RunReport) -> dict[str, int]:
    """Suggestions per outcome; cache hits apart."""
    counts: dict[str, int] = {}
    for trial in report.trials:
        name = "cache_hit" if trial.cache_hit else trial.outcome
        counts[name] = counts.get(name, 0) + 1
    return counts


def _leader_json(report: RunReport, leader: Leader) -> dict[str, Json]:
    return {
        "rank": leader.rank,
        "key": leader.key,
        "branch": leader.branch,
        "values": {n: finite(v) for n, v in zip(report.objectives, leader.values, strict=True)},
        "std": {n: finite(v) for n, v in zip(report.objectives, leader.std, strict=False)},
        "repeats": leader.repeats,
        "score": finite(leader.score),
        "used_gpus": leader.used_gpus,
        "avg_gpu": finite(leader.avg_gpu),
        "on_front": leader.on_front,
        "excluded_by_sla": leader.excluded_by_sla,
        "trials": list(leader.trials),
        "planner_total_ticks": leader.planner_total_ticks,
        "replica_timeline": [
            {"at_s": finite(r.at_s), "prefill": r.prefill, "decode": r.decode} for r in leader.timeline
        ],
        "config": dict(leader.config),
        "metrics": {k: finite(v) for k, v in leader.metrics.items()},
    }


def candidate_rows(report: RunReport) -> list[Row]:
    """One flat row per candidate, best first."""
    rows = []
    for leader in report.leaders:
        row: Row = {"rank": leader.rank, "key": leader.key, "branch": leader.branch}
        row |= dict(zip(report.objectives, leader.values, strict=True))
        row |= {f"{n}_std": v for n, v in zip(report.objectives, leader.std, strict=False)}
        row |= {"repeats": leader.repeats, "avg_gpu": leader.avg_gpu}
        if leader.planner_total_ticks is not None:
            row["planner_total_ticks"] = leader.planner_total_ticks
        row |= leader.config
        row |= {f"metric.{name}": value for name, value in leader.metrics.items()}
        rows.append(row)
    return rows


def trial_rows(report: RunReport) -> list[Row]:
    """One flat row per suggestion, in the order of asking."""
    return [_trial_row(report, trial) for trial in report.trials]


def _trial_row(report: RunReport, trial: TrialRow) -> Row:
    row: Row = {
        "trial": trial.trial,
        "branch": trial.branch,
        "round": trial.round,
        "outcome": trial.outcome,
        "reason": trial.reason,
        "cache_hit": trial.cache_hit,
        "measured_as": trial.order or None,
        "seconds": trial.seconds,
        "key": trial.key,
    }
    row |= dict(zip(report.objectives, trial.values or [None] * len(report.objectives), strict=True))
    row |= trial.config
    row |= {f"metric.{name}": value for name, value in trial.metrics.items()}
    return row


def columns_of(rows: Sequence[Row]) -> list[str]:
    """All columns, in the order in which they are first met."""
    return list(dict.fromkeys(name for row in rows for name in row))


def to_csv(rows: Sequence[Row]) -> str:
    """Rows with one header. A missing value is an empty field, true and false are lower case, and no text
    is a formula to a spreadsheet."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns_of(rows), lineterminator="\n", restval="")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: _csv(v) for k, v in row.items()})
    return out.getvalue()


def _csv(value: Scalar) -> Scalar:
    if isinstance(value, bool):
        return str(value).lower()
    return cell(value) if isinstance(value, str) else value


def to_parquet(rows: Sequence[Row]) -> bytes:
    """The same rows as the content of a Parquet file; a column of mixed kinds becomes text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: _column(pa, [row.get(name) for row in rows]) for name in columns_of(rows)})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _column(pa: object, values: list[Scalar]) -> object:
    kinds = {type(v) for v in values if v is not None}
    if kinds == {int, float}:
        values = [None if v is None else float(v) for v in values]
    elif len(kinds) > 1:
        values = [None if v is None else str(v) for v in values]
    return pa.array(values)  # type: ignore[attr-defined]


def to_json(report: RunReport) -> str:
    """``candidates_json`` as text."""
    return json.dumps(candidates_json(report), indent=1, allow_nan=False) + "\n"
