"""From one role of a sample to the engine arguments of Dynamo Replay (``ai-dynamo`` 1.6.1).

The replay takes a nested mapping. Where a setting stands in it is said in its row of ``spica.knobs``; what
follows from the shape is made here.
The KV pool is never given (``num_gpu_blocks``): the runtime then sizes it from the same memory estimator that
judges feasibility, for this model, shape, memory share and these batching limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from spica.deployment.sample import KvManager, Sample, Scalar
from spica.deployment.shapes import ParallelShape, Role
from spica.knobs.bindings import Holder, Inert
from spica.knobs.knob import Knob, engine_settings
from spica.knobs.table import DERIVED, KNOBS
from spica.knobs.when import conditions_of

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
EngineArgs = dict[str, Json]
WorkerType = Literal["aggregated", "prefill", "decode"]

WORKER_TYPES: Final[dict[Role, WorkerType]] = {"agg": "aggregated", "prefill": "prefill", "decode": "decode"}

#: Roles with a second local KV tier; a disaggregated decode worker has none.
OFFLOAD_ROLES: Final[tuple[Role, ...]] = ("agg", "prefill")

#: The deepest speculation (draft tokens per step) the 1.6.1 runtime models.
MAX_NEXTN: Final = 5


def engine_args(sample: Sample, role: Role, *, systems_path: str | None = None) -> EngineArgs:
    """The engine arguments of ``role`` (one of ``sample.parallel.groups``).

    ``systems_path`` is a folder of performance tables to use in place of the installed ones.
    """
    shape = dict(sample.parallel.groups)[role].shape
    timing = shape_config(role, shape)
    if systems_path is not None:
        timing["systems_paths"] = [systems_path]
    args: EngineArgs = {
        "engine": {
            "worker_type": WORKER_TYPES[role],
            "timing_model": {"type": "external", "provider": "ais", "config": timing},
        },
        "dp_size": shape.attention_dp,
        "tensor_parallel_size": shape.tp,
    }
    for path, value in _settings(sample, role):
        _put(args, path, value)
    return args


def timing_config(sample: Sample, role: Role, *, systems_path: str | None = None) -> EngineArgs:
    """The identity of the engine of ``role`` in the performance data: its fields are those of the SDK's
    ``ForwardPassPerfModelConfig``."""
    args: Json = engine_args(sample, role, systems_path=systems_path)
    for name in ("engine", "timing_model", "config"):
        assert isinstance(args, dict), name
        args = args[name]
    assert isinstance(args, dict)
    return args


def _settings(sample: Sample, role: Role) -> Iterator[tuple[str, Scalar]]:
    """Every setting that acts on this candidate, by its dotted path."""
    found = conditions_of(sample)
    shape = dict(sample.parallel.groups)[role].shape
    for row, arg, place in engine_settings((*KNOBS.values(), *DERIVED), role):
        if not arg.fits(sample.backend, shape) or (isinstance(row, Knob) and row.objection(found)):
            continue
        value = place.read(sample, role)
        if value in arg.off:
            continue
        if isinstance(row, Knob):
            value = row.typed(value)
        yield from ((path, value) for path in arg.of(sample.backend))


def _put(args: EngineArgs, path: str, value: Scalar) -> None:
    *outer, name = path.split(".")
    for key in outer:
        inner = args.setdefault(key, {})
        assert isinstance(inner, dict), path
        args = inner
    args[name] = value


def unsupported_reason(sample: Sample) -> str | None:
    """Why the installed replay cannot model this sample at all, or None when nothing is known against it."""
    nextn = sample.deployment.aic_nextn
    if nextn and nextn > MAX_NEXTN:
        return f"aic_nextn {nextn}: the replay models a speculation depth of 1 to {MAX_NEXTN}"
    if sample.kv_manager.num_g2_blocks <= 0:
        return None
    if sample.backend != "vllm":
        return (
            f"host KV offload (num_g2_blocks > 0): the replay models it for vllm only, not {sample.backend}"
        )
    if nextn:
        return (
            "host KV offload (num_g2_blocks > 0): the replay models it without speculation (aic_nextn) only"
        )
    for role, engine in sample.engines:
        if role in OFFLOAD_ROLES and not engine.enable_prefix_caching:
            return f"host KV offload (num_g2_blocks > 0) needs {role}_enable_prefix_caching"
    return None


def ignored_settings(kv_manager: KvManager) -> tuple[str, ...]:
    """Settings the replay has no place for, each with what that means; to be shown once per sweep."""
    if kv_manager.num_g2_blocks <= 0:
        return ()
    told = []
    for knob in KNOBS.values():
        if not isinstance(knob.replay, Inert) or not knob.places:
            continue
        (place,) = knob.places
        if place.holder is Holder.KV_MANAGER and (value := getattr(kv_manager, place.name)) is not None:
            told.append(f"{knob.name} {value}: {knob.replay.reason}")
    return tuple(told)


def shape_config(role: Role, shape: ParallelShape) -> dict[str, Json]:
    """What the timing of an engine is told of its shape."""
    config: dict[str, Json] = {
        "worker_type": WORKER_TYPES[role],
        "tp": shape.tp,
        "attention_dp": shape.attention_dp,
    }
    if shape.pp > 1:
        config["pp"] = shape.pp
    if shape.moe_tp * shape.moe_ep > 1:
        # The runtime wants tp * attention_dp == moe_tp * moe_ep as soon as both are given, so a dense shape
        # must not name them; without them a one-GPU MoE worker is taken for what it is.
        config["moe_tp_size"] = shape.moe_tp
        config["moe_ep_size"] = shape.moe_ep
    return config
