"""The command line of one worker, per backend, for a measured candidate.

Flags of ``dynamo.vllm``, ``dynamo.sglang`` and ``dynamo.trtllm`` as of ai-dynamo 1.6.1: its argument parsers,
its deployment templates and the profiler's config modifiers, which state how each backend is told about
attention and expert parallelism. The flag of a setting is said in its row of ``spica.knobs``; the flags of
the shape and of the role are made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from spica.deployment.sample import FlatConfig, Scalar
from spica.deployment.shapes import Role
from spica.knobs.bindings import Flag, Flags, FrontendEnv, Override, Switch
from spica.knobs.knob import Knob
from spica.knobs.setting import ValueType
from spica.knobs.table import KNOBS

T = TypeVar("T")

_TYPES: Final[dict[ValueType, type[str | int | float | bool]]] = {
    ValueType.STR: str,
    ValueType.INT: int,
    ValueType.FLOAT: float,
    ValueType.BOOL: bool,
}
NIXL_ROLE = {"prefill": "kv_producer", "decode": "kv_consumer"}


@dataclass(frozen=True, slots=True)
class Worker:
    """One role of a deployment, read from a candidate's flat config. ``role`` is agg, prefill or decode.

    ``settings`` are the knobs that the worker is told by flags, with their values, in the order of the flags.
    """

    role: Role
    backend: str
    model: str
    replicas: int
    tp: int
    pp: int
    attention_dp: int
    moe_tp: int
    moe_ep: int
    block_size: int
    kv_events: bool
    settings: tuple[tuple[str, Scalar], ...]

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.attention_dp


def take(config: FlatConfig, key: str, kind: type[T]) -> T:
    """``config[key]`` as ``kind``. Raises ValueError when it is missing or of another kind."""
    value: Scalar = config.get(key)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"a candidate's {key} is {value!r}, not {kind.__name__}")
    return value


def workers_of(config: FlatConfig) -> tuple[Worker, ...]:
    """The roles of a candidate: one for agg, prefill then decode for disagg."""
    if take(config, "deployment_mode", str) == "agg":
        return (_worker(config, "agg", ""),)
    return (_worker(config, "prefill", "prefill_"), _worker(config, "decode", "decode_"))


def _worker(config: FlatConfig, role: Role, prefix: str) -> Worker:
    return Worker(
        role=role,
        backend=take(config, "backend", str),
        model=take(config, "model_name", str),
        replicas=take(config, f"{prefix}replicas", int),
        tp=take(config, f"{prefix}tp", int),
        pp=take(config, f"{prefix}pp", int),
        attention_dp=take(config, f"{prefix}attention_dp", int),
        moe_tp=take(config, f"{prefix}moe_tp", int),
        moe_ep=take(config, f"{prefix}moe_ep", int),
        block_size=take(config, f"{role}_block_size", int),
        # Decode workers of a disaggregated deployment reuse no prefix and so have nothing to tell the router.
        kv_events=config.get("router_mode") == "kv_router" and role != "decode",
        settings=tuple((knob.name, _setting(config, knob)) for knob in _told(role)),
    )


def _told(role: Role) -> Iterator[Knob]:
    """The knobs that a worker's flags tell: those of its engine, then those of the whole deployment."""
    flags = [k for k in KNOBS.values() if isinstance(k.files, Flags) and k.name != "model_name"]
    yield from (knob for knob in flags if knob.role == role)
    yield from (knob for knob in flags if knob.role is None)


def _setting(config: FlatConfig, knob: Knob) -> Scalar:
    """What the candidate has. Raises ValueError for another type, or nothing where a value must be."""
    if config.get(knob.name) is None and (knob.setting.optional or knob.carried):
        return knob.unset
    return take(config, knob.name, _TYPES[knob.setting.type])


def worker_arguments(worker: Worker, *, events_port: int | str = 20081) -> list[str]:
    """The arguments after ``python3 -m dynamo.<backend>``."""
    shape, rest = {
        "vllm": (_vllm, _vllm_role),
        "sglang": (_sglang, _sglang_role),
        "trtllm": (_trtllm, _trtllm_role),
    }[worker.backend]
    return [*shape(worker), *_settings(worker), *rest(worker, events_port)]


