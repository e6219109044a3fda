"""From one role of a sample to the engine arguments of Dynamo Replay (``ai-dynamo`` 1.6.1).

The replay takes a nested mapping; this module is where it is made, and nothing else in Spica knows its keys.
The KV pool is never given (``num_gpu_blocks``): the runtime then sizes it from the same memory estimator that
judges feasibility, for this model, shape, memory share and these batching limits.
"""

from __future__ import annotations

from typing import Final, Literal

from spica.deployment.sample import Backend, EngineSettings, KvManager, Sample
from spica.deployment.shapes import ParallelShape, Role

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
EngineArgs = dict[str, Json]
WorkerType = Literal["aggregated", "prefill", "decode"]

WORKER_TYPES: Final[dict[Role, WorkerType]] = {"agg": "aggregated", "prefill": "prefill", "decode": "decode"}

#: The name under which each backend takes its share of GPU memory (of all memory for vLLM and SGLang, of what
#: weights leave free for TensorRT-LLM).
MEMORY_KEYS: Final[dict[Backend, str]] = {
    "vllm": "gpu_memory_utilization",
    "sglang": "mem_fraction_static",
    "trtllm": "free_gpu_memory_fraction",
}

#: Roles with a second local KV tier; a disaggregated decode worker has none.
OFFLOAD_ROLES: Final[tuple[Role, ...]] = ("agg", "prefill")

#: The deepest speculation (draft tokens per step) the 1.6.1 runtime models.
MAX_NEXTN: Final = 5


def engine_args(sample: Sample, role: Role, *, systems_path: str | None = None) -> EngineArgs:
    """The engine arguments of ``role`` (one of ``sample.parallel.groups``).

    ``systems_path`` is a folder of performance tables to use in place of the installed ones.
    """
    shape = dict(sample.parallel.groups)[role].shape
    engine = _rank_args(sample, role, sample.engine(role))
    engine["timing_model"] = {
        "type": "external",
        "provider": "ais",
        "config": _timing_config(sample, role, shape, systems_path),
    }
    args: EngineArgs = {
        "engine": engine,
        "dp_size": shape.attention_dp,
        "tensor_parallel_size": shape.tp,
        MEMORY_KEYS[sample.backend]: sample.engine(role).gpu_memory_utilization,
    }
    if sample.deployment.startup_time is not None:
        args["startup_time"] = float(sample.deployment.startup_time)
    return args


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
    for role, engine in sample.engines:
        if role in OFFLOAD_ROLES and not engine.enable_prefix_caching:
            return f"host KV offload (num_g2_blocks > 0) needs {role}_enable_prefix_caching"
    return None


def ignored_settings(kv_manager: KvManager) -> tuple[str, ...]:
    """Settings the replay has no place for, each with what that means; to be shown once per sweep."""
    if kv_manager.num_g2_blocks > 0 and kv_manager.offload_batch_size is not None:
        return (
            f"offload_batch_size {kv_manager.offload_batch_size}: the replay moves blocks as they come, "
            "in no batches; the measured numbers do not depend on it",
        )
    return ()


def _rank_args(sample: Sample, role: Role, settings: EngineSettings) -> dict[str, Json]:
    args: dict[str, Json] = {
        "backend": sample.backend,
        "worker_type": WORKER_TYPES[role],
        "block_size": settings.block_size,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "enable_prefix_caching": settings.enable_prefix_caching,
    }
    if sample.backend == "sglang":
        # SGLang's own names for the tokens of one step; without them it fills steps to its default 8192.
        args["sglang"] = {
            "chunked_prefill_size": settings.max_num_batched_tokens,
            "max_prefill_tokens": settings.max_num_batched_tokens,
        }
    if sample.deployment.max_seq_len is not None:
        # The planner does not scale prefill workers without it.
        args["max_model_len"] = sample.deployment.max_seq_len
    if sample.deployment.aic_nextn:
        args["aic_nextn"] = sample.deployment.aic_nextn
    if role in OFFLOAD_ROLES and sample.kv_manager.num_g2_blocks > 0:
        args["native_host_offload"] = _offload(sample.kv_manager)
        args["kv_cache_bytes_per_token"] = sample.kv_manager.kv_bytes_per_token
    return args


def _offload(kv: KvManager) -> dict[str, Json]:
    offload: dict[str, Json] = {"num_host_blocks": kv.num_g2_blocks}
    if kv.bandwidth_g1_to_g2_gbps is not None:
        offload["d2h_bandwidth_gbps"] = kv.bandwidth_g1_to_g2_gbps
    if kv.bandwidth_g2_to_g1_gbps is not None:
        offload["h2d_bandwidth_gbps"] = kv.bandwidth_g2_to_g1_gbps
    return offload


def _timing_config(
    sample: Sample, role: Role, shape: ParallelShape, systems_path: str | None
) -> dict[str, Json]:
    config: dict[str, Json] = {
        "model": sample.deployment.model_name,
        "system": sample.deployment.hardware_sku,
        "backend": sample.backend,
        "backend_version": sample.backend_version,
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
    if sample.fmha_quant_mode is not None:
        config["fmha_quant_mode"] = sample.fmha_quant_mode
    if sample.deployment.aic_nextn:
        config["nextn"] = sample.deployment.aic_nextn
    if systems_path is not None:
        config["systems_paths"] = [systems_path]
    return config
