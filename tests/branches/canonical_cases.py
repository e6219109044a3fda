"""Samples, menus and replays that the tests of the canonical rules share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spica.branches.backend_pool import BackendFacts
from spica.branches.capacity import Capacity, KvBook
from spica.deployment.canonical import Menu
from spica.deployment.sample import (
    Backend,
    Deployment,
    EngineSettings,
    KvManager,
    KvRouterSettings,
    PlannerSettings,
    Sample,
    ScalingSettings,
)
from spica.deployment.shapes import AggConfig, DisaggConfig, ParallelShape, Role, WorkerGroup
from spica.planner.presets import FPM_SAMPLING, LOAD_SENSITIVITY, SCALING_POLICIES, PlannerTarget

VERSIONS: Mapping[Backend, str] = {"vllm": "0.24.0", "sglang": "0.5.14", "trtllm": "1.3.0rc20"}
DENSE = "Qwen/Qwen3-32B"
MOE = "Qwen/Qwen3-30B-A3B"
DEP2 = ParallelShape(tp=1, attention_dp=2, moe_ep=2)
TP2 = ParallelShape(tp=2)
NO_OFFLOAD = KvManager()
STATIC = PlannerSettings("disabled")
ROUTER = KvRouterSettings(1.0, 1.0, 0.0)


@dataclass(frozen=True)
class Case:
    """A deployment; ``seqs`` and ``tokens`` are those of the prefill role when disaggregated."""

    backend: Backend = "vllm"
    disagg: bool = False
    seqs: int = 256
    tokens: int = 8192
    decode_seqs: int = 256
    replicas: int = 1
    shape: ParallelShape = TP2
    router: KvRouterSettings | None = None
    planner: PlannerSettings = STATIC
    nextn: int | None = None
    kv: KvManager = NO_OFFLOAD
    decode_memory: float = 0.9

    @property
    def sample(self) -> Sample:
        group = WorkerGroup(self.shape, self.replicas)
        first = EngineSettings(self.tokens, self.seqs)
        decode = EngineSettings(8192, self.decode_seqs, 64, self.decode_memory, enable_prefix_caching=False)
        engines: tuple[tuple[Role, EngineSettings], ...] = (("agg", first),)
        if self.disagg:
            engines = (("prefill", first), ("decode", decode))
        return Sample(
            backend=self.backend,
            backend_version=VERSIONS[self.backend],
            deployment=Deployment(
                DENSE if self.shape.moe_ep == 1 else MOE,
                "h200_sxm",
                8,
                startup_time=20.0,
                aic_nextn=self.nextn,
                max_seq_len=40960,
            ),
            kv_manager=self.kv,
            parallel=DisaggConfig(group, group) if self.disagg else AggConfig(group),
            engines=engines,
            router_mode="round_robin" if self.router is None else "kv_router",
            router=self.router,
            planner=self.planner,
        )

    def change(self, **fields: object) -> Case:
        return replace(self, **fields)  # type: ignore[arg-type]


def scaling(policy: str, fpm: str, sensitivity: str) -> PlannerSettings:
    chosen, kept, shrink = SCALING_POLICIES[policy], FPM_SAMPLING[fpm], LOAD_SENSITIVITY[sensitivity]
    return PlannerSettings(
        policy,
        chosen.enable_throughput_scaling,
        chosen.enable_load_scaling,
        ScalingSettings(
            chosen.throughput_adjustment_interval_seconds,
            chosen.load_adjustment_interval_seconds,
            kept.max_num_fpm_samples,
            kept.fpm_sample_bucket_size,
            shrink.load_scaling_down_sensitivity,
            shrink.load_min_observations,
        ),
    )


def menu(
    sample: Sample,
    capacity: Capacity | None,
    *,
    seqs: tuple[int, ...] = (8, 24, 256, 1024),
    target: PlannerTarget = "throughput",
    round_robin: bool = True,
    kv_load: tuple[float, float] | None = None,
) -> Menu:
    """A menu of the same choices for every role."""
    roles = [role for role, _ in sample.engines]
    facts = BackendFacts(sample.backend_version, sample.deployment.model_name, True, 1, False)
    nextn = sample.deployment.aic_nextn or 0
    book = KvBook("h200_sxm", nextn, {sample.backend: facts}, dict.fromkeys(roles, seqs), capacity)
    return Menu(
        max_num_seqs=tuple((role, seqs) for role in roles),
        round_robin=round_robin,
        router=KvRouterSettings(0.0, 0.25, 0.2),
        fpm=FPM_SAMPLING["small"],
        sensitivity=LOAD_SENSITIVITY["aggressive"],
        planner_target=target,
        kv_load_range=kv_load,
        kv_tokens=book.tokens,
    )
