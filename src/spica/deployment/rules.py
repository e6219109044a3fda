"""Which worker shapes exist, and which backend can run them. Pure: knows no model, SKU or memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from spica.deployment.shapes import ParallelShape

_DEFAULT_GPUS_PER_WORKER = (1, 2, 4, 8, 16)
_PURE_MOE_STRATEGIES = ("tep", "dep", "tp", "dtp")


def ladder(gpu_budget: int | None = None) -> tuple[int, ...]:
    """The GPUs one worker may span, ascending, capped at ``gpu_budget`` when given."""
    return tuple(g for g in _DEFAULT_GPUS_PER_WORKER if gpu_budget is None or g <= gpu_budget)


def worker_shapes(*, is_moe: bool, gpus_per_worker: Iterable[int]) -> tuple[ParallelShape, ...]:
    """The shapes of a worker, sorted by GPUs, then by dimensions.

    Dense: one tensor-parallel shape per size. MoE: every split of attention and experts over the same width
    that is one of the four pure patterns; none of them exists on one GPU. Pipeline parallelism is pinned to
    1.
    """
    sizes = sorted(set(gpus_per_worker))
    if not is_moe:
        return tuple(ParallelShape(tp=g) for g in sizes)
    found = [
        shape
        for tp, dp, moe_tp, moe_ep in product(_DEFAULT_GPUS_PER_WORKER, repeat=4)
        if tp * dp in sizes
        and tp * dp == moe_tp * moe_ep
        and is_pure_moe(shape := ParallelShape(tp=tp, attention_dp=dp, moe_tp=moe_tp, moe_ep=moe_ep))
    ]
    return tuple(sorted(found, key=lambda s: (s.gpus_per_worker, s)))


def is_pure_moe(shape: ParallelShape) -> bool:
    """Whether ``shape`` is TEP, DEP, TP or DTP: attention and experts each split one way, both of them
    split.
    """
    experts_split = shape.moe_tp > 1 or shape.moe_ep > 1
    return shape.gpus_per_worker > 1 and experts_split and shape.strategy in _PURE_MOE_STRATEGIES


def backend_objection(shape: ParallelShape, backend: str, *, wide_ep: bool = False) -> str | None:
    """Why ``backend`` cannot run ``shape``, or None.

    ``wide_ep``: the model is larger than a node holds, and experts are spread over nodes; sglang then runs a
    MoE backend that knows expert parallelism only.
    """
    if backend == "trtllm" and shape.tp > 1 and shape.attention_dp > 1:
        return "trtllm cannot combine attention tp > 1 with attention_dp > 1"
    if backend == "sglang" and wide_ep and shape.moe_tp > 1:
        return "sglang spreads a model this large with expert parallelism only (wideEP): moe_tp must be 1"
    if backend == "vllm" and shape.moe_tp > 1 and shape.moe_ep > 1:
        return "vllm cannot combine moe_tp > 1 with moe_ep > 1"
    return None


def shape_objection(shape: ParallelShape, *, is_moe: bool) -> str | None:
    """Why no backend could run ``shape`` for this kind of model, or None. These are the rules a pin must
    keep.
    """
    if min(shape.tp, shape.pp, shape.attention_dp, shape.moe_tp, shape.moe_ep) < 1:
        return "every dimension must be at least 1"
    if shape.pp != 1:
        return f"pp is {shape.pp}, and pipeline parallelism is pinned to 1"
    if shape.gpus_per_worker not in _DEFAULT_GPUS_PER_WORKER:
        return (
            f"tp x attention_dp = {shape.gpus_per_worker} GPUs per worker is not one of "
            f"{', '.join(map(str, _DEFAULT_GPUS_PER_WORKER))}"
        )
    if is_moe and shape.tp * shape.attention_dp != shape.moe_tp * shape.moe_ep:
        return (
            f"tp x attention_dp = {shape.tp * shape.attention_dp} differs from "
            f"moe_tp x moe_ep = {shape.moe_tp * shape.moe_ep}, and a MoE model needs them equal"
        )
    if not is_moe and (shape.attention_dp, shape.moe_tp, shape.moe_ep) != (1, 1, 1):
        return "the model is dense: attention_dp, moe_tp and moe_ep must be 1"
    return None
