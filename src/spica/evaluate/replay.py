"""One plan, measured: the only place that calls Dynamo Replay (``dynamo.replay.api``)."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from spica.evaluate.bounds import Limits, refusal
from spica.evaluate.engine_args import EngineArgs, Json, engine_args, unsupported_reason
from spica.evaluate.planner_config import PlannerUnsupported, planner_config
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.reasons import classify
from spica.evaluate.router import router_config
from spica.evaluate.ticks import tick_counts
from spica.evaluate.timeline import PoolChange, replica_timeline
from spica.traffic.replayed import SyntheticTraffic, TraceTraffic
from spica.trial import Metrics, Outcome, Sla, TrialResult

if TYPE_CHECKING:
    from dynamo.llm import KvRouterConfig
    from dynamo.replay.report import ReplayReport

#: Tokens per hash id of the mooncake traces Spica writes and replays.
TRACE_BLOCK_SIZE: Final = 512

#: Entries of the runtime's summary that measure the simulator on this machine, not the deployment.
WALL_CLOCK_METRICS: Final = frozenset(
    {"wall_time_ms", "processed_tokens_per_s", "processed_output_tokens_per_s"}
)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What a run sets for all its replays: performance tables other than the installed ones, and bounds."""

    systems_path: str | None = None
    limits: Limits = field(default_factory=Limits)


class _Call(TypedDict, total=False):
    """The keyword arguments of the replay entry points that Spica uses."""

    extra_engine_args: EngineArgs
    prefill_engine_args: EngineArgs
    decode_engine_args: EngineArgs
    num_workers: int
    num_prefill_workers: int
    num_decode_workers: int
    router_mode: Literal["kv_router", "round_robin"]
    router_config: KvRouterConfig
    planner_config: dict[str, Json]
    sla_ttft_ms: float | None
    sla_itl_ms: float | None
    sla_e2e_ms: float | None
    replay_concurrency: int | None
    arrival_interval_ms: float
    arrival_seed: int
    arrival_speedup_ratio: float
    turns_per_session: int
    shared_prefix_ratio: float
    num_prefix_groups: int
    inter_turn_delay_ms: float
    trace_format: str
    trace_block_size: int


def run_replay(plan: ReplayPlan, options: ReplayOptions | None = None) -> TrialResult:
    """Measure ``plan`` in this process. Never raises for what the plan or the runtime did.

    Every failure becomes a TrialResult here and nowhere else: an outcome with its reason, and for an
    unexpected exception the traceback.
    """
    started = time.perf_counter()
    try:
        result = _measure(plan, options or ReplayOptions())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of the Rust runtime is not an Exception
        outcome, reason = classify(error)
        text = "".join(traceback.format_exception(error)) if outcome is Outcome.FAILED else ""
        result = TrialResult(outcome, reason, traceback=text)
    seconds = time.perf_counter() - started
    return TrialResult(result.outcome, result.reason, result.metrics, result.traceback, seconds)


def requests_sent(plan: ReplayPlan) -> int:
    """How many requests the replay must complete: every turn of a session counts as one."""
    if isinstance(plan.traffic, SyntheticTraffic):
        return plan.traffic.num_requests * max(1, plan.traffic.turns_per_session)
    return plan.traffic.num_requests


def _measure(plan: ReplayPlan, options: ReplayOptions) -> TrialResult:
    reason = unsupported_reason(plan.sample)
    if reason is not None:
        return TrialResult(Outcome.UNSUPPORTED, reason)
    refused = refusal(plan, options.limits)
    if refused is not None:
        return refused
    try:
        planner = planner_config(
            plan.sample, plan.planner_target, plan.sla, systems_path=options.systems_path
        )
    except PlannerUnsupported as error:
        return TrialResult(Outcome.UNSUPPORTED, str(error))
    call = _deployment(plan, options.systems_path)
    if planner is not None:
        call["planner_config"] = planner
    if plan.sla is not None:
        call.update(_sla(plan.sla))
    return _judge(plan, _replay(plan, call))


