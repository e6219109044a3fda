"""When a setting can act on a candidate, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spica.deployment.sample import Sample
from spica.deployment.shapes import Mode


@dataclass(frozen=True, slots=True)
class Conditions:
    """What decides whether settings act: of one candidate, or of any candidate of a search."""

    modes: tuple[Mode, ...]
    kv_router: bool
    offload: bool
    scaling: bool
    throughput_scaling: bool


def conditions_of(sample: Sample) -> Conditions:
    return Conditions(
        modes=(sample.mode,),
        kv_router=sample.router_mode == "kv_router",
        offload=sample.kv_manager.num_g2_blocks > 0,
        scaling=sample.planner.scaling is not None,
        throughput_scaling=sample.planner.enable_throughput_scaling,
    )


class When(StrEnum):
    """When a knob can act on a candidate; otherwise it is dead there.

    ``tests/knobs/test_when.py`` holds each against replay arguments: what cannot act is not told to the
    replay at all, so that two candidates that differ in it alone are one.
    """

    ALWAYS = "always"
    AGG = "agg"
    DISAGG = "disagg"
    OFFLOAD = "num_g2_blocks > 0"
    KV_ROUTER = "kv_router"
    KV_ROUTER_OFFLOAD = "kv_router and num_g2_blocks > 0"
    SCALING = "a policy that scales"
    THROUGHPUT_SCALING = "a policy with throughput scaling"

    def objection(self, found: Conditions) -> str:
        """Why the knob cannot act under these conditions; empty when it can."""
        for needed, holds, reason in (
            ((When.AGG,), "agg" in found.modes, "no aggregated deployment"),
            ((When.DISAGG,), "disagg" in found.modes, "no disaggregated deployment"),
            (_ROUTED, found.kv_router, "the router weighs nothing under round_robin"),
            (
                (When.KV_ROUTER_OFFLOAD,),
                found.offload,
                "there are no host or disk blocks to weigh: num_g2_blocks is 0",
            ),
            ((When.OFFLOAD,), found.offload, "host offload is off: num_g2_blocks is 0"),
            ((When.SCALING,), found.scaling, "no scaling policy runs a loop"),
            ((When.THROUGHPUT_SCALING,), found.throughput_scaling, "no policy forecasts the load"),
        ):
            if self in needed and not holds:
                return reason
        return ""


_ROUTED = (When.KV_ROUTER, When.KV_ROUTER_OFFLOAD)
