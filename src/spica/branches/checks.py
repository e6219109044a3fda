"""What must hold of a configuration before anything is enumerated, now that the model is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from spica.branches.decode import planner_settings
from spica.branches.knobs import Composites
from spica.branches.model import Dropped
from spica.config import SearchSpace, SmartSearchConfig, Workload
from spica.deployment.sample import PlannerSettings
from spica.errors import ConfigError, Problem, StackError
from spica.planner.filters import filter_scaling_policies
from spica.planner.presets import (
    FPM_SAMPLING,
    LOAD_SENSITIVITY,
    PLANNER_PRESETS,
    SCALING_POLICIES,
    PlannerTarget,
)

#: What the installed planner has against a policy, or None (``evaluate.planner_config``).
PlannerValidator = Callable[[PlannerSettings, PlannerTarget], str | None]

_NO_ESTIMATOR: Final = "the KV-cache memory estimator cannot be imported"


@dataclass(frozen=True, slots=True)
class KeptPolicies:
    """The planner composites that the goal can use, and the policies it cannot."""

    composites: Composites
    dropped: tuple[Dropped, ...]

    @property
    def throughput_intervals(self) -> tuple[int, ...]:
        """The distinct throughput intervals (seconds) of the kept policies that forecast load, ascending."""
        policies = (p for p in self.composites.policies if p.enable_throughput_scaling)
        return tuple(sorted({p.throughput_adjustment_interval_seconds for p in policies}))


def kept_policies(config: SmartSearchConfig) -> KeptPolicies:
    """The scaling policies that the goal can use, with what belongs to them.

    Predictive throughput scaling needs a goodput goal whose SLA has ``ttft_ms`` and ``itl_ms``; a goodput
    goal without them leaves only static policies. Raises ConfigError when nothing is left.
    """
    space, goal = config.search_space, config.goal
    sla = goal.target.needs_sla
    targets = goal.sla is not None and goal.sla.has_token_targets
    policies, dropped = filter_scaling_policies(
        space.planner_scaling_policy, allow_throughput=sla and targets, allow_load=targets or not sla
    )
    scales = not all(policy.is_static for policy in policies)
    # Without a loop the last two are never read: the first entry stands for all.
    composites = Composites(
        policies=policies,
        sampling=space.planner_fpm_sampling if scales else space.planner_fpm_sampling[:1],
        sensitivity=space.planner_load_sensitivity if scales else space.planner_load_sensitivity[:1],
    )
    return KeptPolicies(composites, tuple(Dropped("policy", d.policy.name, d.reason) for d in dropped))


def check_lengths(config: SmartSearchConfig, model_limit: int) -> None:
    """Refuse what exceeds the context: ``context_length`` beyond the model's maximum, isl + osl beyond
    either.

    ``model_limit`` in tokens. Raises ConfigError.
    """
    if problems := tuple(_length_problems(config.search_space, config.workload, model_limit)):
        raise ConfigError(problems)


def _length_problems(space: SearchSpace, workload: Workload, model_limit: int) -> Iterator[Problem]:
    if space.context_length is not None and space.context_length > model_limit:
        yield Problem(
            f"{space.context_length} tokens is more than the maximum of {space.model_name}",
            "search_space.context_length",
            allowed=f"at most {model_limit}",
            remedy="lower it, or leave it out for the model's maximum",
        )
    limit = min(space.context_length or model_limit, model_limit)
    if workload.isl is None or workload.osl is None or workload.isl + workload.osl <= limit:
        return
    source = "context_length" if limit == space.context_length else f"the maximum of {space.model_name}"
    yield Problem(
        f"a request has isl {workload.isl} + osl {workload.osl} = {workload.isl + workload.osl} tokens, "
        f"more than {source} ({limit})",
        "workload.isl",
        allowed=f"isl + osl of at most {limit}",
        remedy="shorten the requests, or choose a model with a longer context",
    )


def check_estimator(workload: Workload, available: bool) -> tuple[str, ...]:
    """Warnings about a missing memory estimator.

    Raises StackError for a KV-load workload, whose concurrency only the estimator can give.
    """
    if available:
        return ()
    if workload.kv_load_ratio is not None:
        raise StackError(
            f"workload.kv_load_ratio: {_NO_ESTIMATOR}, and the load is a share of a candidate's KV cache",
            remedy="install the pinned environment (requirements.lock), or set concurrency or request_rate",
        )
    return (
        f"{_NO_ESTIMATOR}: worker shapes are not checked against their KV cache, and a candidate that does "
        "not fit is found out by its replay",
    )


def check_planner(
    composites: Composites, target: PlannerTarget, space: SearchSpace, validator: PlannerValidator
) -> None:
    """Ask the planner itself about every custom dict that will be used. Raises ConfigError with all it has
    against them."""
    fpm, sensitivity = FPM_SAMPLING["default"], LOAD_SENSITIVITY["default"]
    policy = next((p for p in composites.policies if not p.is_static), SCALING_POLICIES["load_180_5"])
    if not composites.scales:
        return
    asked = [
        *(("planner_scaling_policy", p.name, (p, fpm, sensitivity)) for p in composites.policies),
        *(("planner_fpm_sampling", f.name, (policy, f, sensitivity)) for f in composites.sampling),
        *(("planner_load_sensitivity", s.name, (policy, fpm, s)) for s in composites.sensitivity),
    ]
    problems = []
    for knob, name, parts in asked:
        if name in PLANNER_PRESETS[knob]:
            continue
        objection = validator(planner_settings(*parts, predictors={}), target)
        if objection is not None:
            names = [entry.name for entry in getattr(space, knob)]
            problems.append(
                Problem(
                    f"the planner refuses {name}: {objection}", f"search_space.{knob}[{names.index(name)}]"
                )
            )
    if problems:
        raise ConfigError(problems)