def _deployment(plan: ReplayPlan, systems_path: str | None) -> _Call:
    sample = plan.sample
    call: _Call = {"router_mode": sample.router_mode}
    for role, group in sample.parallel.groups:
        args = engine_args(sample, role, systems_path=systems_path)
        if role == "agg":
            call["extra_engine_args"], call["num_workers"] = args, group.replicas
        elif role == "prefill":
            call["prefill_engine_args"], call["num_prefill_workers"] = args, group.replicas
        else:
            call["decode_engine_args"], call["num_decode_workers"] = args, group.replicas
    if sample.router is not None:
        call["router_config"] = router_config(sample)
    return call


def _sla(sla: Sla) -> _Call:
    return {"sla_ttft_ms": sla.ttft_ms, "sla_itl_ms": sla.itl_ms, "sla_e2e_ms": sla.e2e_ms}


def _replay(plan: ReplayPlan, call: _Call) -> ReplayReport:
    from dynamo.replay import api

    traffic = plan.traffic
    if isinstance(traffic, TraceTraffic):
        call["replay_concurrency"] = traffic.replay_concurrency
        call["arrival_speedup_ratio"] = traffic.arrival_speedup_ratio
        call["trace_format"] = "mooncake"
        call["trace_block_size"] = TRACE_BLOCK_SIZE
        return api.run_trace_replay(traffic.path, **call)
    call.update(_synthetic(traffic, plan.seed))
    return api.run_synthetic_trace_replay(traffic.isl, traffic.osl, traffic.num_requests, **call)


def _synthetic(traffic: SyntheticTraffic, seed: int) -> _Call:
    call: _Call = {
        "arrival_seed": seed,
        "turns_per_session": traffic.turns_per_session,
        "shared_prefix_ratio": traffic.shared_prefix_ratio,
        "num_prefix_groups": traffic.num_prefix_groups,
        "inter_turn_delay_ms": traffic.inter_turn_delay_ms,
    }
    if traffic.request_rate is not None:
        # A fixed rate: equal gaps. The runtime's own ``request_rate`` draws Poisson arrivals instead.
        call["arrival_interval_ms"] = 1000.0 / traffic.request_rate
    else:
        call["replay_concurrency"] = traffic.concurrency
    return call


def _judge(plan: ReplayPlan, report: ReplayReport) -> TrialResult:
    """A report is a measurement only when every request that was sent has completed."""
    summary = _numbers(report.summary)
    sent, completed = requests_sent(plan), int(summary.get("completed_requests", 0))
    if completed < sent:
        return TrialResult(Outcome.INFEASIBLE, f"only {completed} of {sent} requests completed{_hint(plan)}")
    planner = report.planner
    if planner is None:
        return TrialResult(Outcome.FEASIBLE, metrics=Metrics(summary))
    summary |= tick_counts(planner.ticks, by_estimates=plan.planner_target == "sla")
    replicas = replica_timeline(plan.sample.parallel, _changes(planner.lifecycle_operations))
    return TrialResult(Outcome.FEASIBLE, metrics=Metrics(summary, int(planner.total_ticks), replicas))


def _hint(plan: ReplayPlan) -> str:
    if isinstance(plan.traffic, SyntheticTraffic):
        need = plan.traffic.isl + plan.traffic.osl
        return f"; a request of {need} tokens may be larger than a worker's whole KV pool"
    return "; a request may be larger than a worker's whole KV pool"


def _numbers(summary: dict[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in summary.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in WALL_CLOCK_METRICS
    }


def _changes(operations: list[dict[str, Any]]) -> list[PoolChange]:
    return [
        PoolChange(
            at_s=float(op["at_ms"]) / 1000.0,
            role=op["pool"],
            workers=sum(len(op["state_after_batch"][state]) for state in ("active", "starting", "draining")),
        )
        for op in operations
    ]
