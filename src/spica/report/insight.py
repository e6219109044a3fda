"""What the measured candidates say about the knobs, and why the best one is the best."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from spica.report.data import Leader, RunReport
from spica.report.numbers import candidate_text, in_sla, number, percent, policy_text, values_text
from spica.report.scaling import scaling_lines

#: Settings that say the same as others, or follow from them.
DERIVED = frozenset({"backend_version", "used_gpus", "concurrency", "planner_engine_model"})


#: What ended a sweep early, in words.
_STOPS = {"interrupted": "the sweep was interrupted", "max_minutes": "the time was up"}

#: With a smaller share of requests within the SLA a deployment does not carry its load.
_CARRIES = 0.9

#: More changed settings than this are not listed one by one.
MOST_CHANGES = 5


@dataclass(frozen=True, slots=True)
class KnobValue:
    """One value of a knob: how many candidates had it, their mean and best first objective."""

    value: str
    count: int
    mean: float
    best: float


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """A knob with the values that were measured, best first. ``gap`` is the share by which the best of the
    worst value falls short of the best overall."""

    knob: str
    values: tuple[KnobValue, ...]
    gap: float


def knob_effects(report: RunReport, *, limit: int = 12) -> tuple[KnobEffect, ...]:
    """The knobs of which 2 to 12 values were measured, the most telling first.

    A summary of what was measured, not a causal statement: the search samples good regions more densely.
    """
    seen: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for leader in report.leaders:
        if not math.isfinite(leader.values[0]):
            continue
        for knob in leader.config:
            if knob not in DERIVED and not knob.endswith("_kv_capacity_tokens"):
                seen[knob][_shown(knob, leader)].append(leader.values[0])
    up = report.scoring.maximize[0]
    effects = [_effect(knob, groups, up) for knob, groups in seen.items() if 1 < len(groups) <= 12]
    effects.sort(key=lambda e: (-e.gap, e.knob))
    return tuple(effects[:limit])


def _shown(knob: str, leader: Leader) -> str:
    """A setting's value; a policy of one's own by its loops instead of its JSON."""
    if knob == "planner_scaling_policy":
        return policy_text(leader.config) or "static"
    return str(leader.config.get(knob, "unset"))


def _effect(knob: str, groups: dict[str, list[float]], up: bool) -> KnobEffect:
    best_of = max if up else min
    values = [KnobValue(v, len(m), math.fsum(m) / len(m), best_of(m)) for v, m in groups.items()]
    values.sort(key=lambda v: (-v.best if up else v.best, v.value))
    top, bottom = values[0].best, values[-1].best
    gap = abs(top - bottom) / max(abs(top), abs(bottom)) if top != bottom else 0.0
    return KnobEffect(knob, tuple(values), gap)


def lost_text(report: RunReport) -> str:
    """What the result rests on when measurements ended with their worker; empty when none did."""
    count = len(report.lost)
    if not count:
        return ""
    what, them = ("1 trial was", "it") if count == 1 else (f"{count} trials were", "them")
    return (
        f"{what} lost with the worker process, which says nothing about the deployment; what is said here "
        f"leaves {them} out. To try {them} again: spica sweep --resume RUN"
    )


def why_none(report: RunReport) -> str:
    """Why there is no best candidate."""
    if report.leaders:
        return f"No request of any candidate met the SLA.{_closest(report)}"
    why = _STOPS.get(report.extras.stop)
    if why is not None and not any(trial.order for trial in report.trials):
        return f"Nothing was measured: {why} before the first replay had ended."
    return "No candidate was feasible."


def _closest(report: RunReport) -> str:
    """The candidate whose mean latencies miss the SLA by the smallest factor."""
    sla = report.scoring.sla
    if sla is None:
        return ""
    limits = {"TTFT": ("mean_ttft_ms", sla.ttft_ms), "ITL": ("mean_itl_ms", sla.itl_ms)}
    limits["end to end"] = ("mean_e2e_latency_ms", sla.e2e_ms)
    asked = {name: (key, limit) for name, (key, limit) in limits.items() if limit is not None}
    able = [leader for leader in report.leaders if all(key in leader.metrics for key, _ in asked.values())]
    if not able or not asked:
        return ""

    def miss(leader: Leader) -> float:
        return max(leader.metrics[key] / limit for key, limit in asked.values())

    best = min(able, key=miss)
    means = ", ".join(
        f"{name} {number(best.metrics[key])} ms of {number(limit)}" for name, (key, limit) in asked.items()
    )
    return f" Closest, in the mean: {means} ({candidate_text(best.config)})."


def why_best(report: RunReport) -> tuple[str, ...]:
    """In a few sentences: what the best candidate wins by, and what it differs in from the next."""
    best = report.best
    if best is None:
        return ()
    lines = []
    if report.scoring.is_pareto:
        lines.append(
            f"the balanced point (knee) of a front of {len(report.front)}: "
            f"{values_text(best.values, report.objectives)}"
        )
    else:
        others = [leader for leader in report.leaders if leader.key != best.key]
        if others:
            lines.append(_lead(best, others[0], report))
        alternative = _other_mode(best, others)
        if alternative is not None:
            lines.append(
                f"the best {alternative.config['deployment_mode']} candidate reaches "
                f"{values_text(alternative.values, report.objectives)} ({candidate_text(alternative.config)})"
            )
    if report.scoring.sla is not None and not report.scoring.is_pareto:
        lines += _late(best)
    lines += scaling_lines(best, report.leaders)
    lines += [f"confirmation: {text}" for text in report.extras.comparisons[:2]]
    return tuple(lines)


def _late(best: Leader) -> list[str]:
    """A deployment that is late with many requests may still be the best of its menu."""
    share = in_sla(best.metrics)
    if share is None or share >= _CARRIES:
        return []
    return [f"only {percent(share)} of its requests met the SLA: it does not carry this load in time"]


def _lead(best: Leader, second: Leader, report: RunReport) -> str:
    changed = difference(best, second)
    same_mode = best.config.get("deployment_mode") == second.config.get("deployment_mode")
    if same_mode and len(changed) <= MOST_CHANGES:
        what = f"which differs in {', '.join(changed) or 'nothing'}"
    else:
        what = f"which is {candidate_text(second.config)}"
    a, b = best.values[0], second.values[0]
    if a == b:
        return f"ties with rank 2, {what}; the tie goes to fewer GPUs, then to the key"
    lead = abs(a - b) / abs(b) if b else math.inf
    return f"{number(100 * lead)}% better than rank 2, {what}"


def difference(one: Leader, other: Leader) -> list[str]:
    """``knob a -> b`` for every setting in which ``other`` differs from ``one``."""
    knobs = [k for k in {**one.config, **other.config} if k not in DERIVED]
    return [
        f"{k} {_shown(k, one)} -> {_shown(k, other)}"
        for k in knobs
        if one.config.get(k) != other.config.get(k)
    ]


def _other_mode(best: Leader, others: Sequence[Leader]) -> Leader | None:
    mode = best.config.get("deployment_mode")
    return next((leader for leader in others if leader.config.get("deployment_mode") != mode), None)
