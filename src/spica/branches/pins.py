"""Parallel configs that the user pinned: kept for the backends that can run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spica.branches.backend_pool import (
    BackendFacts,
    BackendPool,
    Feasibility,
    PoolRequest,
    RejectedShape,
    RoleLimits,
    backend_facts,
    role_verdicts,
)
from spica.deployment.rules import backend_objection, shape_objection
from spica.deployment.shapes import ParallelConfig, ParallelShape
from spica.errors import PinError, Problem
from spica.facts import ShapeFeasibility, feasible_shape_tokens


def validate_pin(
    config: ParallelConfig,
    request: PoolRequest,
    facts: BackendFacts,
    *,
    feasibility: Feasibility = feasible_shape_tokens,
) -> tuple[RejectedShape | str, ...]:
    """Every reason why ``request.backend`` cannot run ``config``; empty when it can.

    The rules are those of the enumerator, except that a shape need not be one of the patterns it emits: MoE
    width (a dense model splits attention only), GPUs per worker on the ladder, no pipeline parallelism, the
    backend's own limits, KV feasibility in every role, and all GPUs within the budget. The KV cache is
    asked about legal shapes only.
    """
    reasons: list[RejectedShape | str] = []
    if config.mode != request.mode:
        return (f"the config is {config.mode}, the branch is {request.mode}",)
    for limits, (role, group) in zip(request.roles, config.groups, strict=True):
        shape = group.shape
        if group.replicas < 1:
            reasons.append(RejectedShape(role, shape, f"replicas is {group.replicas}, not at least 1"))
        objection = shape_objection(shape, is_moe=facts.is_moe) or backend_objection(
            shape, request.backend, wide_ep=facts.wide_ep
        )
        if objection is not None:
            reasons.append(RejectedShape(role, shape, objection))
            continue
        verdict = _verdict(shape, limits, request, facts, feasibility)
        if verdict is not None and not verdict.feasible:
            reasons.append(RejectedShape(role, shape, verdict.reason, verdict))
    if config.used_gpus > request.gpu_budget:
        reasons.append(f"uses {config.used_gpus} GPUs, more than gpu_budget {request.gpu_budget}")
    if request.min_gpu_budget is not None and config.used_gpus < request.min_gpu_budget:
        reasons.append(f"uses {config.used_gpus} GPUs, fewer than min_gpu_budget {request.min_gpu_budget}")
    return tuple(reasons)


def pinned_pools(
    configs: Sequence[ParallelConfig],
    requests: Sequence[PoolRequest],
    *,
    facts: Mapping[str, BackendFacts] | None = None,
    feasibility: Feasibility = feasible_shape_tokens,
) -> tuple[BackendPool, ...]:
    """One pool per request (they differ in backend), holding the pins that are legal there, sorted.

    A backend on which no pin is legal has an empty pool, with the reasons in ``rejected``. ``facts`` per
    backend stand in for the installed components where given.

    Raises PinError when a pin is legal on no backend: all such pins at once, each with every backend's
    reasons.
    """
    found = {r.backend: (facts or {}).get(r.backend) or backend_facts(r) for r in requests}
    reasons = {
        (i, r.backend): validate_pin(config, r, found[r.backend], feasibility=feasibility)
        for i, config in enumerate(configs)
        for r in requests
    }
    backends = [r.backend for r in requests]
    nowhere = [i for i in range(len(configs)) if all(reasons[i, b] for b in backends)]
    if nowhere:
        raise PinError([_problem(i, configs[i], {b: reasons[i, b] for b in backends}) for i in nowhere])
    return tuple(_pool(r, found[r.backend], configs, reasons) for r in requests)


def _pool(
    request: PoolRequest,
    facts: BackendFacts,
    configs: Sequence[ParallelConfig],
    reasons: Mapping[tuple[int, str], tuple[RejectedShape | str, ...]],
) -> BackendPool:
    """The pins legal on one backend; what it cannot run is kept as rejected shapes."""
    legal = {config for i, config in enumerate(configs) if not reasons[i, request.backend]}
    rejected = {
        why: None
        for i in range(len(configs))
        for why in reasons[i, request.backend]
        if isinstance(why, RejectedShape)
    }
    ordered = sorted(legal, key=lambda config: [group for _, group in config.groups])
    return BackendPool(request.backend, facts, tuple(ordered), tuple(rejected))


def _verdict(
    shape: ParallelShape,
    limits: RoleLimits,
    request: PoolRequest,
    facts: BackendFacts,
    feasibility: Feasibility,
) -> ShapeFeasibility | None:
    return role_verdicts([shape], limits, request, facts, feasibility).get(shape)


def _problem(
    index: int, config: ParallelConfig, reasons: Mapping[str, tuple[RejectedShape | str, ...]]
) -> Problem:
    texts = {backend: "; ".join(map(str, why)) for backend, why in reasons.items()}
    if len(set(texts.values())) == 1:
        told = f"{', '.join(texts)}: {next(iter(texts.values()))}"
    else:
        told = "; ".join(f"{backend}: {text}" for backend, text in texts.items())
    return Problem(
        message=f"{config} can run on no backend of the search: {told}",
        key=f"search_space.parallel_configs[{index}]",
        remedy="change the entry, or leave parallel_configs empty to have every viable config enumerated",
    )
