"""The planner's configuration for a replay with scaling loops."""

from __future__ import annotations

import dataclasses

from spica.deployment.sample import PlannerSettings, PredictorSettings, Sample, ScalingSettings
from spica.evaluate.engine_args import WORKER_TYPES, Json, timing_config
from spica.knobs.bindings import PlannerArg
from spica.knobs.table import KNOBS
from spica.planner.presets import PlannerTarget
from spica.trial import Sla


class PlannerUnsupported(ValueError):
    """The planner cannot be given what this candidate asks of it."""


def planner_fields(planner: PlannerSettings, target: PlannerTarget) -> dict[str, Json]:
    """The fields of Dynamo's ``PlannerConfig`` that a scaling policy sets, by its names.

    ``planner.scaling`` must not be None. Intervals in seconds.
    """
    scaling = planner.scaling
    if scaling is None:
        raise ValueError("a static deployment has no planner fields")
    fields: dict[str, Json] = {
        "optimization_target": target,
        "enable_throughput_scaling": planner.enable_throughput_scaling,
        "enable_load_scaling": planner.enable_load_scaling,
    }
    for field in dataclasses.fields(ScalingSettings):
        if field.name != "predictor":
            fields[field.name] = getattr(scaling, field.name)
    if scaling.predictor is not None:
        for field in dataclasses.fields(PredictorSettings):
            value = getattr(scaling.predictor, field.name)
            if value is not None:
                fields[field.name] = value
    return fields


def planner_config(
    sample: Sample, target: PlannerTarget, sla: Sla | None, *, systems_path: str | None = None
) -> dict[str, Json] | None:
    """The planner configuration of a candidate, or None for a static one.

    ``systems_path`` is a folder of performance tables to use in place of the installed ones. Raises
    PlannerUnsupported when the target is ``sla`` and TTFT or ITL is missing.
    """
    if sample.planner.scaling is None:
        return None
    fields = planner_fields(sample.planner, target)
    fields |= {
        "mode": sample.mode,
        "backend": sample.backend,
        # No report file, no open port: a candidate leaves nothing behind.
        "report_interval_hours": None,
        "live_dashboard_port": 0,
    }
    for knob in KNOBS.values():
        if isinstance(knob.replay, PlannerArg) and (value := knob.value(sample)) != knob.unset:
            fields[knob.replay.name] = value
    for role, group in sample.parallel.groups:
        key = "prefill_engine_num_gpu" if role == "prefill" else "decode_engine_num_gpu"
        fields[key] = group.shape.gpus_per_worker
    if target == "sla":
        if sla is None or sla.ttft_ms is None or sla.itl_ms is None:
            raise PlannerUnsupported("planner scaling under a goodput goal needs sla.ttft_ms and sla.itl_ms")
        fields |= {"ttft_ms": sla.ttft_ms, "itl_ms": sla.itl_ms}
    if sample.planner.engine_model:
        # Without it the planner fits its model to what it has seen, and holds until that is enough.
        fields["ais_perf_model"] = {
            "roles": {
                WORKER_TYPES[role]: timing_config(sample, role, systems_path=systems_path)
                for role, _ in sample.parallel.groups
            }
        }
    return fields


def validate_planner_fields(planner: PlannerSettings, target: PlannerTarget) -> str | None:
    """What Dynamo's own ``PlannerConfig`` has against a scaling policy, or None when it takes it.

    Imports the planner (about a second the first time). Static policies are always fine.
    """
    if planner.scaling is None:
        return None
    import pydantic
    from dynamo.planner.config.planner_config import PlannerConfig

    fields = planner_fields(planner, target) | {"mode": "agg"}
    unknown = sorted(set(fields) - set(PlannerConfig.model_fields))
    if unknown:
        return f"the installed planner does not know {', '.join(unknown)}"
    try:
        PlannerConfig.model_validate(fields)
    except pydantic.ValidationError as error:
        return "; ".join(_problem(item["loc"], item["msg"]) for item in error.errors())
    return None


def _problem(location: tuple[int | str, ...], message: str) -> str:
    where = ".".join(str(part) for part in location)
    text = message.removeprefix("Value error, ")
    return f"{where}: {text}" if where else text
