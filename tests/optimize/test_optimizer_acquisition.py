"""Acquisition formulas against sampling and brute force, labels against hand-made ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from spica.optimize import Objective, Observation, Suggestion
from spica.optimize.acquisition import (
    Beliefs,
    expected_excess,
    expected_hypervolume_gain,
    greedy_batch,
    log_expected_improvement,
    non_dominated,
)
from spica.optimize.labels import upward


def test_expected_improvement_matches_sampling() -> None:
    mean, deviation = np.array([0.0, 1.0, -0.5]), np.array([1.0, 0.2, 2.0])
    draws = mean + deviation * np.random.default_rng(0).standard_normal((400_000, 3))
    sampled = np.maximum(draws - 0.7, 0).mean(axis=0)
    np.testing.assert_allclose(np.exp(log_expected_improvement(mean, deviation, 0.7)), sampled, rtol=0.02)
    np.testing.assert_allclose(expected_excess(mean, deviation, np.array([0.7]))[:, 0], sampled, rtol=0.02)


def test_log_expected_improvement_keeps_its_order_where_the_plain_one_is_zero() -> None:
    z = np.array([-1e6, -2000.0, -900.0, -60.0, -40.0, -2.0, -1.0001, -0.9999, 0.0, 3.0])
    values = log_expected_improvement(z, np.ones_like(z), 0.0)
    assert np.isfinite(values).all()
    assert (np.diff(values) > 0).all()
    # Far below, EI tends to phi(z) / z^2.
    assert values[4] == pytest.approx(-800.0 - 0.5 * np.log(2 * np.pi) - 2 * np.log(40), rel=1e-4)


def area(points: np.ndarray, reference: np.ndarray) -> float:
    """Dominated area by counting cells between all coordinates."""
    xs = np.unique(np.append(points[:, 0], reference[0]))
    ys = np.unique(np.append(points[:, 1], reference[1]))
    total = 0.0
    for x0, x1 in itertools.pairwise(xs):
        for y0, y1 in itertools.pairwise(ys):
            inside = x0 >= reference[0] and y0 >= reference[1]
            if inside and np.any((points[:, 0] >= x1) & (points[:, 1] >= y1)):
                total += (x1 - x0) * (y1 - y0)
    return total


@pytest.mark.parametrize("front", [[[0.2, 0.9], [0.5, 0.6], [0.8, 0.1]], [[0.5, 0.5]], []])
def test_expected_hypervolume_gain_matches_sampling(front: list[list[float]]) -> None:
    known, reference = np.array(front).reshape(-1, 2), np.zeros(2)
    means, deviations = np.array([[0.6], [0.5]]), np.array([[0.2], [0.3]])
    rng = np.random.default_rng(1)
    draws = means[:, 0] + deviations[:, 0] * rng.standard_normal((4000, 2))
    base = area(known, reference) if len(known) else 0.0
    gains = [area(np.vstack([known, d[None]]), reference) - base if (d > 0).all() else 0.0 for d in draws]
    exact = expected_hypervolume_gain(means, deviations, known, reference)[0]
    assert exact == pytest.approx(np.mean(gains), rel=0.06)


def test_non_dominated_by_hand() -> None:
    points = np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 1.0], [3.0, 1.0], [1.0, 3.0], [0.0, 0.0]])
    np.testing.assert_array_equal(non_dominated(points), [[1, 3], [2, 2], [3, 1]])


def test_measuring_a_point_conditions_the_gaussian() -> None:
    rng = np.random.default_rng(2)
    root = rng.standard_normal((5, 5))
    covariance = root @ root.T
    beliefs = Beliefs(np.zeros((1, 5)), covariance[None], np.array([0.01]))
    beliefs.measure(1)
    beliefs.measure(3)
    seen = [1, 3]
    gain = covariance[:, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)] + 0.01 * np.eye(2))
    expected = np.diag(covariance - gain @ covariance[seen])
    np.testing.assert_allclose(beliefs.deviations[0] ** 2, expected, rtol=1e-8)


def test_a_batch_spreads_and_respects_what_is_pending_or_forbidden() -> None:
    # Points 0 and 1 are nearly the same, so are 2 and 3; 4 is on its own.
    covariance = np.eye(5)
    covariance[0, 1] = covariance[1, 0] = covariance[2, 3] = covariance[3, 2] = 0.999
    means = np.array([[1.0, 0.9, 0.5, 0.4, 0.0]])

    def pick(pending: list[int], forbidden: set[int], count: int) -> list[int]:
        beliefs = Beliefs(means, covariance[None], np.array([1e-9]))
        return greedy_batch(
            beliefs,
            lambda b, _, __: b.means[0] + 2 * b.deviations[0],
            pending,
            lambda i: i not in forbidden,
            count,
        )

    assert pick([], set(), 3) == [0, 2, 4]
    assert pick([0], set(), 2) == [2, 4]
    assert pick([], {0}, 1) == [1]
    assert pick([], {0, 1, 2}, 9) == [3, 4]


def observation(i: int, *labels: float) -> Observation:
    return Observation(Suggestion(i, {}), labels or None)


def test_labels_are_turned_upward() -> None:
    table = upward(
        [observation(0, 3.0, 5.0), observation(1)], [Objective("a"), Objective("b", maximize=False)]
    )
    np.testing.assert_array_equal(table, [[3.0, -5.0], [np.nan, np.nan]])
