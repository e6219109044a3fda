"""Run folders made by hand: a real ledger with known numbers, no replay behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from spica.deployment.sample import (
    Backend,
    Deployment,
    EngineSettings,
    KvManager,
    KvRouterSettings,
    PlannerSettings,
    PredictorSettings,
    Sample,
    ScalingSettings,
)
from spica.deployment.shapes import AggConfig, DisaggConfig, ParallelConfig, ParallelShape, Role, WorkerGroup
from spica.record import AskRecord, Ledger, RunIdentity, SuggestionRecord, TellRecord, TrialRecord
from spica.trial import Metrics, Outcome, TrialResult

CONFIG_TEXT = """\
search_space:
  model_name: Qwen/Qwen3-32B
  hardware_sku: h200_sxm
  gpu_budget: 8
workload: {isl: 3000, osl: 300, concurrency: 64, num_request_ratio: 4}
"""

VERSIONS = {"spica": "0.1.0", "ai-dynamo": "1.6.1"}


def agg(tp: int, replicas: int, *, attention_dp: int = 1, moe_ep: int = 1) -> AggConfig:
    return AggConfig(WorkerGroup(ParallelShape(tp=tp, attention_dp=attention_dp, moe_ep=moe_ep), replicas))


def disagg(prefill: tuple[int, int], decode: tuple[int, int]) -> DisaggConfig:
    return DisaggConfig(
        WorkerGroup(ParallelShape(tp=prefill[0]), prefill[1]),
        WorkerGroup(ParallelShape(tp=decode[0]), decode[1]),
    )


SCALING = PlannerSettings(
    policy="hybrid_180_5",
    enable_throughput_scaling=True,
    enable_load_scaling=True,
    scaling=ScalingSettings(
        180, 5, 64, 16, 80, 5, PredictorSettings("prophet", True, prophet_window_size=20)
    ),
)


def sample(
    parallel: ParallelConfig,
    *,
    tokens: int = 8192,
    seqs: int = 256,
    backend: Backend = "vllm",
    kv_router: bool = False,
    scaling: bool = False,
    context_length: int | None = None,
    prefix_caching: bool = True,
) -> Sample:
    roles: list[Role] = [role for role, _ in parallel.groups]
    return Sample(
        backend=backend,
        backend_version="0.24.0",
        deployment=Deployment("Qwen/Qwen3-32B", "h200_sxm", 8, context_length=context_length),
        kv_manager=KvManager(),
        parallel=parallel,
        engines=tuple(
            (role, EngineSettings(tokens, seqs, enable_prefix_caching=prefix_caching and role != "decode"))
            for role in roles
        ),
        router_mode="kv_router" if kv_router else "round_robin",
        router=KvRouterSettings(0.5, 2.0, 0.2) if kv_router else None,
        planner=SCALING if scaling else PlannerSettings("disabled"),
        concurrency=64,
    )


def metrics(throughput: float, *, gpus: float = 8.0, per_user: float = 50.0, e2e: float = 7000.0) -> Metrics:
    """A summary over one hour, so that gpu_hours is the average number of GPUs."""
    return Metrics(
        {
            "output_throughput_tok_s": throughput,
            "mean_output_token_throughput_per_user": per_user,
            "mean_e2e_latency_ms": e2e,
            "mean_ttft_ms": 769.7,
            "mean_itl_ms": 20.8,
            "gpu_hours": gpus,
            "duration_ms": 3_600_000.0,
        }
    )


def counted(measured: Metrics, good: int, requests: int, *, p95_ttft: float) -> Metrics:
    """The same summary under an SLA that ``good`` of ``requests`` met, with goodput in proportion."""
    goodput = measured.summary["output_throughput_tok_s"] * good / requests
    return Metrics(
        {
            **measured.summary,
            "completed_requests": float(requests),
            "goodput_completed_requests": float(good),
            "goodput_output_throughput_tok_s": goodput,
            "p95_ttft_ms": p95_ttft,
        }
    )


def feasible(measured: Metrics) -> TrialResult:
    return TrialResult(Outcome.FEASIBLE, metrics=measured, seconds=1.5)


def identity(goal: Mapping[str, object] | None = None, *, model: str = "Qwen/Qwen3-32B") -> RunIdentity:
    config = {
        "search_space": {"model_name": model, "hardware_sku": "h200_sxm", "gpu_budget": 8},
        "workload": {"isl": 3000, "osl": 300, "concurrency": 64, "num_request_ratio": 4},
        "goal": dict(goal or {"target": "throughput"}),
        "sweep": {},
    }
    return RunIdentity(CONFIG_TEXT, json.dumps(config), 1, VERSIONS)


Step = tuple[Sample, TrialResult | None]


def write_run(
    folder: Path, steps: Mapping[str, Sequence[Step]], who: RunIdentity | None = None
) -> dict[str, list[str]]:
    """A run with one round per branch; a step without a result was never measured. The keys per branch."""
    keys: dict[str, list[str]] = {}
    with Ledger.create(folder, who or identity()) as ledger:
        done: set[str] = set()
        for branch, own in steps.items():
            keys[branch] = [s.key() for s, _ in own]
            records = tuple(
                SuggestionRecord(i, {"x": float(i)}, s.key(), json.dumps(s.config()))
                for i, (s, _) in enumerate(own)
            )
            ledger.record_ask(AskRecord(branch, 0, 0, records))
            for i, (s, result) in enumerate(own):
                if result is None:
                    continue
                hit = s.key() in done
                if not hit:
                    ledger.record_trial(TrialRecord(s.key(), result))
                done.add(s.key())
                ledger.record_tells([TellRecord(branch, i, None, hit)])
    return keys


def small_run(folder: Path) -> dict[str, list[str]]:
    """Seven suggestions: 4 feasible candidates (one suggested twice), 1 infeasible, 1 never measured."""
    best = sample(agg(4, 2), tokens=32768)
    return write_run(
        folder,
        {
            "agg": [
                (sample(agg(2, 4)), feasible(metrics(2746.464))),
                (best, feasible(metrics(3064.08, e2e=6261.84))),
                (sample(agg(1, 8)), TrialResult(Outcome.INFEASIBLE, "block pool 50, need 57")),
                (best, feasible(metrics(3064.08, e2e=6261.84))),
                (sample(agg(1, 4)), None),
            ],
            "disagg": [
                (sample(disagg((2, 1), (2, 2)), kv_router=True), feasible(metrics(1810.0, gpus=6.0))),
                (sample(disagg((1, 4), (4, 1))), feasible(metrics(2100.5))),
            ],
        },
    )
