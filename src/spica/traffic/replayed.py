"""What a candidate is replayed against: generated requests, or a trace that was checked and written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spica.traffic.model import Trace


@dataclass(frozen=True, slots=True)
class SyntheticTraffic:
    """Generated requests: lengths in tokens, delays in milliseconds. Exactly one of ``concurrency`` (closed
    loop) and ``request_rate`` (open loop, requests per second) is set."""

    isl: int
    osl: int
    num_requests: int
    concurrency: int | None = None
    request_rate: float | None = None
    shared_prefix_ratio: float = 0.0
    num_prefix_groups: int = 0
    turns_per_session: int = 1
    inter_turn_delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class TraceTraffic:
    """A checked mooncake trace file. ``replay_concurrency`` set: closed loop, arrival times ignored."""

    path: str
    num_requests: int
    total_tokens: int
    arrival_speedup_ratio: float = 1.0
    replay_concurrency: int | None = None


Traffic = SyntheticTraffic | TraceTraffic


@dataclass(frozen=True, slots=True)
class PreparedTrace:
    """A checked trace, written as the mooncake file at ``path`` that the replay reads. ``total_tokens`` are
    prompt and output tokens of all requests together; ``has_prefixes`` says whether any row names the blocks
    of its prompt."""

    path: str
    num_requests: int
    total_tokens: int
    has_prefixes: bool = True


def prepared_trace(trace: Trace, path: str | Path) -> PreparedTrace:
    """``trace`` as written to ``path`` (see ``spica.traffic.write.prepare_replay_file``)."""
    total = sum(request.total_tokens for request in trace.requests)
    return PreparedTrace(str(path), len(trace), total, trace.has_prefixes)
