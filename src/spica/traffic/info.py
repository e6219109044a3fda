"""What a trace holds: rates, lengths, prefix reuse, burstiness, and what fits a context length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from spica.traffic.model import Trace

PERCENTILES: Final = (1, 25, 50, 75, 90, 95, 99)
CONTEXT_LENGTHS: Final = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576)
#: Most windows that arrivals are counted in (the width of the picture).
MAX_WINDOWS: Final = 60

#: A deliberately slow server, for judging whether requests overlap at all: prompt tokens per second, and
#: output tokens per second and request. Every deployment worth considering beats both.
SLOW_PREFILL_TOK_S: Final = 2000.0
SLOW_DECODE_TOK_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean, extremes and percentiles (linear interpolation between order statistics) of token counts."""

    mean: float
    minimum: int
    maximum: int
    percentiles: tuple[tuple[int, float], ...]

    def percentile(self, p: int) -> float:
        """The ``p``-th percentile, one of PERCENTILES (KeyError otherwise)."""
        return dict(self.percentiles)[p]


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """The description of a trace.

    ``span_s`` runs from the first to the last arrival; ``rate_rps`` is (rows - 1) / span, None when all
    arrive at once. ``reuse_ratio`` is the share of prompt tokens whose block chain an earlier request had
    (an infinite cache that fills at once); None without hash ids. ``interarrival_cv`` is the standard
    deviation of the gaps over their mean: 1 for Poisson arrivals, more for bursts. ``counts`` are arrivals
    per ``window_s`` seconds, ``peak_to_mean`` their maximum over their mean. ``fits`` pairs a context
    length with the share of requests whose prompt and output fit it. ``slow_in_flight`` is the mean number
    of requests in flight on a very slow server (see SLOW_PREFILL_TOK_S).
    """

    source: str
    format: str
    requests: int
    span_s: float
    rate_rps: float | None
    input_length: Distribution
    output_length: Distribution
    total_length: Distribution
    prompt_tokens: int
    output_tokens: int
    sessions: int
    rows_with_hashes: int
    reuse_ratio: float | None
    interarrival_cv: float | None
    window_s: float
    counts: tuple[int, ...]
    peak_to_mean: float
    fits: tuple[tuple[int, float], ...]
    slow_in_flight: float | None
    notes: tuple[str, ...]


def percentile(ordered: Sequence[float], p: float) -> float:
    """The ``p``-th percentile of a sorted sequence, linear between order statistics."""
    at = (len(ordered) - 1) * p / 100
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def distribution(values: Sequence[int]) -> Distribution:
    """The distribution of one or more token counts."""
    ordered = sorted(values)
    points = tuple((p, percentile(ordered, p)) for p in PERCENTILES)
    return Distribution(sum(ordered) / len(ordered), ordered[0], ordered[-1], points)


def reused_tokens(trace: Trace) -> int:
    """Prompt tokens whose whole block chain, from the first block on, was in an earlier request's prompt."""
    chains: dict[tuple[int, int], int] = {}
    reused = 0
    for row in trace.requests:
        node, hit, known = -1, 0, True
        for block in row.hash_ids or ():
            child = chains.get((node, block))
            if child is None:
                known = False
                child = chains[node, block] = len(chains)
            hit += known
            node = child
        reused += min(hit * trace.block_size, row.input_length)
    return reused


def _cv(trace: Trace) -> float | None:
    gaps = [b.arrival_ms - a.arrival_ms for a, b in pairwise(trace.requests)]
    mean = math.fsum(gaps) / len(gaps) if gaps else 0.0
    if mean <= 0:
        return None
    return math.sqrt(math.fsum((g - mean) ** 2 for g in gaps) / len(gaps)) / mean


def nice_window(span_s: float) -> float:
    """The smallest handy width in seconds that cuts ``span_s`` seconds into at most MAX_WINDOWS windows."""
    handy = (
        0.001,
        0.01,
        0.1,
        1,
        2,
        5,
        10,
        15,
        30,
        60,
        120,
        300,
        600,
        900,
        1800,
        3600,
        7200,
        14400,
        43200,
        86400,
    )
    for width in handy:
        if span_s < width * MAX_WINDOWS:
            return float(width)
    return 86400.0 * math.ceil(span_s / (86400 * MAX_WINDOWS) + 1e-9)


