"""From a configuration to the branches that are searched, one per deployment mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spica.branches.backend_pool import union_of
from spica.branches.branch import Branch, TrafficOf
from spica.branches.capacity import KvBook
from spica.branches.checks import (
    KeptPolicies,
    PlannerValidator,
    check_estimator,
    check_lengths,
    check_planner,
    kept_policies,
)
from spica.branches.decode import UNSET, SampleMaker, fixed_settings
from spica.branches.knobs import ROLES, BranchKnobs, branch_knobs, dead_knobs
from spica.branches.model import BackendSummary, Dropped, RejectedPool
from spica.branches.pools import Components, ModePools, RunnerPairs, nothing_viable, pools_of_mode
from spica.branches.traffic import traffic_for
from spica.config import SearchSpace, SmartSearchConfig, Workload
from spica.deployment.projection import ParallelConfigProjector
from spica.deployment.sample import Deployment, KvManager, PredictorSettings, Scalar
from spica.deployment.shapes import Mode, Role
from spica.errors import NoPerfDatabase, Problem
from spica.evaluate.engine_args import ignored_settings
from spica.facts import ModelFacts
from spica.knobs.bindings import Holder, made
from spica.planner.presets import PlannerTarget
from spica.traffic.replayed import PreparedTrace, Traffic


@dataclass(frozen=True, slots=True)
class BranchPlan:
    """The branches of a search, in the order of ``deployment_mode``, and everything that was left out.

    ``max_seq_len`` is the sequence length in tokens that KV caches were held against. ``rejected`` has the
    shapes ruled out for backends that were dropped; those of backends that are searched are in each branch's
    ``summaries``.
    """

    branches: tuple[Branch, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]
    rejected: tuple[RejectedPool, ...]
    max_seq_len: int
    planner_target: PlannerTarget


def build_branches(
    config: SmartSearchConfig,
    *,
    runner_pairs: RunnerPairs,
    predictor_winners: Mapping[int, PredictorSettings] | None = None,
    trace: PreparedTrace | None = None,
    planner_validator: PlannerValidator | None = None,
    components: Components | None = None,
    engine_model: bool = True,
) -> BranchPlan:
    """The branches of ``config``.

    ``runner_pairs`` are the (backend, mode) pairs that the installed runner can replay. ``predictor_winners``
    maps a throughput interval in seconds to its forecaster (constant_last where absent). Without its
    ``trace`` a trace workload's branches decode, but cannot give traffic and tell fewer candidates apart as
    equal. ``planner_validator`` is asked about custom planner dicts. ``engine_model`` False: planners go
    without their model of the engine, as they did in runs of old.

    Raises NoPerfDatabase for a model or SKU without data, ConfigError for lengths beyond the context or a
    policy nobody can run, StackError for a KV load without the memory estimator, PinError for a pinned config
    that is legal nowhere, NoViableParallelConfig when no mode has a viable backend.
    """
    components = components or Components()
    space, workload = config.search_space, config.workload
    model = _known_model(space, components)
    check_lengths(config, model.context_length)
    warnings = [*check_estimator(workload, components.estimator()), *ignored_settings(_kv_manager(space))]
    policies = kept_policies(config)
    if planner_validator is not None:
        target = config.goal.planner_optimization_target
        check_planner(policies.composites, target, space, planner_validator)

    modes = [pools_of_mode(space, mode, runner_pairs, components) for mode in space.deployment_mode]
    if not any(mode.pools for mode in modes):
        raise nothing_viable(modes)
    formats = _formats(components.attention_format, model, space.hardware_sku, modes)
    experts = _formats(components.expert_format, model, space.hardware_sku, modes)
    warnings += [*_attention_notes(formats), *_expert_notes(experts)]
    setting = _Setting(
        config, model, policies, predictor_winners or {}, trace, components, formats, experts, engine_model
    )
    dropped = [*policies.dropped, *dead_knobs(space, policies.composites), *_left_to_pins(space, model)]
    branches = []
    for mode in modes:
        dropped += mode.dropped
        if mode.pools:
            branches.append(_branch(setting, mode))
            continue
        reason = "no backend can run it: " + "; ".join(str(d) for d in mode.dropped)
        dropped.append(Dropped("mode", mode.mode, reason))
        warnings.append(f"deployment mode {mode.mode} is skipped: {reason}")
    return BranchPlan(
        branches=tuple(branches),
        dropped=tuple(dropped),
        warnings=tuple(warnings),
        rejected=tuple(pool for mode in modes for pool in mode.rejected),
        max_seq_len=space.context_length or model.context_length,
        planner_target=config.goal.planner_optimization_target,
    )


@dataclass(frozen=True, slots=True)
class _Setting:
    """What all branches of a search share."""

    config: SmartSearchConfig
    model: ModelFacts
    policies: KeptPolicies
    predictors: Mapping[int, PredictorSettings]
    trace: PreparedTrace | None
    components: Components
    attention_formats: Mapping[str, str]
    expert_formats: Mapping[str, str]
    engine_model: bool


def _branch(setting: _Setting, found: ModePools) -> Branch:
    space, workload = setting.config.search_space, setting.config.workload
    composites = setting.policies.composites
    knobs = branch_knobs(space, found.mode, composites, _ratio_range(workload))
    pool = union_of(found.pools)
    maker = SampleMaker(
        deployment=_deployment(space, setting.model),
        kv_manager=_kv_manager(space),
        pins=_pins(space, found.mode),
        knobs=knobs,
        composites=composites,
        predictors=setting.predictors,
        projector=ParallelConfigProjector(pool, space.gpu_budget),
        book=_book(space, found, knobs, setting.components),
        concurrency=workload.replay_concurrency if workload.is_trace else workload.concurrency,
        isl=workload.isl or 0,
        osl=workload.osl or 0,
        attention_formats=setting.attention_formats,
        expert_formats=setting.expert_formats,
        # Without an SLA the planner goes by thresholds and asks no model.
        engine_model=setting.engine_model and setting.config.goal.planner_optimization_target == "sla",
    )
    return Branch(
        maker=maker,
        pool=pool,
        summaries=tuple(
            BackendSummary(p.backend, p.version, len(p.configs), p.rejected) for p in found.pools
        ),
        planner_target=setting.config.goal.planner_optimization_target,
        traffic_of=_traffic_of(workload, setting.trace),
    )


def _known_model(space: SearchSpace, components: Components) -> ModelFacts:
    """The model's facts. NoPerfDatabase names the model, the SKU, or both when both are unknown."""
    problems: list[Problem] = []
    model = None
    try:
        model = components.model(space.model_name)
    except NoPerfDatabase as error:
        problems += error.problems
    try:
        components.sku(space.hardware_sku)
    except NoPerfDatabase as error:
        problems += error.problems
    if model is None or problems:
        raise NoPerfDatabase(problems)
    return model


