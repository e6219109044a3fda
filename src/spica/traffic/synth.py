"""Made traces: arrivals and lengths of a given kind, the same for the same seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import count
from typing import Final, Literal

from spica.errors import Problem, TraceError, nearest
from spica.traffic.model import MOONCAKE_BLOCK, Request, Trace

SynthKind = Literal["sine", "diurnal", "poisson", "bursty", "sessions", "shared_prefix"]
KINDS: Final[dict[SynthKind, str]] = {
    "sine": "rate x (1 + amplitude sin(2 pi t / period))",
    "diurnal": "a day squeezed into each period: a quiet night, a morning rise, two daytime peaks",
    "poisson": "a constant rate",
    "bursty": "a quiet rate, with bursts burst_factor times as fast for burst_seconds on average",
    "sessions": "conversations of several turns, each turn's prompt holding all that was said before",
    "shared_prefix": "a constant rate; each prompt starts with one of prefix_groups shared prefixes",
}

#: Most requests a trace is made of; more is taken for a mistake.
MAX_REQUESTS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class SynthSpec:
    """What to make.

    ``rate`` is the mean number of requests per second over ``duration`` seconds; ``isl`` and ``osl`` are
    mean lengths in tokens (in sessions ``isl`` is what each turn adds), drawn from a log-normal
    distribution with the coefficient of variation ``length_cv`` (0: all equal). ``period`` and
    ``amplitude`` shape sine and diurnal; ``burst_factor``, ``burst_seconds`` and ``burst_share`` (of the
    time) bursty; ``turns`` (mean, at least 1 each) and ``think_seconds`` (mean, exponential) sessions;
    ``prefix_groups`` and ``prefix_ratio`` (of isl) shared_prefix.
    """

    kind: SynthKind
    rate: float = 2.0
    duration: float = 3600.0
    isl: int = 3000
    osl: int = 300
    length_cv: float = 0.5
    period: float = 3600.0
    amplitude: float = 0.8
    burst_factor: float = 8.0
    burst_seconds: float = 20.0
    burst_share: float = 0.1
    turns: float = 5.0
    think_seconds: float = 10.0
    prefix_groups: int = 10
    prefix_ratio: float = 0.5
    seed: int = 1


_RANGES: Final[dict[str, tuple[float, float, str]]] = {
    "rate": (1e-6, 1e5, "requests per second, above 0, at most 100000"),
    "duration": (1e-3, 1e9, "seconds, > 0"),
    "isl": (1, 1e6, "tokens, 1 to 1000000"),
    "osl": (1, 1e6, "tokens, 1 to 1000000"),
    "length_cv": (0, 10, "0 to 10"),
    "period": (1e-3, 1e9, "seconds, > 0"),
    "amplitude": (0, 1, "0 to 1"),
    "burst_factor": (1, 1e4, "1 to 10000"),
    "burst_seconds": (1e-3, 1e9, "seconds, > 0"),
    "burst_share": (0.001, 0.9, "0.001 to 0.9"),
    "turns": (1, 1000, "1 to 1000"),
    "think_seconds": (0, 1e6, "seconds, >= 0"),
    "prefix_groups": (1, 1e6, "1 to 1000000"),
    "prefix_ratio": (0, 1, "0 to 1"),
}


def synth_kind(name: str) -> SynthKind:
    """The kind called ``name``; TraceError with the nearest otherwise."""
    for known in KINDS:
        if name == known:
            return known
    near = nearest(name, KINDS) or ""
    raise TraceError(Problem(f"unknown kind of trace {name!r}", suggestion=near, allowed=", ".join(KINDS)))


def _check(spec: SynthSpec) -> None:
    problems: list[Problem] = []
    for one in fields(spec):
        if one.name not in _RANGES:
            continue
        low, high, allowed = _RANGES[one.name]
        value = getattr(spec, one.name)
        if isinstance(value, bool) or not low <= value <= high:  # a NaN is in no range
            problems.append(Problem(f"{value!r} is out of range", key=one.name, allowed=allowed))
    if not problems and spec.rate * spec.duration > MAX_REQUESTS:
        wanted = f"{spec.rate * spec.duration:.0f} requests (rate x duration)"
        problems.append(Problem(f"{wanted} are too many", allowed=f"up to {MAX_REQUESTS}"))
    if problems:
        raise TraceError(problems)


def _length(rng: random.Random, mean: float, cv: float) -> int:
    """A log-normal length with the given mean and coefficient of variation, at least 1, at most 10 x mean."""
    if cv == 0:
        return max(1, round(mean))
    sigma2 = math.log1p(cv * cv)
    drawn = rng.lognormvariate(math.log(mean) - sigma2 / 2, math.sqrt(sigma2))
    return max(1, round(min(drawn, 10 * mean)))


def diurnal_shape(phase: float) -> float:
    """Relative load at a phase of the day (0: midnight, 1: the next), with mean 1.

    Two harmonics: a trough at 4 h, a broad day with peaks about 11 h and 19 h; between 0.13 and 1.6.
    """
    hour = 24 * (phase % 1.0)
    day = math.cos(2 * math.pi * (hour - 15) / 24)
    half = math.cos(4 * math.pi * (hour - 9.5) / 24)
    return 1 + 0.62 * day + 0.25 * half


def _thinned(
    rng: random.Random, duration: float, peak: float, rate: Callable[[float], float]
) -> Iterator[float]:
    """Arrival times (s) of a Poisson process of varying rate, by thinning one of constant rate."""
    at = rng.expovariate(peak)
    while at < duration:
        if rng.random() * peak <= rate(at):
            yield at
        at += rng.expovariate(peak)


def _bursts(rng: random.Random, spec: SynthSpec) -> Iterator[float]:
    """Arrival times of a Poisson process that switches between a quiet and a burst rate."""
    quiet = spec.rate / (1 - spec.burst_share + spec.burst_share * spec.burst_factor)
    quiet_seconds = spec.burst_seconds * (1 - spec.burst_share) / spec.burst_share
    start, burst = 0.0, False
    while start < spec.duration:
        stay = rng.expovariate(1 / (spec.burst_seconds if burst else quiet_seconds))
        end = min(start + stay, spec.duration)
        rate = quiet * (spec.burst_factor if burst else 1.0)
        at = start + rng.expovariate(rate)
        while at < end:
            yield at
            at += rng.expovariate(rate)
        start, burst = start + stay, not burst


def _arrivals(rng: random.Random, spec: SynthSpec) -> Iterator[float]:
    if spec.kind == "bursty":
        return _bursts(rng, spec)
    if spec.kind == "sine":
        wave = 2 * math.pi / spec.period
        return _thinned(
            rng,
            spec.duration,
            spec.rate * (1 + spec.amplitude),
            lambda t: spec.rate * (1 + spec.amplitude * math.sin(wave * t)),
        )
    if spec.kind == "diurnal":

        def shape(t: float) -> float:
            return spec.rate * (1 + spec.amplitude * (diurnal_shape(t / spec.period) - 1))

        return _thinned(rng, spec.duration, 2 * spec.rate, shape)
    return _thinned(rng, spec.duration, spec.rate, lambda _: spec.rate)


def _ms(seconds: float) -> float:
    return round(seconds * 1000)


def _plain(rng: random.Random, spec: SynthSpec) -> list[Request]:
    return [
        Request(_ms(at), _length(rng, spec.isl, spec.length_cv), _length(rng, spec.osl, spec.length_cv))
        for at in _arrivals(rng, spec)
    ]


def _shared_prefix(rng: random.Random, spec: SynthSpec) -> list[Request]:
    """Prompts that start with a group's prefix: whole blocks shared, the rest of each prompt its own."""
    shared = int(spec.isl * spec.prefix_ratio) // MOONCAKE_BLOCK
    fresh = count(spec.prefix_groups * shared)
    rows: list[Request] = []
    for at in _arrivals(rng, spec):
        group = rng.randrange(spec.prefix_groups)
        own_mean = spec.isl - shared * MOONCAKE_BLOCK
        tokens = shared * MOONCAKE_BLOCK + _length(rng, max(1, own_mean), spec.length_cv)
        head = range(group * shared, (group + 1) * shared)
        tail = [next(fresh) for _ in range(math.ceil(tokens / MOONCAKE_BLOCK) - shared)]
        output = _length(rng, spec.osl, spec.length_cv)
        rows.append(Request(_ms(at), tokens, output, (*head, *tail)))
    return rows


