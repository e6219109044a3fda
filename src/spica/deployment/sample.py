"""A sample: one complete, concrete deployment, unrolled to the settings it really uses.

A sample is made once, from a suggestion (``branches``), and never decoded again. ``Sample.config()`` is its
flat form for people and files; ``Sample.key()`` its identity: two samples with equal keys are the same
candidate and are measured once.

A setting that code reads by name has a field of its own. Any other stands in ``more`` of the part it belongs
to; ``spica.knobs`` says which part that is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spica.deployment.shapes import Mode, ParallelConfig, ParallelShape, Role

Scalar = str | int | float | bool | None
FlatConfig = dict[str, Scalar]
#: Settings that are only carried from the configuration to the replay and the deployment files, by name,
#: sorted; what stands at its unset value is left out, so that a new setting changes no old key.
Carried = tuple[tuple[str, Scalar], ...]
Backend = Literal["vllm", "sglang", "trtllm"]
RouterMode = Literal["kv_router", "round_robin"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """The pinned scalars every candidate of a sweep shares.

    ``max_seq_len`` is the longest sequence an engine accepts, in tokens: ``context_length``, or the model's
    maximum. It follows from the others and is not shown among them.
    """

    model_name: str
    hardware_sku: str
    gpu_budget: int
    min_gpu_budget: int | None = None
    min_endpoint: int | None = None
    context_length: int | None = None
    startup_time: float | None = None
    aic_nextn: int | None = None
    max_seq_len: int | None = None
    more: Carried = ()


@dataclass(frozen=True, slots=True)
class KvManager:
    """Host (G2) offload. ``num_g2_blocks == 0`` is off. Bandwidths in GB/s."""

    num_g2_blocks: int = 0
    kv_bytes_per_token: int | None = None
    bandwidth_g1_to_g2_gbps: float | None = None
    bandwidth_g2_to_g1_gbps: float | None = None
    offload_batch_size: int | None = None
    more: Carried = ()


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One role's engine: batching knobs, KV block size in tokens, share of GPU memory, prefix caching."""

    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int = 64
    gpu_memory_utilization: float = 0.9
    enable_prefix_caching: bool = True
    more: Carried = ()


@dataclass(frozen=True, slots=True)
class KvRouterSettings:
    """The KV router's weights; present only under ``kv_router``. The two cache-hit weights are None (the
    router's own default) while host offload is off."""

    overlap_score_credit: float
    prefill_load_scale: float
    router_temperature: float
    host_cache_hit_weight: float | None = None
    disk_cache_hit_weight: float | None = None
    more: Carried = ()


@dataclass(frozen=True, slots=True)
class PredictorSettings:
    """The load forecaster of predictive scaling; only the family's own fields are set."""

    load_predictor: Literal["constant", "arima", "prophet", "kalman"]
    load_predictor_log1p: bool = False
    prophet_window_size: int | None = None
    kalman_q_level: float | None = None
    kalman_q_trend: float | None = None
    kalman_r: float | None = None
    kalman_min_points: int | None = None


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """Everything the planner is told when a scaling loop runs. Intervals in seconds."""

    throughput_adjustment_interval_seconds: int
    load_adjustment_interval_seconds: int
    max_num_fpm_samples: int
    fpm_sample_bucket_size: int
    load_scaling_down_sensitivity: int
    load_min_observations: int
    predictor: PredictorSettings | None = None


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """The chosen scaling policy. ``policy`` is the preset id, or the canonical JSON of a custom dict.
    ``scaling`` is None when both loops are off (a static deployment). ``engine_model``: the planner is given
    the engine's timing of each role, from which it estimates latencies and capacity against an SLA."""

    policy: str
    enable_throughput_scaling: bool = False
    enable_load_scaling: bool = False
    scaling: ScalingSettings | None = None
    engine_model: bool = False


