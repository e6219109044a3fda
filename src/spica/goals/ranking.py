"""Comparing scored candidates: ranking, dominance, the front, its hypervolume and its knee. Pure.

Points are tuples in natural units with one direction each (``maximize``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

Point = tuple[float, ...]


class Rankable(Protocol):
    """``score``: higher is better. ``key``: stable and distinct per candidate."""

    @property
    def score(self) -> float: ...
    @property
    def used_gpus(self) -> int: ...
    @property
    def key(self) -> str: ...


T = TypeVar("T")
R = TypeVar("R", bound=Rankable)


def rank(candidates: Sequence[R]) -> tuple[R, ...]:
    """Best score first, ties toward fewer GPUs, then by key."""
    return tuple(sorted(candidates, key=lambda c: (-c.score, c.used_gpus, c.key)))


def upward(point: Point, maximize: Sequence[bool]) -> Point:
    """The point turned so that more is better in every coordinate."""
    if len(point) != len(maximize):
        raise ValueError(f"{len(point)} values for {len(maximize)} objectives")
    return tuple(v if up else -v for v, up in zip(point, maximize, strict=True))


def dominates(a: Point, b: Point, maximize: Sequence[bool]) -> bool:
    """Whether ``a`` is at least as good as ``b`` everywhere and better somewhere."""
    high, low = upward(a, maximize), upward(b, maximize)
    return all(x >= y for x, y in zip(high, low, strict=True)) and high != low


def pareto_front(
    candidates: Sequence[T], maximize: Sequence[bool], point: Callable[[T], Point], key: Callable[[T], str]
) -> tuple[T, ...]:
    """The non-dominated candidates, by the last objective ascending, then by key.

    Candidates with equal points are all kept: neither dominates the other.
    """
    turned = [upward(point(c), maximize) for c in candidates]
    best = set(_undominated(turned))
    front = [c for c, up in zip(candidates, turned, strict=True) if up in best]
    return tuple(sorted(front, key=lambda c: (point(c)[-1], key(c))))


def reference_point(points: Sequence[Point], maximize: Sequence[bool]) -> Point:
    """Where hypervolume is measured from: 0 for a maximised objective, the largest finite value seen for a
    minimised one (0 when there is none)."""
    reference = []
    for axis, up in enumerate(maximize):
        finite = [p[axis] for p in points if math.isfinite(p[axis])]
        reference.append(0.0 if up or not finite else max(finite))
    return tuple(reference)


def hypervolume(points: Sequence[Point], maximize: Sequence[bool], reference: Point) -> float:
    """The volume that ``points`` dominate above ``reference``: exact, in the product of the objectives'
    units.

    Points not better than the reference in every objective add nothing.
    """
    low = upward(reference, maximize)
    gains = {
        tuple(v - r for v, r in zip(upward(p, maximize), low, strict=True))
        for p in points
        if all(math.isfinite(v) for v in p)
    }
    return _volume(_undominated([g for g in gains if all(v > 0 for v in g)]))


def _volume(gains: list[Point]) -> float:
    """Volume of the union of the boxes from 0 to each gain. Cut along the last axis."""
    if not gains:
        return 0.0
    if len(gains[0]) == 1:
        return max(g[0] for g in gains)
    total = 0.0
    levels = sorted({g[-1] for g in gains})
    for below, level in zip([0.0, *levels], levels, strict=False):
        slab = _undominated([g[:-1] for g in gains if g[-1] >= level])
        total += (level - below) * _volume(slab)
    return total


def _undominated(gains: list[Point]) -> list[Point]:
    """The distinct points that no other one equals or exceeds in every coordinate."""
    kept: list[Point] = []
    # Whatever dominates a point comes before it in descending order.
    for gain in sorted(set(gains), reverse=True):
        if not any(all(k >= g for k, g in zip(other, gain, strict=True)) for other in kept):
            kept.append(gain)
    return kept


def knee(front: Sequence[Point], maximize: Sequence[bool]) -> int | None:
    """The index of the front's knee, the balanced choice; None for an empty front.

    Objectives are scaled to 0..1 over the front. The knee is the point farthest above the hyperplane
    through the extremes, that is the one with the largest sum of scaled values; ties go to the most even
    point (largest smallest value), then to the first. Points with a non-finite value are not considered.
    """
    candidates = [i for i, p in enumerate(front) if all(math.isfinite(v) for v in p)]
    if not candidates:
        return None
    turned = {i: upward(front[i], maximize) for i in candidates}
    axes = range(len(maximize))
    low = [min(t[a] for t in turned.values()) for a in axes]
    span = [max(t[a] for t in turned.values()) - low[a] for a in axes]

    def scaled(index: int) -> list[float]:
        return [(turned[index][a] - low[a]) / span[a] if span[a] > 0 else 1.0 for a in axes]

    return max(candidates, key=lambda i: (sum(scaled(i)), min(scaled(i)), -i))


def exclusive_share(
    own: Sequence[Point], others: Sequence[Point], maximize: Sequence[bool], reference: Point
) -> float:
    """The part (0..1) of the joint hypervolume that only ``own`` dominates."""
    joint = hypervolume([*own, *others], maximize, reference)
    return (joint - hypervolume(others, maximize, reference)) / joint if joint > 0 else 0.0
