"""Which backends can run a mode, with which parallel configs, and why the others cannot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spica.branches.backend_pool import (
    BackendFacts,
    BackendPool,
    Feasibility,
    NoViableShape,
    PoolRequest,
    RoleLimits,
    backend_facts,
    parallel_configs_for,
)
from spica.branches.capacity import Capacity
from spica.branches.knobs import ROLES
from spica.branches.model import Dropped, RejectedPool
from spica.branches.pins import pinned_pools
from spica.config import SearchSpace
from spica.deployment.shapes import Mode
from spica.errors import NoPerfDatabase, NoViableParallelConfig, SpicaError
from spica.facts import (
    ModelFacts,
    SkuFacts,
    estimator_available,
    expert_format,
    feasible_shape_tokens,
    kv_capacity,
    model_facts,
    prefill_attention_format,
    sku_facts,
)

RunnerPairs = Collection[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Components:
    """The installed components that branches are built from; a test may put small stand-ins here."""

    model: Callable[[str], ModelFacts] = model_facts
    sku: Callable[[str], SkuFacts] = sku_facts
    facts: Callable[[PoolRequest], BackendFacts] = backend_facts
    feasibility: Feasibility = feasible_shape_tokens
    capacity: Capacity = kv_capacity
    estimator: Callable[[], bool] = estimator_available
    attention_format: Callable[[str, str, str, str], str | None] = prefill_attention_format
    expert_format: Callable[[str, str, str, str], str | None] = expert_format


@dataclass(slots=True)
class ModePools:
    """What was found for one mode. ``errors`` are the reasons why backends have no config."""

    mode: Mode
    pools: list[BackendPool] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    rejected: list[RejectedPool] = field(default_factory=list)
    errors: list[SpicaError] = field(default_factory=list)


def pools_of_mode(
    space: SearchSpace, mode: Mode, runner_pairs: RunnerPairs, components: Components
) -> ModePools:
    """The pools of every backend of the search that can run ``mode``.

    Raises PinError when a pinned config is legal on none of the backends that the runner can replay.
    """
    found = ModePools(mode)
    requests: list[PoolRequest] = []
    facts: dict[str, BackendFacts] = {}
    for backend in space.backend:
        if (backend, mode) not in runner_pairs:
            reason = f"the installed runner cannot replay {backend} in {mode} mode"
            found.dropped.append(Dropped("pair", f"{backend} {mode}", reason))
            continue
        request = pool_request(space, mode, backend)
        try:
            facts[backend] = components.facts(request)
        except NoPerfDatabase as error:
            found.dropped.append(Dropped("backend", f"{backend} for {mode}", _one_line(error)))
            found.errors.append(error)
            continue
        requests.append(request)
    if space.parallel_configs:
        _pinned(found, space, requests, facts, components)
    else:
        _enumerated(found, requests, facts, components)
    return found


def pool_request(space: SearchSpace, mode: Mode, backend: str) -> PoolRequest:
    """What ``backend`` is asked to run; shapes are judged at the smallest searched batching values."""
    return PoolRequest(
        mode=mode,
        model=space.model_name,
        sku=space.hardware_sku,
        backend=backend,
        gpu_budget=space.gpu_budget,
        roles=tuple(
            RoleLimits(
                role,
                min(getattr(space, f"{role}_max_num_batched_tokens")),
                min(getattr(space, f"{role}_max_num_seqs")),
                getattr(space, f"{role}_gpu_memory_utilization"),
            )
            for role in ROLES[mode]
        ),
        min_gpu_budget=space.min_gpu_budget,
        context_length=space.context_length,
        nextn=space.aic_nextn or 0,
    )


def _enumerated(
    found: ModePools,
    requests: Sequence[PoolRequest],
    facts: Mapping[str, BackendFacts],
    components: Components,
) -> None:
    for request in requests:
        backend = request.backend
        try:
            pool = parallel_configs_for(request, facts=facts[backend], feasibility=components.feasibility)
        except NoViableParallelConfig as error:
            found.dropped.append(Dropped("backend", f"{backend} for {found.mode}", _one_line(error)))
            found.errors.append(error)
            if isinstance(error, NoViableShape):
                found.rejected.append(RejectedPool(found.mode, backend, error.rejected))
        else:
            found.pools.append(pool)


def _pinned(
    found: ModePools,
    space: SearchSpace,
    requests: Sequence[PoolRequest],
    facts: Mapping[str, BackendFacts],
    components: Components,
) -> None:
    if not requests:
        return
    pools = pinned_pools(space.parallel_configs, requests, facts=facts, feasibility=components.feasibility)
    for pool in pools:
        if pool.configs:
            found.pools.append(pool)
            continue
        reasons = "; ".join(map(str, pool.rejected)) or "no pinned config fits the GPU budget"
        found.dropped.append(Dropped("backend", f"{pool.backend} for {found.mode}", reasons))
        found.rejected.append(RejectedPool(found.mode, pool.backend, pool.rejected))


def nothing_viable(modes: Sequence[ModePools]) -> SpicaError:
    """The error of a search in which no backend can run any mode.

    The budget is named as the cause only when more GPUs would help; the fewest GPUs of all modes and backends
    are then given.
    """
    errors = [error for mode in modes for error in mode.errors]
    reasons = "\n    ".join(str(dropped) for mode in modes for dropped in mode.dropped)
    short = [e for e in errors if isinstance(e, NoViableParallelConfig) and e.min_gpus is not None]
    if short:
        nearest = min(short, key=lambda error: error.min_gpus or 0)
        return NoViableParallelConfig(
            f"no mode has a viable backend:\n    {reasons}", min_gpus=nearest.min_gpus, remedy=nearest.remedy
        )
    missing = [e for e in errors if isinstance(e, NoPerfDatabase)]
    if missing and len(missing) == len(errors):
        problems = {problem: None for error in missing for problem in error.problems}
        return NoPerfDatabase(tuple(problems))
    remedy = next((error.remedy for error in reversed(errors) if error.remedy), "")
    if not errors:
        remedy = "choose a backend and a mode that the installed runner can replay"
    return NoViableParallelConfig(f"no mode has a viable backend:\n    {reasons}", remedy=remedy)


def _one_line(error: SpicaError) -> str:
    text = (
        "; ".join(p.message for p in error.problems) if isinstance(error, NoPerfDatabase) else error.message
    )
    return " ".join(text.split())