def arrival_counts(trace: Trace, window_s: float) -> tuple[int, ...]:
    """Arrivals in each window of ``window_s`` seconds from the first arrival on."""
    origin = trace.requests[0].arrival_ms
    places = [int((r.arrival_ms - origin) / (window_s * 1000)) for r in trace.requests]
    counts = [0] * (places[-1] + 1)
    for place in places:
        counts[place] += 1
    return tuple(counts)


def trace_info(trace: Trace, context_lengths: Sequence[int] = CONTEXT_LENGTHS) -> TraceInfo:
    """Describe a trace (of at least one request)."""
    rows = trace.requests
    span_s = trace.span_ms / 1000
    totals = [r.total_tokens for r in rows]
    prompts = sum(r.input_length for r in rows)
    window_s = nice_window(span_s)
    counts = arrival_counts(trace, window_s)
    seconds = math.fsum(
        r.input_length / SLOW_PREFILL_TOK_S + r.output_length / SLOW_DECODE_TOK_S for r in rows
    )
    return TraceInfo(
        source=trace.source,
        format=trace.format,
        requests=len(rows),
        span_s=span_s,
        rate_rps=(len(rows) - 1) / span_s if span_s > 0 else None,
        input_length=distribution([r.input_length for r in rows]),
        output_length=distribution([r.output_length for r in rows]),
        total_length=distribution(totals),
        prompt_tokens=prompts,
        output_tokens=sum(r.output_length for r in rows),
        sessions=len({r.session for r in rows if r.session is not None}),
        rows_with_hashes=sum(r.hash_ids is not None for r in rows),
        reuse_ratio=reused_tokens(trace) / prompts if trace.has_prefixes else None,
        interarrival_cv=_cv(trace),
        window_s=window_s,
        counts=counts,
        peak_to_mean=max(counts) / (len(rows) / len(counts)),
        fits=tuple((c, sum(t <= c for t in totals) / len(totals)) for c in context_lengths),
        slow_in_flight=seconds / span_s if span_s > 0 else None,
        notes=tuple(str(n) for n in trace.notes),
    )


def trace_warnings(
    trace: Trace,
    router_knobs_searched: bool,
    *,
    arrival_speedup_ratio: float = 1.0,
    arrivals_ignored: bool = False,
) -> tuple[str, ...]:
    """What a sweep over this trace should be told before it starts; empty when nothing is amiss.

    Router knobs without prefix information (nothing to route by), and a load so low that requests hardly
    overlap even on a very slow server, so that every candidate serves each of them alone. The latter only
    where arrival times count (``arrivals_ignored``: the replay keeps a number of requests in flight).
    """
    found: list[str] = []
    bare = sum(r.hash_ids is None for r in trace.requests)
    if router_knobs_searched and bare == len(trace):
        found.append(
            "router knobs are searched, but the trace has no prefix information (hash_ids): no request "
            "shares anything with another, so cache-aware routing has nothing to gain; pin router_mode to "
            "[round_robin]"
        )
    elif router_knobs_searched and bare:
        found.append(
            f"{bare} of {len(trace)} requests have no prefix information; they count as sharing nothing"
        )
    elif router_knobs_searched and reused_tokens(trace) == 0:
        found.append("router knobs are searched, but no two requests of the trace share a prefix")
    in_flight = trace_info(trace).slow_in_flight
    if not arrivals_ignored and in_flight is not None and in_flight * arrival_speedup_ratio < 1:
        found.append(
            f"the load is very low: on a slow server ({SLOW_DECODE_TOK_S:g} tok/s per request) "
            f"{in_flight * arrival_speedup_ratio:.2g} requests would be in flight on average, so throughput "
            "ties between all candidates; raise arrival_speedup_ratio or set replay_concurrency"
        )
    return tuple(found)
