"""The ``goal`` block: what better means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spica.config.block import Block, BlockError, Converted, Rule
from spica.config.settings import default
from spica.errors import Problem
from spica.goals.seen import PlannerGoal
from spica.goals.targets import OptimizationTarget as OptimizationTarget
from spica.knobs.setting import Setting


class SlaTargets(Block):
    """Latency targets in milliseconds, each None or > 0, at least one of them set. Raises ConfigError."""

    path: ClassVar[str] = "goal.sla"

    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None

    @property
    def satisfying(self) -> bool:
        """Whether it decides which requests are good: ``e2e_ms``, or both ``ttft_ms`` and ``itl_ms``."""
        return self.e2e_ms is not None or self.has_token_targets

    @property
    def has_token_targets(self) -> bool:
        """Whether it can seed the planner's own SLA target."""
        return self.ttft_ms is not None and self.itl_ms is not None


_SLA_FORM = "{e2e_ms: N} or {ttft_ms: N, itl_ms: N}"


def _sla(goal: Goal) -> Iterator[Problem]:
    needing = [target for target in goal.objectives if target.needs_sla]
    if needing and goal.sla is None:
        yield Problem(f"{needing[0]} needs an SLA", "goal.sla", allowed=_SLA_FORM)
    elif needing and goal.sla is not None and not goal.sla.satisfying:
        yield Problem(f"the SLA is not complete enough for {needing[0]}", "goal.sla", allowed=_SLA_FORM)
    elif not needing and goal.sla is not None:
        yield Problem(
            f"nothing in this goal ({', '.join(goal.objectives)}) counts requests against an SLA",
            "goal.sla",
            remedy=f"remove it, or choose {' or '.join(t for t in OptimizationTarget if t.needs_sla)}",
        )


def _pareto(goal: Goal) -> Iterator[Problem]:
    key = "goal.pareto_objectives"
    is_pareto = goal.target is OptimizationTarget.PARETO
    if not is_pareto and goal.pareto_objectives != default("goal", "pareto_objectives"):
        yield Problem(
            f"it needs target: pareto, not {goal.target}", key, remedy="remove it, or set target: pareto"
        )
    elif is_pareto and len(goal.pareto_objectives) < 2:
        yield Problem("a pareto goal needs at least two different objectives", key)


class Goal(Block):
    """What better means; ``objectives`` is the list to score by. Raises ConfigError."""

    path: ClassVar[str] = "goal"
    rules = (
        Rule(("target", "pareto_objectives", "sla"), _sla),
        Rule(("target", "pareto_objectives"), _pareto),
    )

    target: OptimizationTarget = OptimizationTarget(default("goal", "target"))
    sla: SlaTargets | None = None
    pareto_objectives: tuple[OptimizationTarget, ...] = tuple(
        map(OptimizationTarget, default("goal", "pareto_objectives"))
    )

    @classmethod
    def convert(cls, setting: Setting, value: object, key: str, notices: list[Problem]) -> Converted | None:
        if setting.name != "sla":
            return None
        try:
            return SlaTargets.model_validate(value), ()
        except BlockError as error:
            return None, error.problems

    @property
    def allows_throughput_scaling(self) -> bool:
        """Whether predictive scaling has the ttft/itl targets it sizes the deployment from."""
        return self.target.needs_sla and self.sla is not None and self.sla.has_token_targets

    @property
    def allows_load_scaling(self) -> bool:
        """False for a goodput goal with an e2e-only SLA, which gives the planner no target at all."""
        return not self.target.needs_sla or self.allows_throughput_scaling

    @property
    def is_pareto(self) -> bool:
        return self.target is OptimizationTarget.PARETO

    @property
    def objectives(self) -> tuple[OptimizationTarget, ...]:
        """The targets to score by: the one target, or the objectives of a Pareto goal."""
        return self.pareto_objectives if self.is_pareto else (self.target,)

    @property
    def planner_optimization_target(self) -> PlannerGoal:
        return self.target.planner_optimization_target
