"""The planner's model of the engines, for the files: what the replay gives it, from a flat config."""

from __future__ import annotations

from spica.deployment.sample import FlatConfig, Scalar
from spica.deployment.shapes import ParallelShape
from spica.evaluate.engine_args import WORKER_TYPES, Json, shape_config
from spica.knobs.knob import engine_settings
from spica.knobs.rows.forms import TIMING
from spica.knobs.table import DERIVED, KNOBS
from spica.ship.workers import Worker


def engine_models(config: FlatConfig, workers: tuple[Worker, ...]) -> dict[str, Json]:
    """``ais_perf_model`` of the planner's configuration: each worker's identity in the performance data.

    The tables are those that come with the planner's image, so no folder is named.
    """
    roles: dict[str, Json] = {WORKER_TYPES[worker.role]: _timing(config, worker) for worker in workers}
    return {"roles": roles}


def _timing(config: FlatConfig, worker: Worker) -> dict[str, Json]:
    shape = ParallelShape(
        tp=worker.tp,
        pp=worker.pp,
        attention_dp=worker.attention_dp,
        moe_tp=worker.moe_tp,
        moe_ep=worker.moe_ep,
    )
    timing = shape_config(worker.role, shape)
    for row, arg, _ in engine_settings((*KNOBS.values(), *DERIVED), worker.role):
        value: Scalar = config.get(row.name)
        if value in arg.off:
            continue
        for path in arg.paths:
            if path.startswith(f"{TIMING}."):
                timing[path.removeprefix(f"{TIMING}.")] = value
    return timing