def _settings(w: Worker) -> Iterator[str]:
    """The flags of the settings, as the table of knobs binds them; values in engine arguments come last."""
    overrides: dict[str, object] = {}
    for name, value in w.settings:
        flags = KNOBS[name].files
        assert isinstance(flags, Flags), name
        if value == KNOBS[name].unset:
            continue
        match flags.of(w.backend):
            case Flag(flag, shared):
                ranks = w.attention_dp if shared else 1
                yield from (flag, str(value * ranks if isinstance(value, int) else value))
            case Switch(on, off):
                switch = on if value else off
                if switch is not None:
                    yield switch
            case Override(path, default) if value != default:
                _put(overrides, path, value)
            case _:
                pass
    if overrides:
        yield from ("--override-engine-args", _compact(overrides))


def _put(overrides: dict[str, object], path: str, value: Scalar) -> None:
    *outer, name = path.split(".")
    for key in outer:
        inner = overrides.setdefault(key, {})
        assert isinstance(inner, dict), path
        overrides = inner
    overrides[name] = value


def _model(w: Worker) -> tuple[str, str]:
    flags = KNOBS["model_name"].files
    assert isinstance(flags, Flags)
    flag = flags.of(w.backend)
    assert isinstance(flag, Flag)
    return flag.name, w.model


def _vllm(w: Worker) -> Iterator[str]:
    """vLLM: ``tp`` per rank, ranks by ``--data-parallel-size``; experts follow from both."""
    yield from (*_model(w), "--tensor-parallel-size", str(w.tp))
    if w.pp > 1:
        yield from ("--pipeline-parallel-size", str(w.pp))
    if w.attention_dp > 1:
        yield from ("--data-parallel-size", str(w.attention_dp))
    if w.moe_ep > 1:
        yield "--enable-expert-parallel"


def _vllm_role(w: Worker, port: int | str) -> Iterator[str]:
    if w.role != "agg":
        transfer = {"kv_connector": "NixlConnector", "kv_role": NIXL_ROLE[w.role]}
        yield from ("--disaggregation-mode", w.role, "--kv-transfer-config", _compact(transfer))
    if w.kv_events:
        yield from ("--kv-events-config", _events(port))


def _sglang(w: Worker) -> Iterator[str]:
    """SGLang: ``--tp`` counts all GPUs, and the batching limits are shared by the attention ranks."""
    yield from (*_model(w), "--served-model-name", w.model)
    yield from ("--tp", str(w.tp * w.attention_dp))
    if w.pp > 1:
        yield from ("--pp-size", str(w.pp))
    if w.attention_dp > 1:
        yield from ("--dp", str(w.attention_dp), "--enable-dp-attention")
    if w.moe_ep > 1:
        yield from ("--ep", str(w.moe_ep))


def _sglang_role(w: Worker, port: int | str) -> Iterator[str]:
    if w.role != "agg":
        yield from ("--disaggregation-mode", w.role, "--disaggregation-transfer-backend", "nixl")
        yield from ("--host", "0.0.0.0")  # the bootstrap port is found by dynamo.sglang itself
    if w.kv_events:
        yield from ("--kv-events-config", _events(port))


def _trtllm(w: Worker) -> Iterator[str]:
    """TensorRT-LLM: ``--tensor-parallel-size`` counts the ranks of attention data parallelism too."""
    yield from (*_model(w), "--served-model-name", w.model)
    yield from ("--tensor-parallel-size", str(w.tp * w.attention_dp))
    if w.pp > 1:
        yield from ("--pipeline-parallel-size", str(w.pp))
    if w.attention_dp > 1:
        yield "--enable-attention-dp"
    if w.moe_ep > 1:
        yield from ("--expert-parallel-size", str(w.moe_ep))


def _trtllm_role(w: Worker, port: int | str) -> Iterator[str]:
    if w.role != "agg":
        yield from ("--disaggregation-mode", w.role)
    if w.kv_events:
        yield "--publish-kv-events"


def _events(port: int | str) -> str:
    return (
        f'{{"publisher":"zmq","topic":"kv-events","endpoint":"tcp://*:{port}","enable_kv_cache_events":true}}'
    )


def _compact(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"))


def frontend_environment(config: FlatConfig) -> dict[str, str]:
    """Environment of ``python3 -m dynamo.frontend``: the router's mode and weights."""
    if config.get("router_mode") != "kv_router":
        return {"DYN_ROUTER_MODE": "round-robin"}
    found = {
        knob.files.name: str(config[name])
        for name, knob in KNOBS.items()
        if isinstance(knob.files, FrontendEnv) and name != "router_mode" and config.get(name) is not None
    }
    return {"DYN_ROUTER_MODE": "kv", "DYN_KV_CACHE_BLOCK_SIZE": str(workers_of(config)[0].block_size)} | found
