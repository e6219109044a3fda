"""The command line of one worker, per backend, for a measured candidate.

Flags of ``dynamo.vllm``, ``dynamo.sglang`` and ``dynamo.trtllm`` as of ai-dynamo 1.6.1: its argument parsers,
its deployment templates and the profiler's config modifiers, which state how each backend is told about
attention and expert parallelism.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from spica.deployment.sample import FlatConfig, Scalar

T = TypeVar("T")

NIXL_ROLE = {"prefill": "kv_producer", "decode": "kv_consumer"}


@dataclass(frozen=True, slots=True)
class Worker:
    """One role of a deployment, read from a candidate's flat config. ``role`` is agg, prefill or decode."""

    role: Literal["agg", "prefill", "decode"]
    backend: str
    model: str
    replicas: int
    tp: int
    pp: int
    attention_dp: int
    moe_tp: int
    moe_ep: int
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    gpu_memory_utilization: float
    enable_prefix_caching: bool
    context_length: int | None
    kv_events: bool

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


def _worker(config: FlatConfig, role: Literal["agg", "prefill", "decode"], prefix: str) -> Worker:
    context = config.get("context_length")
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
        max_num_batched_tokens=take(config, f"{role}_max_num_batched_tokens", int),
        max_num_seqs=take(config, f"{role}_max_num_seqs", int),
        block_size=take(config, f"{role}_block_size", int),
        gpu_memory_utilization=take(config, f"{role}_gpu_memory_utilization", float),
        enable_prefix_caching=take(config, f"{role}_enable_prefix_caching", bool),
        context_length=context if isinstance(context, int) else None,
        # Decode workers of a disaggregated deployment reuse no prefix and so have nothing to tell the router.
        kv_events=config.get("router_mode") == "kv_router" and role != "decode",
    )


def worker_arguments(worker: Worker, *, events_port: int | str = 20081) -> list[str]:
    """The arguments after ``python3 -m dynamo.<backend>``."""
    flags = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}[worker.backend]
    return list(flags(worker, events_port))


def _vllm(w: Worker, port: int | str) -> Iterator[str]:
    """vLLM: ``tp`` per rank, ranks by ``--data-parallel-size``; experts follow from both."""
    yield from ("--model", w.model, "--tensor-parallel-size", str(w.tp))
    if w.pp > 1:
        yield from ("--pipeline-parallel-size", str(w.pp))
    if w.attention_dp > 1:
        yield from ("--data-parallel-size", str(w.attention_dp))
    if w.moe_ep > 1:
        yield "--enable-expert-parallel"
    yield from ("--max-num-batched-tokens", str(w.max_num_batched_tokens))
    yield from ("--max-num-seqs", str(w.max_num_seqs), "--block-size", str(w.block_size))
    yield from ("--gpu-memory-utilization", str(w.gpu_memory_utilization))
    yield "--enable-prefix-caching" if w.enable_prefix_caching else "--no-enable-prefix-caching"
    if w.context_length is not None:
        yield from ("--max-model-len", str(w.context_length))
    if w.role != "agg":
        transfer = {"kv_connector": "NixlConnector", "kv_role": NIXL_ROLE[w.role]}
        yield from ("--disaggregation-mode", w.role, "--kv-transfer-config", _compact(transfer))
    if w.kv_events:
        yield from ("--kv-events-config", _events(port))


def _sglang(w: Worker, port: int | str) -> Iterator[str]:
    """SGLang: ``--tp`` counts all GPUs, and the batching limits are shared by the attention ranks."""
    yield from ("--model-path", w.model, "--served-model-name", w.model)
    yield from ("--tp", str(w.tp * w.attention_dp))
    if w.pp > 1:
        yield from ("--pp-size", str(w.pp))
    if w.attention_dp > 1:
        yield from ("--dp", str(w.attention_dp), "--enable-dp-attention")
    if w.moe_ep > 1:
        yield from ("--ep", str(w.moe_ep))
    yield from ("--chunked-prefill-size", str(w.max_num_batched_tokens * w.attention_dp))
    yield from ("--max-running-requests", str(w.max_num_seqs * w.attention_dp))
    yield from ("--page-size", str(w.block_size), "--mem-fraction-static", str(w.gpu_memory_utilization))
    if not w.enable_prefix_caching:
        yield "--disable-radix-cache"
    if w.context_length is not None:
        yield from ("--context-length", str(w.context_length))
    if w.role != "agg":
        yield from ("--disaggregation-mode", w.role, "--disaggregation-transfer-backend", "nixl")
        yield from ("--host", "0.0.0.0")  # the bootstrap port is found by dynamo.sglang itself
    if w.kv_events:
        yield from ("--kv-events-config", _events(port))


def _trtllm(w: Worker, port: int | str) -> Iterator[str]:
    """TensorRT-LLM: ``--tensor-parallel-size`` counts the ranks of attention data parallelism too."""
    yield from ("--model", w.model, "--served-model-name", w.model)
    yield from ("--tensor-parallel-size", str(w.tp * w.attention_dp))
    if w.pp > 1:
        yield from ("--pipeline-parallel-size", str(w.pp))
    if w.attention_dp > 1:
        yield "--enable-attention-dp"
    if w.moe_ep > 1:
        yield from ("--expert-parallel-size", str(w.moe_ep))
    yield from ("--max-num-tokens", str(w.max_num_batched_tokens), "--max-batch-size", str(w.max_num_seqs))
    yield from ("--kv-block-size", str(w.block_size))
    yield from ("--free-gpu-memory-fraction", str(w.gpu_memory_utilization))
    if w.context_length is not None:
        yield from ("--max-seq-len", str(w.context_length))
    if not w.enable_prefix_caching:
        yield from ("--override-engine-args", _compact({"kv_cache_config": {"enable_block_reuse": False}}))
    if w.role != "agg":
        yield from ("--disaggregation-mode", w.role)
    if w.kv_events:
        yield "--publish-kv-events"


def _events(port: int | str) -> str:
    return (
        f'{{"publisher":"zmq","topic":"kv-events","endpoint":"tcp://*:{port}","enable_kv_cache_events":true}}'
    )


def _compact(value: dict[str, object] | dict[str, str] | dict[str, dict[str, bool]]) -> str:
    return json.dumps(value, separators=(",", ":"))


def frontend_environment(config: FlatConfig) -> dict[str, str]:
    """Environment of ``python3 -m dynamo.frontend``: the router's mode and weights."""
    if config.get("router_mode") != "kv_router":
        return {"DYN_ROUTER_MODE": "round-robin"}
    names = {
        "overlap_score_credit": "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT",
        "prefill_load_scale": "DYN_ROUTER_PREFILL_LOAD_SCALE",
        "router_temperature": "DYN_ROUTER_TEMPERATURE",
        "host_cache_hit_weight": "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT",
        "disk_cache_hit_weight": "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT",
    }
    found = {env: str(config[key]) for key, env in names.items() if config.get(key) is not None}
    return {"DYN_ROUTER_MODE": "kv", "DYN_KV_CACHE_BLOCK_SIZE": str(workers_of(config)[0].block_size)} | found
