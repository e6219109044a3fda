"""From a replay's metrics to the numbers that are compared, by the rows of ``goals/targets.py``.

A missing or non-finite metric scores worst: 0 for a maximised target, +inf for a minimised one. Goodput
alone is different: a replay that reports none cannot be scored at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spica.goals.metrics.goodput import GOOD_OUTPUT_RATE
from spica.goals.metrics.usage import COMPLETED, DURATION, GPU_HOURS
from spica.goals.metrics.usage import avg_gpu as avg_gpu
from spica.goals.seen import Seen
from spica.goals.targets import SCALAR_TARGETS as SCALAR_TARGETS
from spica.goals.targets import OptimizationTarget, goal
from spica.optimize.protocol import Objective
from spica.trial import Metrics, Outcome, Sla, TrialResult

DEFAULT_PARETO: Final = (OptimizationTarget.THROUGHPUT_PER_GPU, OptimizationTarget.THROUGHPUT_PER_USER)

NO_GOODPUT_REASON: Final = (
    f"the replay reports no goodput ({GOOD_OUTPUT_RATE.name}), which the goal needs; the installed runner "
    "may be too old to measure an SLA"
)


class MissingGoodput(ValueError):
    """A goodput objective and a replay that reports no goodput."""


def value(target: str, metrics: Metrics, price: float | None = None) -> float:
    """A target's value in its row's unit; ``price`` is that of one GPU for an hour, > 0.

    Raises MissingGoodput for a goodput target when the replay reports no goodput.
    """
    row, seen = goal(target), Seen(metrics, price or 0.0)
    if any(metrics.get(metric.name) is None for metric in row.metrics):
        if row.needs_sla:
            raise MissingGoodput(NO_GOODPUT_REASON)
        return row.worst
    if (row.gpus and seen.gpus <= 0) or (row.needs_price and price is None):
        return row.worst
    return row.formula(seen)


def unscorable(targets: Sequence[str], metrics: Metrics) -> str:
    """Why a replay's numbers cannot be ranked by ``targets``; empty when they can.

    A rate or a latency without samples (no request has a second output token, say) is no slow one, and a
    number that no replay can have comes from a damaged or a foreign record.
    """
    completed = metrics.summary.get(COMPLETED.name)
    if completed is not None and not completed >= 1:
        return f"the replay completed {completed:g} requests"
    for name in (GPU_HOURS.name, DURATION.name):
        spent = metrics.summary.get(name)
        if spent is not None and not 0 <= spent < math.inf:
            return f"the replay reports {name} = {spent:g}"
    for name in dict.fromkeys(metric.name for target in targets for metric in goal(target).metrics):
        measured = metrics.summary.get(name)
        if measured is None and name == GOOD_OUTPUT_RATE.name:
            return NO_GOODPUT_REASON
        if measured is None:
            return f"the replay reports no {name}, which the goal needs: nothing was there to measure it on"
        if not 0 <= measured < math.inf:
            return f"the replay reports {name} = {measured:g}, which cannot be ranked"
    return ""


@dataclass(frozen=True, slots=True)
class Scoring:
    """A goal as the sweep uses it: the target, the objectives of a Pareto goal, the SLA if any, and the price
    of one GPU for an hour, > 0, where there is one. Raises ValueError for a target that is none."""

    target: str
    pareto_objectives: tuple[str, ...] = DEFAULT_PARETO
    sla: Sla | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", OptimizationTarget(self.target).value)
        objectives = tuple(OptimizationTarget(name).value for name in self.pareto_objectives)
        object.__setattr__(self, "pareto_objectives", objectives)

    @property
    def is_pareto(self) -> bool:
        return self.target == "pareto"

    @property
    def targets(self) -> tuple[str, ...]:
        """What is measured: one target, or the Pareto objectives."""
        return self.pareto_objectives if self.target == "pareto" else (self.target,)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The same for an optimizer."""
        return tuple(Objective(name, goal(name).maximize) for name in self.targets)

    @property
    def maximize(self) -> tuple[bool, ...]:
        return tuple(goal(name).maximize for name in self.targets)

    def values(self, metrics: Metrics) -> tuple[float, ...]:
        """One value per objective, natural units. Raises MissingGoodput."""
        return tuple(value(name, metrics, self.price) for name in self.targets)

    def judge(self, result: TrialResult) -> TrialResult:
        """``result``, or a failed one when it cannot be scored under this goal: a number that the goal reads
        was not measured, or cannot be (see ``unscorable``)."""
        if result.metrics is None:
            return result
        reason = unscorable(self.targets, result.metrics)
        return result if not reason else replace(result, outcome=Outcome.FAILED, reason=reason, metrics=None)

    @property
    def is_goodput(self) -> bool:
        """Whether the single target is a goodput: then a candidate excluded by the SLA wins nothing."""
        return not self.is_pareto and all(goal(name).needs_sla for name in self.targets)

    @property
    def is_per_gpu(self) -> bool:
        """Whether the single target is a total divided by the GPUs."""
        return not self.is_pareto and all(goal(name).gpus == "per" for name in self.targets)

    def excluded_by_sla(self, metrics: Metrics) -> bool:
        """Whether no token of the replay was within the SLA; False without an SLA.

        The SLA is inside the goodput metric and no gate: such a candidate is measured, scored 0 in goodput,
        and shown apart from the front.
        """
        if self.sla is None:
            return False
        goodput = metrics.get(GOOD_OUTPUT_RATE.name)
        return goodput is not None and goodput <= 0


def scoring_of(config: Mapping[str, Any]) -> Scoring:
    """The goal of a resolved configuration."""
    block = config.get("goal") or {}
    sla = block.get("sla")
    made = Scoring(target=block.get("target", "throughput"), sla=Sla(**sla) if sla else None)
    if block.get("pareto_objectives"):
        made = replace(made, pareto_objectives=tuple(block["pareto_objectives"]))
    return made


def score(target: str, natural: float) -> float:
    """Higher is better: a latency is negated."""
    return natural if goal(target).maximize else -natural
