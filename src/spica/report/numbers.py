"""How numbers and candidates are written for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from spica.deployment.sample import FlatConfig
from spica.goals.targets import goal
from spica.trial import Sla


def number(value: float | None) -> str:
    """Four significant digits, never an exponent for everyday sizes; ``-`` for None."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "inf" if value > 0 else ("-inf" if value < 0 else "nan")
    if abs(value) < 5e-7:  # six decimals are the most that is shown
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 6)}f}"


def sla_text(sla: Sla | None) -> str | None:
    """``SLA: TTFT 1500 ms, ITL 20 ms``; None where the goal has none."""
    if sla is None:
        return None
    named = (("TTFT", sla.ttft_ms), ("ITL", sla.itl_ms), ("end to end", sla.e2e_ms))
    return "SLA: " + ", ".join(f"{name} {limit:.15g} ms" for name, limit in named if limit is not None)


def in_sla(metrics: Mapping[str, float]) -> float | None:
    """The fraction of the completed requests that met the SLA, 0 to 1; None when the replay counted none."""
    good, completed = metrics.get("goodput_completed_requests"), metrics.get("completed_requests")
    return None if good is None or not completed else good / completed


def percent(fraction: float | None) -> str:
    """``88.9%``. 0% and 100% are said only of none and all: a single miss among 5,000 is ``>99.9%``."""
    if fraction is None:
        return "-"
    if fraction in (0.0, 1.0):
        return f"{fraction:.0%}"
    if fraction < 0.001:
        return "<0.1%"
    return ">99.9%" if fraction > 0.999 else f"{fraction:.1%}"


def values_text(values: Sequence[float] | None, objectives: Sequence[str]) -> str:
    """The values of a candidate with their units: ``2,746 tok/s``."""
    if values is None:
        return "-"
    pairs = zip(values, objectives, strict=True)
    return ", ".join(f"{number(v)} {goal(o).unit}" for v, o in pairs)


def shape_text(config: FlatConfig, prefix: str = "") -> str:
    """``4x tp2``: replicas and the dimensions above one."""
    dims = [f"tp{config[f'{prefix}tp']}"]
    for key, short in (("pp", "pp"), ("attention_dp", "dp"), ("moe_tp", "moe_tp"), ("moe_ep", "ep")):
        size = config.get(f"{prefix}{key}")
        if isinstance(size, int) and size > 1:
            dims.append(f"{short}{size}")
    return f"{config[f'{prefix}replicas']}x {' '.join(dims)}"


def parallel_text(config: FlatConfig) -> str:
    """The worker groups of a candidate: ``4x tp2``, or ``2x tp2 > 1x tp4`` (prefill > decode)."""
    if config["deployment_mode"] == "agg":
        return shape_text(config)
    return f"{shape_text(config, 'prefill_')} > {shape_text(config, 'decode_')}"


def batching_text(config: FlatConfig) -> str:
    """Batched tokens / sequences per role: ``8192/256``, prefill then decode."""
    roles = ("agg",) if config["deployment_mode"] == "agg" else ("prefill", "decode")
    return " ".join(
        f"{thousands(config.get(f'{r}_max_num_batched_tokens'))}/{config.get(f'{r}_max_num_seqs')}"
        for r in roles
    )


def thousands(tokens: object) -> str:
    """Tokens in Ki where that is exact: 8192 -> ``8k``."""
    if isinstance(tokens, int) and tokens >= 1024 and tokens % 1024 == 0:
        return f"{tokens // 1024}k"
    return str(tokens)


def router_text(config: FlatConfig) -> str:
    """``round robin``, or ``kv`` with overlap credit, prefill load scale and temperature."""
    if config.get("router_mode") != "kv_router":
        return "round robin"
    keys = ("overlap_score_credit", "prefill_load_scale", "router_temperature")
    return "kv " + "/".join(f"{config[k]:g}" for k in keys if isinstance(config.get(k), int | float))


def policy_text(config: FlatConfig) -> str | None:
    """The preset of a scaling policy, or its loops and intervals: ``throughput 30 s + load 5 s``; None for a
    static deployment."""
    loops = [
        f"{loop} {config[f'{loop}_adjustment_interval_seconds']} s"
        for loop in ("throughput", "load")
        if config.get(f"enable_{loop}_scaling")
    ]
    name = str(config.get("planner_scaling_policy"))
    if not loops:
        return None
    # A policy of one's own goes by the JSON of its dict.
    return " + ".join(loops) if name.startswith("{") else name


def load_text(config: FlatConfig) -> str | None:
    """The requests in flight, where each candidate has its own: ``1,368 in flight``."""
    load = config.get("concurrency")
    if config.get("kv_load_ratio") is None or not isinstance(load, int):
        return None
    return f"{load:,} in flight"


def candidate_text(config: FlatConfig) -> str:
    """A candidate in one line."""
    parts = [
        str(config["deployment_mode"]),
        str(config["backend"]),
        parallel_text(config),
        batching_text(config),
        router_text(config),
    ]
    policy = policy_text(config)
    if policy is not None:
        parts.append(policy)
    load = load_text(config)
    if load is not None:
        parts.append(load)
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """``4.2 s``, ``3 min 05 s``, ``2 h 03 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
