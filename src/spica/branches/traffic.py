"""From the ``workload`` block to the traffic that a candidate is replayed against."""

from __future__ import annotations

from spica.config import Workload
from spica.traffic.replayed import PreparedTrace, SyntheticTraffic, TraceTraffic, Traffic


def num_requests(ratio: float, load: float) -> int:
    """Requests of a synthetic workload: ``max(1, round(ratio x load))``, half to even. ``load`` is the
    resolved concurrency, else the request rate."""
    return max(1, round(ratio * load))


def traffic_for(workload: Workload, concurrency: int | None, trace: PreparedTrace | None = None) -> Traffic:
    """The traffic for one candidate.

    ``concurrency`` is the number in flight that its KV capacity gave (``Sample.concurrency``), or None to
    take the workload's own. A trace workload needs its prepared ``trace``.

    Raises ValueError for a trace workload without a trace, and for a synthetic one without lengths or load;
    a validated configuration has them.
    """
    if workload.trace_path is not None:
        if trace is None:
            raise ValueError("a trace workload needs its prepared trace")
        return TraceTraffic(
            path=trace.path,
            num_requests=trace.num_requests,
            total_tokens=trace.total_tokens,
            arrival_speedup_ratio=workload.arrival_speedup_ratio,
            replay_concurrency=workload.replay_concurrency,
        )
    in_flight = workload.concurrency if concurrency is None else concurrency
    load = workload.request_rate if in_flight is None else in_flight
    if load is None or workload.isl is None or workload.osl is None or workload.num_request_ratio is None:
        raise ValueError("a synthetic workload needs isl, osl, num_request_ratio and a load")
    return SyntheticTraffic(
        isl=workload.isl,
        osl=workload.osl,
        num_requests=num_requests(workload.num_request_ratio, load),
        concurrency=in_flight,
        request_rate=workload.request_rate if in_flight is None else None,
        shared_prefix_ratio=workload.shared_prefix_ratio,
        num_prefix_groups=workload.num_prefix_groups,
        turns_per_session=workload.turns_per_session,
        inter_turn_delay_ms=workload.inter_turn_delay_ms,
    )
