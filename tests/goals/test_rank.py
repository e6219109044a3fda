from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spica.goals.ranking import (
    dominates,
    exclusive_share,
    hypervolume,
    knee,
    pareto_front,
    rank,
    reference_point,
)

coordinate = st.integers(0, 4).map(float)


def clouds(size: int) -> st.SearchStrategy[list[tuple[float, ...]]]:
    return st.lists(st.tuples(*[coordinate] * size), max_size=8)


directions = st.tuples(st.booleans(), st.booleans())


@dataclass(frozen=True)
class Scored:
    score: float
    used_gpus: int
    key: str


def test_rank_is_best_first_then_fewer_gpus_then_key() -> None:
    scored = [(3, 8, "z"), (2, 4, "b"), (2, 8, "a"), (2, 8, "c"), (-math.inf, 1, "a")]
    expected = [Scored(*s) for s in scored]
    for order in itertools.permutations(expected):
        assert list(rank(order)) == expected


@given(clouds(2), directions)
def test_dominance_is_a_strict_partial_order(points: list[tuple[float, ...]], up: tuple[bool, bool]) -> None:
    for a in points:
        assert not dominates(a, a, up)
        for b in points:
            assert not (dominates(a, b, up) and dominates(b, a, up))
            for c in points:
                if dominates(a, b, up) and dominates(b, c, up):
                    assert dominates(a, c, up)


@given(clouds(2), directions)
def test_the_front_is_what_nothing_beats(points: list[tuple[float, ...]], up: tuple[bool, bool]) -> None:
    signs = [1 if u else -1 for u in up]

    def beaten(p: tuple[float, ...]) -> bool:
        diffs = [[s * (q[i] - p[i]) for i, s in enumerate(signs)] for q in points]
        return any(min(d) >= 0 and max(d) > 0 for d in diffs)

    front = pareto_front(points, up, point=lambda p: p, key=str)
    assert sorted(front) == sorted(p for p in points if not beaten(p))
    assert [p[-1] for p in front] == sorted(p[-1] for p in front)


def cells(points: list[tuple[float, ...]], size: int) -> float:
    """Hypervolume of integer points above 0 by counting unit cells."""
    grid = np.zeros([5] * size, dtype=bool)
    for p in points:
        grid[tuple(slice(0, int(v)) for v in p)] = True
    return float(grid.sum())


@given(clouds(2))
def test_hypervolume_of_two_objectives_counts_cells(points: list[tuple[float, ...]]) -> None:
    assert hypervolume(points, (True, True), (0.0, 0.0)) == cells(points, 2)


@settings(max_examples=60)
@given(clouds(3))
def test_hypervolume_of_three_objectives_counts_cells(points: list[tuple[float, ...]]) -> None:
    assert hypervolume(points, (True, True, True), (0.0, 0.0, 0.0)) == cells(points, 3)


@settings(max_examples=60)
@given(clouds(3))
def test_minimised_objectives_are_measured_down_from_the_reference(points: list[tuple[float, ...]]) -> None:
    flipped = [(a, 4.0 - b, c) for a, b, c in points]
    assert hypervolume(flipped, (True, False, True), (0.0, 4.0, 0.0)) == cells(points, 3)


def test_non_finite_points_add_no_volume() -> None:
    points = [(2.0, 3.0), (5.0, math.inf)]
    assert hypervolume(points, (True, False), (0.0, 4.0)) == 2.0
    assert reference_point(points, (True, False)) == (0.0, 3.0)


def test_the_knee_is_the_balanced_point() -> None:
    front = [(10.0, 0.0), (8.0, 7.0), (3.0, 9.0), (0.0, 10.0)]
    assert knee(front, (True, True)) == 1  # 0.8 + 0.7 against 1, 1.2 and 1
    assert knee([(10.0, 5.0)], (True, False)) == 0
    assert knee([], (True, True)) is None


def test_ties_for_the_knee_go_to_the_even_point() -> None:
    assert knee([(10.0, 0.0), (5.0, 5.0), (0.0, 10.0)], (True, True)) == 1


def test_exclusive_share_is_what_only_one_side_covers() -> None:
    # A 2x2 box inside a 4x1 and a 1x4 cross: union 10 - overlaps.
    own, others = [(2.0, 2.0)], [(4.0, 1.0), (1.0, 4.0)]
    assert exclusive_share(own, others, (True, True), (0.0, 0.0)) == pytest.approx(1 / 8)
    assert exclusive_share([(1.0, 1.0)], others, (True, True), (0.0, 0.0)) == 0.0
