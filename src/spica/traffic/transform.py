"""Cutting a trace to size: a window of time, a sample, a speed-up, a number of requests."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, replace

from spica.errors import Problem, TraceError
from spica.traffic.model import Request, Trace, TraceNote

_WINDOW = re.compile(r"\s*(\d+(?:\.\d*)?)?\s*:\s*(\d+(?:\.\d*)?)?\s*")


@dataclass(frozen=True, slots=True)
class Cut:
    """What to keep of a trace, applied in this order.

    ``window_s``: arrivals in [start, end) seconds after the first one (end None: to the last). ``sample``: a
    share of the requests when below 1, else a number of them, drawn without replacement by ``seed``.
    ``max_requests``: the first so many. ``speedup``: arrivals (and think times) divided by it.
    """

    window_s: tuple[float, float | None] | None = None
    sample: float | None = None
    max_requests: int | None = None
    speedup: float = 1.0
    seed: int = 1


def parse_window(text: str) -> tuple[float, float | None]:
    """``START:END`` in seconds, either side may be left out. TraceError when it is no window."""
    match = _WINDOW.fullmatch(text)
    start = float(match.group(1) or 0) if match else 0.0
    end = float(match.group(2)) if match and match.group(2) else None
    if match is None or (end is not None and end <= start):
        problem = Problem(f"{text!r} is no window of time", key="--window", allowed="START:END in seconds")
        raise TraceError(problem)
    return start, end


def parse_sample(text: str) -> float:
    """A share in (0, 1) such as ``0.25`` or ``25%``, or a whole number of requests. TraceError otherwise."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = math.nan
    if 0 < value < 1 or (value >= 1 and value.is_integer() and math.isfinite(value)):
        # 100% keeps all; 1.0 or 1 without a percent sign is one request.
        return math.inf if text.endswith("%") and value == 1 else value
    allowed = "a share such as 0.25 or 25%, or a whole number of requests"
    raise TraceError(Problem(f"{text!r} is no sample", key="--sample", allowed=allowed))


def _check(cut: Cut) -> None:
    problems: list[Problem] = []
    if not (math.isfinite(cut.speedup) and cut.speedup > 0):
        allowed = "a finite number > 0"
        problems.append(Problem(f"{cut.speedup} is no speed-up", key="--speedup", allowed=allowed))
    if cut.max_requests is not None and cut.max_requests < 1:
        allowed = "a whole number >= 1"
        problems.append(Problem(f"{cut.max_requests} requests", key="--max-requests", allowed=allowed))
    if problems:
        raise TraceError(problems)


def _window(trace: Trace, window: tuple[float, float | None]) -> Trace:
    start = window[0] * 1000
    end = math.inf if window[1] is None else window[1] * 1000
    origin = trace.requests[0].arrival_ms
    kept = tuple(
        replace(r, arrival_ms=round(r.arrival_ms - origin - start, 6))
        for r in trace.requests
        if start <= r.arrival_ms - origin < end
    )
    if not kept:
        span = trace.span_ms / 1000
        problem = Problem(
            "no request arrives in that window", key="--window", allowed=f"the trace spans {span:g} s"
        )
        raise TraceError(problem)
    message = f"window of {window[0]:g} s to {'the end' if window[1] is None else f'{window[1]:g} s'}"
    return trace.with_requests(kept, TraceNote("cut", len(trace) - len(kept), message))


def _units(trace: Trace) -> list[list[Request]]:
    """What a sample draws: single requests, or whole sessions where turns wait for each other."""
    if not trace.closed_sessions:
        return [[row] for row in trace.requests]
    units: list[list[Request]] = []
    of_session: dict[str, list[Request]] = {}
    for row in trace.requests:
        if row.session is not None and row.session in of_session:
            of_session[row.session].append(row)
            continue
        units.append([row])
        if row.session is not None:
            of_session[row.session] = units[-1]
    return units


def _sample(trace: Trace, sample: float, seed: int) -> Trace:
    units = _units(trace)
    if math.isinf(sample):
        return trace
    wanted = max(1, round(sample * len(units))) if sample < 1 else min(int(sample), len(units))
    drawn = sorted(random.Random(seed).sample(range(len(units)), wanted))
    rows = sorted((row for i in drawn for row in units[i]), key=lambda r: r.arrival_ms)
    what = "sessions" if trace.closed_sessions else "requests"
    message = f"a sample of {wanted} of {len(units)} {what} (seed {seed})"
    return trace.with_requests(tuple(rows), TraceNote("cut", len(trace) - len(rows), message))


def cut_trace(trace: Trace, cut: Cut) -> Trace:
    """The part of ``trace`` that ``cut`` names, with a note for each step. TraceError if none is left."""
    _check(cut)
    if cut.window_s is not None:
        trace = _window(trace, cut.window_s)
    if cut.sample is not None:
        trace = _sample(trace, cut.sample, cut.seed)
    if cut.max_requests is not None and cut.max_requests < len(trace):
        note = TraceNote("cut", len(trace) - cut.max_requests, f"the first {cut.max_requests} requests")
        trace = trace.with_requests(trace.requests[: cut.max_requests], note)
    if cut.speedup != 1.0:
        rows = tuple(
            replace(
                r,
                arrival_ms=round(r.arrival_ms / cut.speedup, 6),
                delay_ms=None if r.delay_ms is None else r.delay_ms / cut.speedup,
            )
            for r in trace.requests
        )
        trace = trace.with_requests(rows, TraceNote("cut", 0, f"arrivals {cut.speedup:g} times as fast"))
    return trace