def _turns(rng: random.Random, mean: float) -> int:
    """A geometric number of turns, at least 1, with the given mean."""
    return 1 if mean == 1 else 1 + int(rng.expovariate(-math.log1p(-1 / mean)))


def _sessions(rng: random.Random, spec: SynthSpec) -> list[Request]:
    """Conversations: each turn's prompt is the last prompt, its answer and something new."""
    fresh = count()
    rows: list[Request] = []
    starts = _thinned(rng, spec.duration, spec.rate / spec.turns, lambda _: spec.rate / spec.turns)
    for number, start in enumerate(starts):
        turns = _turns(rng, spec.turns)
        history, at = 0, start
        whole: list[int] = []
        delay: float | None = None
        for _ in range(turns):
            tokens = history + _length(rng, spec.isl, spec.length_cv)
            output = _length(rng, spec.osl, spec.length_cv)
            whole += [next(fresh) for _ in range(tokens // MOONCAKE_BLOCK - len(whole))]
            last = [next(fresh)] if tokens % MOONCAKE_BLOCK else []
            if at >= spec.duration:
                break
            rows.append(Request(_ms(at), tokens, output, (*whole, *last), f"s{number}", delay))
            history = tokens + output
            delay = _ms(rng.expovariate(1 / spec.think_seconds)) if spec.think_seconds else 0.0
            at += delay / 1000
    return sorted(rows, key=lambda r: r.arrival_ms)


def synthesize(spec: SynthSpec) -> Trace:
    """Make a trace. TraceError when a setting is out of range or no request falls into the duration.

    Timestamps are whole milliseconds. ``sessions`` and ``shared_prefix`` carry hash ids (blocks of 512
    tokens); turns of a session wait for the answer before (``closed_sessions``), their arrivals being
    estimates.
    """
    _check(spec)
    rng = random.Random(spec.seed)
    make = {"sessions": _sessions, "shared_prefix": _shared_prefix}.get(spec.kind, _plain)
    rows = make(rng, spec)
    if not rows:
        message = f"no request falls into {spec.duration:g} s at {spec.rate:g} requests/s"
        raise TraceError(Problem(message, key="duration", remedy="raise the rate or the duration"))
    closed = spec.kind == "sessions"
    source = f"synth {spec.kind} (seed {spec.seed})"
    return Trace(tuple(rows), "synth", closed_sessions=closed, source=source)