def _left_to_pins(space: SearchSpace, model: ModelFacts) -> tuple[Dropped, ...]:
    """Legal shapes that enumeration never emits, so that nobody thinks they were measured."""
    if not model.is_moe or space.parallel_configs:
        return ()
    reason = "the four MoE patterns start at two GPUs per worker; pin it in parallel_configs to measure it"
    return (Dropped("shape", "one-GPU worker (tp 1)", reason),)


def _formats(
    format_of: Callable[[str, str, str, str], str | None], model: ModelFacts, sku: str, modes: list[ModePools]
) -> dict[str, str]:
    """Backend -> the format that is timed in place of the checkpoint's own, of those where it differs."""
    versions = {pool.backend: pool.version for mode in modes for pool in mode.pools}
    found = {b: format_of(model.path, sku, b, v) for b, v in versions.items()}
    return {backend: name for backend, name in found.items() if name is not None}


def _attention_notes(formats: Mapping[str, str]) -> list[str]:
    return [
        f"{backend}: no data for the model's FP8 prefill attention on this SKU; it is timed in {name} "
        "(a little slow, if anything)"
        for backend, name in formats.items()
    ]


def _expert_notes(formats: Mapping[str, str]) -> list[str]:
    return [
        f"{backend}: the experts are timed in {name}, in which this engine runs them on this SKU; "
        "the checkpoint alone says other activations"
        for backend, name in formats.items()
    ]


def _traffic_of(workload: Workload, trace: PreparedTrace | None) -> TrafficOf | None:
    if workload.is_trace and trace is None:
        return None

    def traffic_of(concurrency: int | None) -> Traffic:
        return traffic_for(workload, concurrency, trace)

    return traffic_of


def _ratio_range(workload: Workload) -> tuple[float, float] | None:
    ratio = workload.kv_load_ratio
    if ratio is None or isinstance(ratio, tuple):
        return ratio
    return ratio, ratio


def _book(space: SearchSpace, found: ModePools, knobs: BranchKnobs, components: Components) -> KvBook:
    return KvBook(
        sku=space.hardware_sku,
        nextn=space.aic_nextn or 0,
        facts={pool.backend: pool.facts for pool in found.pools},
        seqs={role: knobs.seqs(role) for role in ROLES[found.mode]},
        capacity=components.capacity if components.estimator() else None,
    )


def _pins(space: SearchSpace, mode: Mode) -> dict[Role, dict[str, Scalar]]:
    return {role: fixed_settings(space, Holder.ENGINE, role) for role in ROLES[mode]}


def _deployment(space: SearchSpace, model: ModelFacts) -> Deployment:
    """The pinned scalars. A local model goes by its absolute folder, which is what the replay is given."""
    settings = fixed_settings(space, Holder.DEPLOYMENT)
    settings |= {"model_name": model.path, "max_seq_len": space.context_length or model.context_length}
    return made(Deployment, settings, UNSET)


def _kv_manager(space: SearchSpace) -> KvManager:
    return made(KvManager, fixed_settings(space, Holder.KV_MANAGER), UNSET)