@dataclass(frozen=True, slots=True)
class KvLoad:
    """How a KV-load ratio became a concurrency (all capacities in tokens; see ``deployment/kv_load.py``)."""

    kv_load_ratio: float
    concurrency: int
    concurrency_capacity: int
    capacity_tokens: int
    role_capacity_tokens: tuple[tuple[Role, int], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One concrete deployment.

    ``engines`` holds one entry per active role, in the order of ``parallel.groups``. ``fmha_quant_mode`` is
    the number format prefill attention is timed in, set only where the data lacks the model's own;
    ``moe_quant_mode`` that of the experts, set only where the engine runs them in another than the
    checkpoint's.
    """

    backend: Backend
    backend_version: str
    deployment: Deployment
    kv_manager: KvManager
    parallel: ParallelConfig
    engines: tuple[tuple[Role, EngineSettings], ...]
    router_mode: RouterMode
    router: KvRouterSettings | None
    planner: PlannerSettings
    concurrency: int | None = None
    kv_load: KvLoad | None = None
    fmha_quant_mode: str | None = None
    moe_quant_mode: str | None = None

    @property
    def mode(self) -> Mode:
        return self.parallel.mode

    @property
    def used_gpus(self) -> int:
        return self.parallel.used_gpus

    def engine(self, role: Role) -> EngineSettings:
        return dict(self.engines)[role]

    def config(self) -> FlatConfig:
        """The flat form: only the settings this deployment uses, under the names of the reference."""
        flat: FlatConfig = {
            "deployment_mode": self.mode,
            "backend": self.backend,
            "backend_version": self.backend_version,
        }
        if self.fmha_quant_mode is not None:
            flat["fmha_quant_mode"] = self.fmha_quant_mode
        if self.moe_quant_mode is not None:
            flat["moe_quant_mode"] = self.moe_quant_mode
        flat |= _fields(self.deployment, skip=("max_seq_len",))
        flat |= _fields(self.kv_manager)
        for role, group in self.parallel.groups:
            flat |= _shape_fields("" if role == "agg" else f"{role}_", group.shape, group.replicas)
        flat["used_gpus"] = self.used_gpus
        for role, engine in self.engines:
            flat |= _fields(engine, prefix=f"{role}_")
        flat["router_mode"] = self.router_mode
        if self.router is not None:
            flat |= _fields(self.router, skip_none=True)
        flat |= self._planner_fields()
        if self.concurrency is not None:
            flat["concurrency"] = self.concurrency
        if self.kv_load is not None:
            flat |= _kv_load_fields(self.kv_load)
        return flat

    def key(self) -> str:
        """A stable identity: the SHA-256 of the canonical JSON of ``config()``, 32 hex digits."""
        text = json.dumps(self.config(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _planner_fields(self) -> FlatConfig:
        flat: FlatConfig = {
            "planner_scaling_policy": self.planner.policy,
            "enable_throughput_scaling": self.planner.enable_throughput_scaling,
            "enable_load_scaling": self.planner.enable_load_scaling,
        }
        if self.planner.engine_model:
            flat["planner_engine_model"] = True
        scaling = self.planner.scaling
        if scaling is not None:
            flat |= _fields(scaling, skip=("predictor",))
            if scaling.predictor is not None:
                flat |= _fields(scaling.predictor, skip_none=True)
        return flat


def _shape_fields(prefix: str, shape: ParallelShape, replicas: int) -> FlatConfig:
    flat = _fields(shape, prefix=prefix)
    flat[f"{prefix}strategy"] = shape.strategy
    flat[f"{prefix}replicas"] = replicas
    return flat


def _kv_load_fields(load: KvLoad) -> FlatConfig:
    flat: FlatConfig = {
        "kv_load_ratio": load.kv_load_ratio,
        "concurrency": load.concurrency,
        "kv_load_concurrency_capacity": load.concurrency_capacity,
        "kv_load_capacity_tokens": load.capacity_tokens,
    }
    for role, tokens in load.role_capacity_tokens:
        flat[f"{role}_kv_capacity_tokens"] = tokens
    return flat


def _fields(
    value: object, *, prefix: str = "", skip: tuple[str, ...] = (), skip_none: bool = False
) -> FlatConfig:
    """The scalar fields of a frozen dataclass as a flat mapping."""
    flat: FlatConfig = {}
    for name in _field_names(value):
        if name in skip:
            continue
        if name == "more":
            more: Carried = getattr(value, name)
            flat |= {prefix + key: item for key, item in more}
            continue
        item: Scalar = getattr(value, name)
        if item is None and skip_none:
            continue
        flat[prefix + name] = item
    return flat


def _field_names(value: object) -> Mapping[str, object]:
    fields: Mapping[str, object] = type(value).__dataclass_fields__  # type: ignore[attr-defined]
    return fields
