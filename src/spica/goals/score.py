"""From a replay's metrics to the numbers that are compared: the seven targets and average GPUs.

A target reads one metric of the replay summary. A missing or non-finite metric scores worst: 0 for a
maximised target, +inf for latency. Goodput alone is different: a replay that reports none cannot be scored
at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from spica.optimize.protocol import Objective
from spica.trial import Metrics, Outcome, Sla, TrialResult

ScalarTarget = Literal[
    "throughput", "throughput_per_gpu", "throughput_per_user", "e2e_latency", "goodput", "goodput_per_gpu"
]
Target = ScalarTarget | Literal["pareto"]
SCALAR_TARGETS: Final[tuple[ScalarTarget, ...]] = get_args(ScalarTarget)
DEFAULT_PARETO: Final[tuple[ScalarTarget, ...]] = ("throughput_per_gpu", "throughput_per_user")

_GOODPUT = "goodput_output_throughput_tok_s"
_METRIC: Final = MappingProxyType(
    {
        "throughput": "output_throughput_tok_s",
        "throughput_per_gpu": "output_throughput_tok_s",
        "throughput_per_user": "mean_output_token_throughput_per_user",
        "e2e_latency": "mean_e2e_latency_ms",
        "goodput": _GOODPUT,
        "goodput_per_gpu": _GOODPUT,
    }
)
_MINIMISED: Final = frozenset({"e2e_latency"})
_PER_GPU: Final = frozenset({"throughput_per_gpu", "goodput_per_gpu"})
_MS_PER_HOUR: Final = 3_600_000.0

NO_GOODPUT_REASON: Final = (
    f"the replay reports no goodput ({_GOODPUT}), which the goal needs; the installed runner may be too "
    "old to measure an SLA"
)


class MissingGoodput(ValueError):
    """A goodput objective and a replay that reports no goodput."""


def avg_gpu(metrics: Metrics) -> float:
    """Time-averaged number of provisioned GPUs: ``gpu_hours / (duration_ms / 3.6e6)``.

    0 when either is missing, not finite or not positive.
    """
    gpu_hours, duration_ms = metrics.get("gpu_hours"), metrics.get("duration_ms")
    if gpu_hours is None or duration_ms is None or gpu_hours <= 0 or duration_ms <= 0:
        return 0.0
    return gpu_hours / (duration_ms / _MS_PER_HOUR)


def maximised(target: ScalarTarget) -> bool:
    return target not in _MINIMISED


def value(target: ScalarTarget, metrics: Metrics) -> float:
    """A target's value in natural units (tokens/s, tokens/s per GPU or user, or ms).

    Raises MissingGoodput for a goodput target when the replay reports no goodput.
    """
    measured = metrics.get(_METRIC[target])
    if measured is None:
        if _METRIC[target] == _GOODPUT:
            raise MissingGoodput(NO_GOODPUT_REASON)
        return 0.0 if maximised(target) else math.inf
    if target not in _PER_GPU:
        return measured
    gpus = avg_gpu(metrics)
    return measured / gpus if gpus > 0 else 0.0


def unscorable(targets: Sequence[ScalarTarget], metrics: Metrics) -> str:
    """Why a replay's numbers cannot be ranked by ``targets``; empty when they can.

    A rate or a latency without samples (no request has a second output token, say) is no slow one, and a
    number that no replay can have comes from a damaged or a foreign record.
    """
    completed = metrics.summary.get("completed_requests")
    if completed is not None and not completed >= 1:
        return f"the replay completed {completed:g} requests"
    for name in ("gpu_hours", "duration_ms"):
        spent = metrics.summary.get(name)
        if spent is not None and not 0 <= spent < math.inf:
            return f"the replay reports {name} = {spent:g}"
    for name in dict.fromkeys(_METRIC[target] for target in targets):
        measured = metrics.summary.get(name)
        if measured is None and name == _GOODPUT:
            return NO_GOODPUT_REASON
        if measured is None:
            return f"the replay reports no {name}, which the goal needs: nothing was there to measure it on"
        if not 0 <= measured < math.inf:
            return f"the replay reports {name} = {measured:g}, which cannot be ranked"
    return ""


@dataclass(frozen=True, slots=True)
class Scoring:
    """A goal as the sweep uses it: the target, the objectives of a Pareto goal, and the SLA if any."""

    target: Target
    pareto_objectives: tuple[ScalarTarget, ...] = DEFAULT_PARETO
    sla: Sla | None = None

    @property
    def is_pareto(self) -> bool:
        return self.target == "pareto"

    @property
    def targets(self) -> tuple[ScalarTarget, ...]:
        """What is measured: one target, or the Pareto objectives."""
        return self.pareto_objectives if self.target == "pareto" else (self.target,)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The same for an optimizer."""
        return tuple(Objective(name, maximised(name)) for name in self.targets)

    @property
    def maximize(self) -> tuple[bool, ...]:
        return tuple(maximised(name) for name in self.targets)

    def values(self, metrics: Metrics) -> tuple[float, ...]:
        """One value per objective, natural units. Raises MissingGoodput."""
        return tuple(value(name, metrics) for name in self.targets)

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
        return not self.is_pareto and all(_METRIC[name] == _GOODPUT for name in self.targets)

    @property
    def is_per_gpu(self) -> bool:
        """Whether the single target is a total divided by the GPUs."""
        return not self.is_pareto and all(name in _PER_GPU for name in self.targets)

    def excluded_by_sla(self, metrics: Metrics) -> bool:
        """Whether no token of the replay was within the SLA; False without an SLA.

        The SLA is inside the goodput metric and no gate: such a candidate is measured, scored 0 in goodput,
        and shown apart from the front.
        """
        if self.sla is None:
            return False
        goodput = metrics.get(_GOODPUT)
        return goodput is not None and goodput <= 0


def scoring_of(config: Mapping[str, Any]) -> Scoring:
    """The goal of a resolved configuration."""
    goal = config.get("goal") or {}
    sla = goal.get("sla")
    made = Scoring(target=goal.get("target", "throughput"), sla=Sla(**sla) if sla else None)
    if goal.get("pareto_objectives"):
        made = replace(made, pareto_objectives=tuple(goal["pareto_objectives"]))
    return made


def score(target: ScalarTarget, natural: float) -> float:
    """Higher is better: a latency is negated."""
    return natural if maximised(target) else -natural
