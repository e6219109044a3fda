"""Worker shapes times replicas, filling a GPU budget. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import ceil

from spica.deployment.shapes import AggConfig, DisaggConfig, ParallelShape, WorkerGroup


def enumerate_parallel_configs(
    shapes: Iterable[ParallelShape], *, gpu_budget: int, min_gpu_budget: int | None = None
) -> tuple[AggConfig, ...]:
    """Every aggregated config of ``shapes``: as many replicas as keep its GPUs in
    ``[min_gpu_budget, gpu_budget]``. Sorted.
    """
    low = min_gpu_budget or 1
    groups = _groups(shapes, gpu_budget)
    return tuple(AggConfig(group) for group in sorted(groups) if group.total_gpus >= low)


def enumerate_disagg_configs(
    prefill_shapes: Iterable[ParallelShape],
    decode_shapes: Iterable[ParallelShape],
    *,
    gpu_budget: int,
    min_gpu_budget: int | None = None,
) -> tuple[DisaggConfig, ...]:
    """Every pair of a prefill and a decode group whose GPUs together lie in ``[min_gpu_budget, gpu_budget]``.

    Sorted. The groups of a role are few (hundreds at 128 GPUs) and the pairs many (tens of thousands), so the
    pairs share the group objects.
    """
    low = min_gpu_budget or 1
    prefill = sorted(_groups(prefill_shapes, gpu_budget - 1))
    decode = sorted(_groups(decode_shapes, gpu_budget - 1), key=lambda g: (g.total_gpus, g))
    sizes = [group.total_gpus for group in decode]
    rank = {group: i for i, group in enumerate(sorted(decode))}
    pairs: list[DisaggConfig] = []
    for group in prefill:
        start = bisect_left(sizes, low - group.total_gpus)
        stop = bisect_right(sizes, gpu_budget - group.total_gpus)
        partners = sorted(decode[start:stop], key=rank.__getitem__)
        pairs.extend(DisaggConfig(group, partner) for partner in partners)
    return tuple(pairs)


def smallest_budget(roles: Iterable[Iterable[ParallelShape]], at_least: int = 1) -> int | None:
    """The fewest GPUs, ``at_least`` so many, that replicas of one shape per role add up to; None when a
    role has no shape at all.
    """
    reachable = {0}
    for shapes in roles:
        sizes = {shape.gpus_per_worker for shape in shapes}
        if not sizes:
            return None
        # One size per role, repeated: enough multiples to pass `at_least` wherever the other roles stand.
        reachable = {
            base + size * r
            for base in reachable
            for size in sizes
            for r in range(1, 1 + max(1, ceil(at_least / size)))
        }
    return min((total for total in reachable if total >= at_least), default=None)


def _groups(shapes: Iterable[ParallelShape], gpu_budget: int) -> list[WorkerGroup]:
    return [
        WorkerGroup(shape, replicas)
        for shape in set(shapes)
        for replicas in range(1, gpu_budget // shape.gpus_per_worker + 1)
    ]
