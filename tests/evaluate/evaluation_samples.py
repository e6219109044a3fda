"""Samples and plans the evaluation tests share."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from spica.evaluate.protocol import ReplayPlan
from spica.planner.presets import PlannerTarget
from spica.traffic.replayed import SyntheticTraffic, Traffic
from spica.trial import Sla

VERSIONS: dict[Backend, str] = {"vllm": "0.24.0", "sglang": "0.5.14", "trtllm": "1.3.0rc20"}
DENSE = "Qwen/Qwen3-32B"
MOE = "Qwen/Qwen3-30B-A3B"
STATIC = PlannerSettings("disabled")
LOAD = PlannerSettings("load_180_5", enable_load_scaling=True, scaling=ScalingSettings(180, 5, 64, 16, 80, 5))
ROUTER = KvRouterSettings(overlap_score_credit=1.0, prefill_load_scale=1.0, router_temperature=0.0)
#: The load of the published reference numbers: isl 3000, osl 300, 64 in flight, 256 requests.
CLOSED = SyntheticTraffic(isl=3000, osl=300, num_requests=256, concurrency=64)


TP2 = ParallelShape(tp=2)
ENGINE = EngineSettings(max_num_batched_tokens=8192, max_num_seqs=256)
NO_OFFLOAD = KvManager()


@dataclass(frozen=True)
class Make:
    """A sample with everything at its default; ``tp`` x ``replicas`` workers of each role."""

    backend: Backend = "vllm"
    model: str = DENSE
    sku: str = "h200_sxm"
    shape: ParallelShape = TP2
    replicas: int = 4
    disagg: bool = False
    engine: EngineSettings = ENGINE
    kv: KvManager = NO_OFFLOAD
    router: KvRouterSettings | None = None
    planner: PlannerSettings = STATIC
    startup_time: float | None = None
    aic_nextn: int | None = None
    min_gpu_budget: int | None = None
    min_endpoint: int | None = None

    def sample(self) -> Sample:
        group = WorkerGroup(self.shape, self.replicas)
        roles: tuple[Role, ...] = ("prefill", "decode") if self.disagg else ("agg",)
        decode = replace(self.engine, enable_prefix_caching=False)
        return Sample(
            backend=self.backend,
            backend_version=VERSIONS[self.backend],
            deployment=Deployment(
                self.model,
                self.sku,
                gpu_budget=8,
                min_gpu_budget=self.min_gpu_budget,
                min_endpoint=self.min_endpoint,
                startup_time=self.startup_time,
                aic_nextn=self.aic_nextn,
                max_seq_len=40960,
            ),
            kv_manager=self.kv,
            parallel=DisaggConfig(group, group) if self.disagg else AggConfig(group),
            engines=tuple((role, decode if role == "decode" else self.engine) for role in roles),
            router_mode="kv_router" if self.router else "round_robin",
            router=self.router,
            planner=self.planner,
        )

    def plan(
        self, traffic: Traffic = CLOSED, *, target: PlannerTarget = "throughput", sla: Sla | None = None
    ) -> ReplayPlan:
        return ReplayPlan(self.sample(), traffic, target, sla)
