"""Which scaling policies a goal can use at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spica.errors import ConfigError, Problem
from spica.planner.presets import ScalingPolicy

_KEY = "search_space.planner_scaling_policy"


@dataclass(frozen=True, slots=True)
class DroppedPolicy:
    """A policy left out of the search, and why."""

    policy: ScalingPolicy
    reason: str


def filter_scaling_policies(
    policies: Sequence[ScalingPolicy], *, allow_throughput: bool, allow_load: bool = True
) -> tuple[tuple[ScalingPolicy, ...], tuple[DroppedPolicy, ...]]:
    """Split the policies into those a goal can use, in order, and those it cannot, with reasons.

    ``allow_throughput`` is true for goodput goals whose SLA has ``ttft_ms`` and ``itl_ms``: predictive
    scaling sizes the deployment from them. ``allow_load`` is false for a goodput goal with an e2e-only SLA,
    which gives the planner no target at all: only static policies stay. Raises ConfigError when nothing is
    left.
    """
    kept: list[ScalingPolicy] = []
    dropped: list[DroppedPolicy] = []
    for policy in policies:
        reason = _reason(policy, allow_throughput, allow_load)
        if reason:
            dropped.append(DroppedPolicy(policy, reason))
        else:
            kept.append(policy)
    if not kept:
        raise ConfigError(_nothing_left(dropped, allow_load))
    return tuple(kept), tuple(dropped)


def _reason(policy: ScalingPolicy, allow_throughput: bool, allow_load: bool) -> str:
    if policy.is_static:
        return ""
    if not allow_load:
        return "an SLA of e2e_ms alone gives the planner no ttft/itl target, so only static policies can run"
    if policy.enable_throughput_scaling and not allow_throughput:
        return "predictive throughput scaling needs a goodput goal with an SLA of ttft_ms and itl_ms"
    return ""


def _nothing_left(dropped: Sequence[DroppedPolicy], allow_load: bool) -> Problem:
    if not dropped:
        return Problem("no scaling policy is listed", _KEY, remedy="list at least 'disabled'")
    names = ", ".join(d.policy.name for d in dropped)
    remedy = (
        "add 'disabled' or a load_* policy, or set a goodput goal with ttft_ms and itl_ms"
        if allow_load
        else "add 'disabled', or give the SLA ttft_ms and itl_ms"
    )
    return Problem(f"no policy is left to search: {names}: {dropped[0].reason}", _KEY, remedy=remedy)
