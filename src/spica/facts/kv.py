"""How many tokens of KV cache one rank of a worker has room for, by the installed memory estimator."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from spica.deployment.shapes import ParallelShape
from spica.errors import StackError
from spica.storage.remembered import Notes

_ESTIMATOR = "aisimulate_core.sdk.memory"


@dataclass(frozen=True, slots=True)
class KvQuery:
    """One worker setting. ``model`` is a ``ModelFacts.path``; ``memory_fraction`` is a fraction of all GPU
    memory for vllm and sglang, of the memory left after loading for trtllm; ``nextn`` is the
    speculative-decode depth.
    """

    model: str
    sku: str
    backend: str
    backend_version: str
    shape: ParallelShape
    max_num_tokens: int
    max_batch_size: int
    memory_fraction: float = 0.9
    nextn: int = 0


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Bytes of one GPU: its capacity and what is taken before any KV cache."""

    gpu_bytes: int
    weights_bytes: int
    activations_bytes: int
    runtime_bytes: int
    communication_bytes: int


@dataclass(frozen=True, slots=True)
class KvCapacity:
    """KV cache of one rank. ``tokens`` is None when the worker cannot run at all, and ``reason`` then says
    why; ``breakdown`` is None when the model could not even be laid out in that shape.
    """

    tokens: int | None
    kv_bytes: int = 0
    bytes_per_token: int = 0
    breakdown: MemoryBreakdown | None = None
    reason: str = ""


_QUERY = TypeAdapter(KvQuery)
_CAPACITY = TypeAdapter(KvCapacity)


def estimator_available() -> bool:
    """Whether the memory estimator can be imported; without it there is no KV filter and no KV-derived
    load.
    """
    try:
        importlib.import_module(_ESTIMATOR)
    except ImportError:
        return False
    return True


@lru_cache(maxsize=65536)
def kv_capacity(query: KvQuery) -> KvCapacity:
    """KV tokens per rank, or the reason why this worker is infeasible.

    Infeasible is a worker whose weights and activations leave no room, and a shape that cannot shard the
    model (heads, experts or quantization blocks that do not divide). The first call of a process reads
    tables (seconds), later ones take about 10 ms; an answer is kept, for later processes too.

    Raises StackError without the estimator. What the estimator raises for any other cause (an unknown
    version, a fraction out of range, damaged data) is not caught.
    """
    memory = _estimator()
    notes = _notes(query.model, query.sku, query.backend, query.backend_version)
    question = _QUERY.dump_json(query).decode()
    known = notes.get(question)
    if known is not None:
        try:
            return _CAPACITY.validate_json(known)
        except ValidationError:
            pass  # damaged: asked anew
    found = _asked(query, memory)
    notes.add(question, _CAPACITY.dump_json(found).decode())
    return found


@lru_cache(maxsize=64)
def _notes(*subject: str) -> Notes:
    return Notes(["KV capacity", *subject])


def _asked(query: KvQuery, memory: ModuleType) -> KvCapacity:
    try:
        found = memory.estimate_kv_cache(
            query.model,
            query.sku,
            query.backend,
            memory_fraction_kind="of_free" if query.backend == "trtllm" else "of_total",
            memory_fraction_value=query.memory_fraction,
            **_arguments(query),
        )
    except ValueError as error:
        return _infeasible(query, error, memory)
    parts: Mapping[str, int] = found["memory_breakdown"]
    return KvCapacity(
        tokens=int(found["total_kv_size_tokens"]),
        kv_bytes=int(found["total_kv_size_bytes"]),
        bytes_per_token=int(found["kv_size_per_token_bytes"]),
        breakdown=_breakdown(int(found["total_gpu_capacity_bytes"]), parts),
    )


def _arguments(query: KvQuery) -> dict[str, Any]:
    """What the estimator's whole and partial entry points both take."""
    shape = query.shape
    return {
        "backend_version": query.backend_version,
        "max_num_tokens": query.max_num_tokens,
        "max_batch_size": query.max_batch_size,
        "tp_size": shape.tp,
        "pp_size": shape.pp,
        "attention_dp_size": shape.attention_dp,
        "moe_tp_size": shape.moe_tp,
        "moe_ep_size": shape.moe_ep,
        "nextn": query.nextn,
    }


def _infeasible(query: KvQuery, error: ValueError, memory: ModuleType) -> KvCapacity:
    """The capacity that a ValueError of the estimator stands for; raises it again when it is not about the
    shape.
    """
    text = str(error)
    if "no KV budget" in text or "insufficient model metadata" in text:
        estimator = memory.KVCacheEstimator.from_request(
            query.model, query.sku, query.backend, **_arguments(query)
        )
        parts = estimator.breakdown
        capacity = int(parts["gpu_memory_capacity_bytes"])
        return KvCapacity(tokens=None, reason=text, breakdown=_breakdown(capacity, parts))
    # The estimator wraps whatever went wrong while the model was laid out. Its refusals of a shape are these
    # three there (heads that do not divide are an assertion); anything else is a defect and must be seen.
    if "for KV-cache estimation:" in text and isinstance(
        error.__cause__, ValueError | NotImplementedError | AssertionError
    ):
        return KvCapacity(tokens=None, reason=str(error.__cause__).strip())
    raise error


def _breakdown(gpu_bytes: int, parts: Mapping[str, float]) -> MemoryBreakdown:
    return MemoryBreakdown(
        gpu_bytes=gpu_bytes,
        weights_bytes=int(parts["weights_bytes"]),
        activations_bytes=int(parts["activations_bytes"]),
        runtime_bytes=int(parts["runtime_overhead_bytes"]),
        communication_bytes=int(parts["comm_overhead_bytes"]),
    )


def _estimator() -> ModuleType:
    try:
        return importlib.import_module(_ESTIMATOR)
    except ImportError as error:
        raise StackError(
            f"the KV-cache memory estimator cannot be imported: {error}",
            remedy="install the pinned environment (requirements.lock), which has it",
        ) from error
