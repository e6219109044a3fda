"""How many workers stood, and when, in a replay with the planner in the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spica.deployment.shapes import ParallelConfig, Role
from spica.trial import ReplicaCount


@dataclass(frozen=True, slots=True)
class PoolChange:
    """After ``at_s`` seconds the pool of ``role`` has ``workers`` workers: active, starting or draining, for
    each of these holds its GPUs."""

    at_s: float
    role: Role
    workers: int


def replica_timeline(parallel: ParallelConfig, changes: Iterable[PoolChange]) -> tuple[ReplicaCount, ...]:
    """The worker counts at 0 s and after every change of them, in order of time (agg counts as decode)."""
    counts = {role: group.replicas for role, group in parallel.groups}
    timeline = [_count(0.0, counts)]
    for change in sorted(changes, key=lambda c: c.at_s):
        if counts.get(change.role) == change.workers:
            continue
        counts[change.role] = change.workers
        now = _count(change.at_s, counts)
        if timeline[-1].at_s == now.at_s:
            timeline.pop()
        timeline.append(now)
    return tuple(timeline)


def worker_seconds(timeline: Sequence[ReplicaCount], duration_s: float) -> tuple[float, float]:
    """The area under the timeline up to ``duration_s``: (prefill, decode) worker-seconds."""
    ends = [*timeline, ReplicaCount(duration_s, 0, 0)]
    prefill = decode = 0.0
    for here, there in pairwise(ends):
        span = max(0.0, min(there.at_s, duration_s) - here.at_s)
        prefill += span * here.prefill
        decode += span * here.decode
    return prefill, decode


def _count(at_s: float, counts: dict[Role, int]) -> ReplicaCount:
    return ReplicaCount(at_s, counts.get("prefill", 0), counts.get("decode", counts.get("agg", 0)))
