"""Laws of rankings, fronts and volumes, on random points with many ties."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spica.goals.ranking import hypervolume, knee, pareto_front, rank, reference_point

PURE = settings(deadline=None, max_examples=300, derandomize=True)


@dataclass(frozen=True)
class Scored:
    score: float
    used_gpus: int
    key: str
    point: tuple[float, float]


scored = st.lists(
    st.builds(
        Scored,
        st.sampled_from([1.0, 2.0, 2.0, math.inf]),
        st.integers(1, 3),
        st.text("abc", min_size=1, max_size=3),
        st.tuples(st.sampled_from([0.0, 1.0, 2.0, 3.0]), st.sampled_from([0.0, 1.0, 2.0, 3.0])),
    ),
    max_size=9,
    unique_by=lambda each: each.key,
)
directions = st.tuples(st.booleans(), st.booleans())


@PURE
@given(scored, directions, st.randoms(use_true_random=False))
def test_no_order_of_arrival_changes_a_ranking(
    found: list[Scored], maximize: tuple[bool, bool], rng: object
) -> None:
    mixed = list(found)
    rng.shuffle(mixed)  # type: ignore[attr-defined]
    assert rank(mixed) == rank(found)
    fronts = [pareto_front(each, maximize, lambda c: c.point, lambda c: c.key) for each in (found, mixed)]
    assert fronts[0] == fronts[1]
    assert [each.key for each in fronts[0]] == sorted(
        (each.key for each in fronts[0]), key=lambda key: (where(found, key)[-1], key)
    )
    points = [each.point for each in found]
    reference = reference_point(points, maximize)
    assert reference == reference_point([each.point for each in mixed], maximize)
    volume = hypervolume(points, maximize, reference)
    assert volume == hypervolume([each.point for each in mixed], maximize, reference)
    # Counted in another way: unit squares of a grid on which all points lie.
    assert volume == pytest.approx(squares(points, maximize, reference))


def where(found: list[Scored], key: str) -> tuple[float, float]:
    return next(each.point for each in found if each.key == key)


def squares(
    points: list[tuple[float, float]], maximize: tuple[bool, bool], reference: tuple[float, ...]
) -> int:
    """How many unit squares some point dominates above the reference."""
    covered = set()
    for point in points:
        sides = [
            range(int(low), int(high)) if up else range(int(high), int(low))
            for high, low, up in zip(point, reference, maximize, strict=True)
        ]
        covered |= {(x, y) for x in sides[0] for y in sides[1]}
    return len(covered)


@PURE
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8), directions)
def test_a_knee_is_the_first_of_equals(points: list[tuple[int, int]], maximize: tuple[bool, bool]) -> None:
    at = knee(points, maximize)
    assert at is not None
    assert points.index(points[at]) == at


@PURE
@given(scored, directions, st.tuples(st.floats(-9, 9), st.floats(-9, 9)))
def test_one_more_point_never_makes_a_front_smaller_in_volume(
    found: list[Scored], maximize: tuple[bool, bool], extra: tuple[float, float]
) -> None:
    points = [each.point for each in found]
    reference = reference_point(points, maximize)
    assert hypervolume([*points, extra], maximize, reference) >= hypervolume(points, maximize, reference)


def test_two_latencies_are_measured_from_the_worst_seen() -> None:
    points = [(10.0, 100.0), (50.0, 60.0), (60.0, 150.0)]
    reference = reference_point(points, (False, False))
    assert reference == (60.0, 150.0)
    # 50 x 50 and 10 x 90, of which 10 x 50 is common.
    assert hypervolume(points, (False, False), reference) == 2500 + 900 - 500
    assert reference_point([(3.0, 5.0), (1.0, 9.0), (math.inf, 2.0)], (False, True)) == (3.0, 0.0)
