"""What the formula of a goal sees, and what a goal says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from spica.goals.metrics.metric import Metric
from spica.goals.metrics.usage import avg_gpu
from spica.trial import Metrics

PlannerGoal = Literal["throughput", "latency", "sla"]


@dataclass(frozen=True, slots=True)
class Seen:
    """One replay as a formula reads it: ``seen[METRIC]`` is a measured value, ``seen.gpus`` the time-averaged
    number of provisioned GPUs, ``seen.price`` the price of one GPU for an hour in the user's currency (0
    when none was given)."""

    metrics: Metrics
    price: float = 0.0

    def __getitem__(self, metric: Metric) -> float:
        measured = self.metrics.get(metric.name)
        if measured is None:
            raise KeyError(metric.name)
        return measured

    @property
    def gpus(self) -> float:
        return avg_gpu(self.metrics)


@dataclass(frozen=True, slots=True)
class GoalRow:
    """One goal, complete.

    - ``title``, ``unit``: as people read it.
    - ``metrics``: what the replay must have measured; the formula is only asked when all of it is there.
    - ``formula``: the value in ``unit``; ``source`` says where it comes from.
    - ``maximize``: the direction.
    - ``gpus``: ``per`` for a total divided by the GPUs, ``times`` for one that grows with them. Without GPU
      hours such a goal has its worst value.
    - ``needs_sla``: it counts only requests that meet the SLA. ``needs_price``: it reads ``seen.price``.
    - ``planner``: the target that the planner of a scaling candidate is given.
    """

    title: str
    unit: str
    metrics: tuple[Metric, ...]
    formula: Callable[[Seen], float]
    source: str
    maximize: bool = True
    gpus: Literal["", "per", "times"] = ""
    needs_sla: bool = False
    needs_price: bool = False
    planner: PlannerGoal = "throughput"

    @property
    def worst(self) -> float:
        """What a replay without the needed numbers is given."""
        return 0.0 if self.maximize else float("inf")
