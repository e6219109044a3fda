"""The valid parallel configs of a backend, of several backends together, and what was ruled out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spica.deployment.enumerate import enumerate_disagg_configs, enumerate_parallel_configs, smallest_budget
from spica.deployment.pool import ConfigPool
from spica.deployment.rules import backend_objection, ladder, worker_shapes
from spica.deployment.shapes import Mode, ParallelConfig, ParallelShape, Role
from spica.errors import NoViableParallelConfig
from spica.facts import (
    FeasibilityQuery,
    ShapeFeasibility,
    estimator_available,
    feasible_shape_tokens,
    model_facts,
    model_weight_bytes,
    resolve_backend_version,
    sku_facts,
)

Feasibility = Callable[[Iterable[ParallelShape], FeasibilityQuery], Mapping[ParallelShape, ShapeFeasibility]]


@dataclass(frozen=True, slots=True)
class RoleLimits:
    """The engine setting in which a role's shapes are judged: the smallest searched batching values."""

    role: Role
    max_num_tokens: int
    max_batch_size: int
    memory_fraction: float = 0.9


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """What one backend is asked to run. ``roles`` is (agg,) or (prefill, decode)."""

    mode: Mode
    model: str
    sku: str
    backend: str
    gpu_budget: int
    roles: tuple[RoleLimits, ...]
    min_gpu_budget: int | None = None
    context_length: int | None = None
    nextn: int = 0

    def __post_init__(self) -> None:
        expected = ("agg",) if self.mode == "agg" else ("prefill", "decode")
        if tuple(limits.role for limits in self.roles) != expected:
            raise ValueError(f"{self.mode} needs the limits of {expected}, in that order")
        if not 0 < (self.min_gpu_budget or 1) <= self.gpu_budget:
            raise ValueError(
                f"need 0 < min_gpu_budget <= gpu_budget, not {self.min_gpu_budget}, {self.gpu_budget}"
            )


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """What of the model, the SKU and the backend decides about shapes. ``max_seq_len`` is the length that
    the KV cache must exceed, in tokens; ``kv_filtered`` is False when there is no estimator to ask.
    """

    version: str
    model_path: str
    is_moe: bool
    max_seq_len: int
    wide_ep: bool
    kv_filtered: bool = True


@dataclass(frozen=True, slots=True)
class RejectedShape:
    """A shape that was ruled out for a role. ``verdict`` holds the bytes when the KV filter did it."""

    role: Role
    shape: ParallelShape
    reason: str
    verdict: ShapeFeasibility | None = None

    def __str__(self) -> str:
        return f"{self.role} {self.shape}: {self.reason}"


class NoViableShape(NoViableParallelConfig):
    """Nothing is left for a backend; ``rejected`` says why, shape by shape."""

    def __init__(
        self,
        message: str,
        *,
        min_gpus: int | None = None,
        remedy: str = "",
        rejected: tuple[RejectedShape, ...] = (),
    ) -> None:
        super().__init__(message, min_gpus=min_gpus, remedy=remedy)
        self.rejected = rejected


@dataclass(frozen=True, slots=True)
class BackendPool:
    """The configs that one backend can run, sorted, and the shapes it cannot."""

    backend: str
    facts: BackendFacts
    configs: tuple[ParallelConfig, ...]
    rejected: tuple[RejectedShape, ...] = ()

    @property
    def version(self) -> str:
        return self.facts.version


def union_of(pools: Iterable[BackendPool]) -> ConfigPool:
    """The pools of several backends as one."""
    pools = tuple(pools)
    # The pairs of a pool share their group objects. Ranking those few once, and telling them apart by
    # identity, spares hashing and comparing nested values for each of the many pairs.
    objects = {id(group): group for pool in pools for config in pool.configs for _, group in config.groups}
    order = {group: i for i, group in enumerate(sorted(set(objects.values())))}
    rank = {identity: order[group] for identity, group in objects.items()}
    valid: dict[tuple[int, ...], tuple[ParallelConfig, tuple[str, ...]]] = {}
    for pool in pools:
        for config in pool.configs:
            key = tuple([rank[id(group)] for _, group in config.groups])
            _, names = valid.get(key, (config, ()))
            valid[key] = (config, (*names, pool.backend))
    sets = {names: frozenset(names) for _, names in valid.values()}
    ordered = [valid[key] for key in sorted(valid)]
    return ConfigPool(tuple(c for c, _ in ordered), tuple(sets[names] for _, names in ordered))


def backend_facts(request: PoolRequest) -> BackendFacts:
    """Look up what decides about shapes.

    A model is spread wide (wideEP: experts over several nodes) when it is MoE and a node's memory is less
    than twice its weights.

    Raises NoPerfDatabase or InputError when the model, the SKU or the pair of SKU and backend is unknown.
    """
    model = model_facts(request.model)
    sku = sku_facts(request.sku)
    version = resolve_backend_version(request.sku, request.backend)
    wide_ep = False
    if model.is_moe:
        weights = model_weight_bytes(request.model, request.backend)
        wide_ep = sku.gpus_per_node * sku.vram_bytes < 2 * weights
    return BackendFacts(
        version=version,
        model_path=model.path,
        is_moe=model.is_moe,
        max_seq_len=request.context_length or model.context_length,
        wide_ep=wide_ep,
        kv_filtered=estimator_available(),
    )


