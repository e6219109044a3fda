"""The goals, one row each. Schema, scoring, planner, reports and documents read the row."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from spica.goals.metrics.goodput import GOOD_OUTPUT_RATE
from spica.goals.metrics.latency import MEAN_E2E
from spica.goals.metrics.throughput import OUTPUT_RATE, RATE_PER_USER
from spica.goals.seen import GoalRow, PlannerGoal

_DYNAMO: Final = "Dynamo's replay summary"


class OptimizationTarget(StrEnum):
    """What a sweep optimises. ``pareto`` is a vector of others and has no row of its own."""

    _row: GoalRow | None

    def __new__(cls, name: str, row: GoalRow | None = None) -> OptimizationTarget:
        member = str.__new__(cls, name)
        member._value_ = name
        member._row = row
        return member

    THROUGHPUT = (
        "throughput",
        GoalRow("output throughput", "tok/s", (OUTPUT_RATE,), lambda seen: seen[OUTPUT_RATE], _DYNAMO),
    )
    THROUGHPUT_PER_GPU = (
        "throughput_per_gpu",
        GoalRow(
            title="output throughput per GPU",
            unit="tok/s/GPU",
            metrics=(OUTPUT_RATE,),
            formula=lambda seen: seen[OUTPUT_RATE] / seen.gpus,
            source=f"{_DYNAMO}, over the average of the GPUs provisioned",
            gpus="per",
        ),
    )
    THROUGHPUT_PER_USER = (
        "throughput_per_user",
        GoalRow(
            "output speed per user", "tok/s/user", (RATE_PER_USER,), lambda seen: seen[RATE_PER_USER], _DYNAMO
        ),
    )
    E2E_LATENCY = (
        "e2e_latency",
        GoalRow(
            title="mean end-to-end latency",
            unit="ms",
            metrics=(MEAN_E2E,),
            formula=lambda seen: seen[MEAN_E2E],
            source=_DYNAMO,
            maximize=False,
            planner="latency",
        ),
    )
    GOODPUT = (
        "goodput",
        GoalRow(
            title="goodput",
            unit="good tok/s",
            metrics=(GOOD_OUTPUT_RATE,),
            formula=lambda seen: seen[GOOD_OUTPUT_RATE],
            source=_DYNAMO,
            needs_sla=True,
            planner="sla",
        ),
    )
    GOODPUT_PER_GPU = (
        "goodput_per_gpu",
        GoalRow(
            title="goodput per GPU",
            unit="good tok/s/GPU",
            metrics=(GOOD_OUTPUT_RATE,),
            formula=lambda seen: seen[GOOD_OUTPUT_RATE] / seen.gpus,
            source=f"{_DYNAMO}, over the average of the GPUs provisioned",
            gpus="per",
            needs_sla=True,
            planner="sla",
        ),
    )
    PARETO = "pareto"

    @property
    def row(self) -> GoalRow:
        """What is known of the goal. Raises ValueError for ``pareto``."""
        if self._row is None:
            raise ValueError(f"{self} has objectives, and no value of its own")
        return self._row

    @property
    def planner_optimization_target(self) -> PlannerGoal:
        """The target the planner of a scaling candidate is given."""
        return "throughput" if self._row is None else self._row.planner

    @property
    def needs_sla(self) -> bool:
        """Whether the metric counts only requests that meet an SLA."""
        return self._row is not None and self._row.needs_sla

    @property
    def maximize(self) -> bool:
        """The direction; meaningless for ``pareto``, whose objectives have their own."""
        return self._row is None or self._row.maximize


#: The goals that have a value; ``pareto`` combines them.
SCALAR_TARGETS: Final = tuple(target for target in OptimizationTarget if target._row is not None)


def goal(name: str) -> GoalRow:
    """The row of a goal under its name in the configuration. Raises ValueError for another name, and for
    ``pareto``."""
    return OptimizationTarget(name).row
