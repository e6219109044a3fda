"""The ``search_space`` block: the knobs to explore and the pinned context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spica.config.block import Block, Converted, Rule, is_composite
from spica.config.shapes import parallel_config
from spica.deployment.sample import Backend, RouterMode
from spica.deployment.shapes import Mode, ParallelConfig
from spica.errors import Problem
from spica.knobs.setting import Setting
from spica.knobs.table import KNOBS, KnobKind, default
from spica.planner.predictors import PredictorSpec, predictor_problems, resolve_predictor
from spica.planner.presets import (
    PLANNER_PRESETS,
    FpmSampling,
    LoadSensitivity,
    ScalingPolicy,
    composite_problems,
    resolve_composite,
)


def _budget(space: SearchSpace) -> Iterator[Problem]:
    low = space.min_gpu_budget
    if low is not None and low > space.gpu_budget:
        yield Problem(
            f"{low} is more than gpu_budget ({space.gpu_budget})",
            "search_space.min_gpu_budget",
            allowed=f"1 to {space.gpu_budget}",
        )


def _pins(space: SearchSpace) -> Iterator[Problem]:
    if not space.parallel_configs:
        return
    if len(space.deployment_mode) != 1:
        modes = ", ".join(space.deployment_mode)
        yield Problem(
            f"parallel_configs needs exactly one mode, not {modes}",
            "search_space.deployment_mode",
            remedy=f"write deployment_mode: [{space.parallel_configs[0].mode}]",
        )
        return
    (mode,) = space.deployment_mode
    for index, config in enumerate(space.parallel_configs):
        key = f"search_space.parallel_configs[{index}]"
        if config.mode != mode:
            form = "{prefill: {...}, decode: {...}}" if mode == "disagg" else "{tp: N, ...}"
            message = f"this is {config.mode} config, but deployment_mode is [{mode}]"
            yield Problem(
                message.replace("is agg", "is an agg").replace("is disagg", "is a disagg"), key, allowed=form
            )
        elif config.used_gpus > space.gpu_budget:
            yield Problem(
                f"it uses {config.used_gpus} GPUs, more than gpu_budget ({space.gpu_budget})",
                key,
                remedy="raise gpu_budget, or take fewer replicas",
            )


def _offload(space: SearchSpace) -> Iterator[Problem]:
    if space.num_g2_blocks > 0 and space.kv_bytes_per_token is None:
        yield Problem(
            f"it is required because num_g2_blocks is {space.num_g2_blocks}",
            "search_space.kv_bytes_per_token",
            allowed=KNOBS["kv_bytes_per_token"].setting.allowed,
            remedy="offload cannot be replayed without the size of a token's KV cache",
        )


_ADMISSION = tuple(name for name, knob in KNOBS.items() if knob.group.startswith("Admission"))


def _admission(space: SearchSpace) -> Iterator[Problem]:
    if "kv_router" not in space.router_mode:
        return
    for name in _ADMISSION:
        if getattr(space, name) != default(name):
            yield Problem(
                "admission control cannot be replayed with kv_router",
                f"search_space.{name}",
                remedy="leave it out, or write router_mode: [round_robin]",
            )


class SearchSpace(Block):
    """Every knob of ``spica.knobs.table``, decoded: presets are typed policies, pins are typed configs.

    List knobs are tuples without duplicates. Units and meanings are in ``docs/knobs.md``. Raises ConfigError.
    """

    path: ClassVar[str] = "search_space"
    stand_ins = {"model_name": "?", "hardware_sku": "?"}  # noqa: RUF012 - a ClassVar of the base
    rules = (
        Rule(("gpu_budget", "min_gpu_budget"), _budget),
        Rule(("parallel_configs", "deployment_mode", "gpu_budget"), _pins),
        Rule(("num_g2_blocks", "kv_bytes_per_token"), _offload),
        Rule(("router_mode", *_ADMISSION), _admission),
    )

    deployment_mode: tuple[Mode, ...] = default("deployment_mode")
    backend: tuple[Backend, ...] = default("backend")
    model_name: str
    hardware_sku: str
    gpu_budget: int = default("gpu_budget")
    min_gpu_budget: int | None = default("min_gpu_budget")
    min_endpoint: int | None = default("min_endpoint")
    context_length: int | None = default("context_length")
    startup_time: float | None = default("startup_time")
    aic_nextn: int | None = default("aic_nextn")
    parallel_configs: tuple[ParallelConfig, ...] = default("parallel_configs")

    prefill_max_num_batched_tokens: tuple[int, ...] = default("prefill_max_num_batched_tokens")
    prefill_max_num_seqs: tuple[int, ...] = default("prefill_max_num_seqs")
    prefill_block_size: int = default("prefill_block_size")
    prefill_gpu_memory_utilization: float = default("prefill_gpu_memory_utilization")
    prefill_enable_prefix_caching: bool = default("prefill_enable_prefix_caching")

    decode_max_num_batched_tokens: tuple[int, ...] = default("decode_max_num_batched_tokens")
    decode_max_num_seqs: tuple[int, ...] = default("decode_max_num_seqs")
    decode_block_size: int = default("decode_block_size")
    decode_gpu_memory_utilization: float = default("decode_gpu_memory_utilization")
    decode_enable_prefix_caching: bool = default("decode_enable_prefix_caching")

    agg_max_num_batched_tokens: tuple[int, ...] = default("agg_max_num_batched_tokens")
    agg_max_num_seqs: tuple[int, ...] = default("agg_max_num_seqs")
    agg_block_size: int = default("agg_block_size")
    agg_gpu_memory_utilization: float = default("agg_gpu_memory_utilization")
    agg_enable_prefix_caching: bool = default("agg_enable_prefix_caching")

    num_g2_blocks: int = default("num_g2_blocks")
    kv_bytes_per_token: int | None = default("kv_bytes_per_token")
    bandwidth_g1_to_g2_gbps: float | None = default("bandwidth_g1_to_g2_gbps")
    bandwidth_g2_to_g1_gbps: float | None = default("bandwidth_g2_to_g1_gbps")
    offload_batch_size: int | None = default("offload_batch_size")

    router_mode: tuple[RouterMode, ...] = default("router_mode")
    overlap_score_credit: tuple[float, ...] = default("overlap_score_credit")
    prefill_load_scale: tuple[float, ...] = default("prefill_load_scale")
    router_temperature: tuple[float, ...] = default("router_temperature")
    host_cache_hit_weight: tuple[float, ...] = default("host_cache_hit_weight")
    disk_cache_hit_weight: tuple[float, ...] = default("disk_cache_hit_weight")

    active_decode_blocks_threshold: int | None = default("active_decode_blocks_threshold")
    active_prefill_tokens_threshold: int | None = default("active_prefill_tokens_threshold")
    active_prefill_tokens_threshold_frac: float | None = default("active_prefill_tokens_threshold_frac")
    no_admission_control: bool = default("no_admission_control")

    planner_scaling_policy: tuple[ScalingPolicy, ...] = default("planner_scaling_policy")
    planner_fpm_sampling: tuple[FpmSampling, ...] = default("planner_fpm_sampling")
    planner_load_sensitivity: tuple[LoadSensitivity, ...] = default("planner_load_sensitivity")
    load_predictor_candidates: tuple[PredictorSpec, ...] = default("load_predictor_candidates")

    @classmethod
    def convert(cls, setting: Setting, value: object, key: str, notices: list[Problem]) -> Converted | None:
        name = setting.name
        if name == "decode_enable_prefix_caching" and value is True:
            notices.append(Problem("prefix caching is always off on decode workers; set to false", key))
            return False, ()
        if KNOBS[name].kind is KnobKind.PARALLEL:
            return parallel_config(value, key)
        if not is_composite(setting):
            return None
        if name in PLANNER_PRESETS:
            problems = composite_problems(name, value, key)
            return (value if problems else resolve_composite(name, value)), problems
        if isinstance(value, PredictorSpec):
            return value, ()
        problems = predictor_problems(value, key)
        if problems or not isinstance(value, (str, dict)):
            return value, problems
        return resolve_predictor(value), ()

    @property
    def scales(self) -> bool:
        """Whether any scaling policy runs a planner loop."""
        return any(not policy.is_static for policy in self.planner_scaling_policy)