def parallel_configs_for(
    request: PoolRequest,
    *,
    facts: BackendFacts | None = None,
    feasibility: Feasibility = feasible_shape_tokens,
) -> BackendPool:
    """Every config of ``request.backend`` that is legal, fits its KV cache and keeps the GPU budget.

    ``facts`` and ``feasibility`` stand in for the installed components where given.

    Raises NoPerfDatabase (see ``backend_facts``), and NoViableParallelConfig when nothing is left, with the
    fewest GPUs that would do when the budget is the cause.
    """
    facts = facts or backend_facts(request)
    kept, rejected = _split_shapes(request, facts, feasibility, ladder(request.gpu_budget))
    configs = _fill(request, kept)
    if not configs:
        raise _nothing_viable(request, facts, feasibility, rejected)
    return BackendPool(request.backend, facts, configs, rejected)


def role_verdicts(
    shapes: Sequence[ParallelShape],
    limits: RoleLimits,
    request: PoolRequest,
    facts: BackendFacts,
    feasibility: Feasibility,
) -> Mapping[ParallelShape, ShapeFeasibility]:
    """The KV verdicts on ``shapes`` in a role; empty when there is no estimator to ask."""
    if not facts.kv_filtered:
        return {}
    query = FeasibilityQuery(
        model=facts.model_path,
        sku=request.sku,
        backend=request.backend,
        backend_version=facts.version,
        max_seq_len=facts.max_seq_len,
        max_num_tokens=limits.max_num_tokens,
        max_batch_size=limits.max_batch_size,
        memory_fraction=limits.memory_fraction,
        nextn=request.nextn,
    )
    return feasibility(shapes, query)


def _split_shapes(
    request: PoolRequest, facts: BackendFacts, feasibility: Feasibility, sizes: Sequence[int]
) -> tuple[tuple[tuple[ParallelShape, ...], ...], tuple[RejectedShape, ...]]:
    """The shapes kept per role, in the order of ``request.roles``, and those ruled out."""
    shapes = worker_shapes(is_moe=facts.is_moe, gpus_per_worker=sizes)
    kept: list[tuple[ParallelShape, ...]] = []
    rejected: list[RejectedShape] = []
    for limits in request.roles:
        legal: list[ParallelShape] = []
        for shape in shapes:
            objection = backend_objection(shape, request.backend, wide_ep=facts.wide_ep)
            if objection is None:
                legal.append(shape)
            else:
                rejected.append(RejectedShape(limits.role, shape, objection))
        verdicts = role_verdicts(legal, limits, request, facts, feasibility)
        failed = {shape: verdict for shape, verdict in verdicts.items() if not verdict.feasible}
        rejected.extend(RejectedShape(limits.role, s, v.reason, v) for s, v in failed.items())
        kept.append(tuple(shape for shape in legal if shape not in failed))
    return tuple(kept), tuple(rejected)


def _fill(request: PoolRequest, kept: Sequence[Sequence[ParallelShape]]) -> tuple[ParallelConfig, ...]:
    if request.mode == "agg":
        return enumerate_parallel_configs(
            kept[0], gpu_budget=request.gpu_budget, min_gpu_budget=request.min_gpu_budget
        )
    return enumerate_disagg_configs(
        kept[0], kept[1], gpu_budget=request.gpu_budget, min_gpu_budget=request.min_gpu_budget
    )


def _nothing_viable(
    request: PoolRequest, facts: BackendFacts, feasibility: Feasibility, rejected: tuple[RejectedShape, ...]
) -> NoViableShape:
    """Say whether the budget is the cause, by asking the whole ladder, and else what came closest."""
    kept, everything_rejected = _split_shapes(request, facts, feasibility, ladder())
    low = request.min_gpu_budget or 1
    needed = smallest_budget(kept, at_least=low)
    who = f"no {request.mode} worker shape of {request.model} runs on {request.sku} with {request.backend}"
    length = f"for sequences of {facts.max_seq_len:,} tokens"
    if needed is not None:
        window = f"{low} to {request.gpu_budget}" if low > 1 else f"{request.gpu_budget}"
        lower = [
            n for n, helps in (("context_length", _some_kv(rejected)), ("min_gpu_budget", low > 1)) if helps
        ]
        instead = f", or lower {' or '.join(lower)}" if lower else ""
        return NoViableShape(
            f"{who} within {window} GPUs, {length}",
            min_gpus=needed,
            remedy=f"{needed} GPUs would do: raise gpu_budget{instead}",
            rejected=rejected,
        )
    shorter = "lower context_length, or " if _some_kv(everything_rejected) else ""
    closest = max(everything_rejected, key=lambda r: (r.verdict.tokens or 0) if r.verdict else -1)
    return NoViableShape(
        f"{who} at any size up to {ladder()[-1]} GPUs per worker, {length}; closest: {closest}",
        remedy=f"{shorter}choose another SKU, backend or quantization",
        rejected=everything_rejected,
    )


def _some_kv(rejected: Sequence[RejectedShape]) -> bool:
    """Whether some shape has room for a KV cache beside its weights, so that shorter sequences would help."""
    return any(r.verdict is not None and (r.verdict.tokens or 0) > 0 for r in rejected)
