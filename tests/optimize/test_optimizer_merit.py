"""What is expected of points, against sampling and hand-made numbers."""

from __future__ import annotations

import numpy as np
import pytest

from spica.optimize import FloatParameter, Objective, Study
from spica.optimize.labels import Scale, warp
from spica.optimize.merit import Hypervolume, Improvement, ImprovementUnderCeiling, Outlook

TOTALS = np.array([100.0, 400.0, 900.0, 1000.0, 1000.0, 960.0])
GPUS = np.array([2.0, 4.0, 8.0, 16.0, 10.0, 12.0])
#: The best is 900 / 8 = 112.5.
VALUES = TOTALS / GPUS


def sampled_gain(mean: float, deviation: float, level: float) -> float:
    draws = mean + deviation * np.random.default_rng(0).standard_normal(400_000)
    return float(np.maximum(draws - level, 0).mean())


def outlook(means: list[list[float]], deviation: float, gpus: list[float], taken: list[int]) -> Outlook:
    table = np.array(means)
    chance = np.linspace(1.0, 0.5, table.shape[1])
    return Outlook(table, np.full(table.shape, deviation), chance, np.array(gpus), taken)


def test_a_scale_meets_its_values_keeps_their_order_and_goes_on_above() -> None:
    scale = Scale(TOTALS)
    np.testing.assert_allclose(scale.warped(TOTALS), warp(TOTALS))
    np.testing.assert_allclose(scale.natural(warp(TOTALS)), TOTALS)
    assert scale.highest == 1000.0
    between = scale.warped(np.array([0.0, 100.0, 930.0, 960.0, 1000.0, 1001.0, 1200.0]))
    assert between[0] == between[1]
    assert (np.diff(between[1:]) > 0).all()
    # As steep above the highest as just below it: the good half is warped by a logarithm.
    fine = Scale(np.append(TOTALS, 999.9))
    steps = fine.warped(np.array([999.9, 1000.0, 1000.1]))
    assert steps[2] - steps[1] == pytest.approx(steps[1] - steps[0], rel=1e-3)
    assert fine.natural(np.array([9.0]))[0] == 1000.0


def test_a_scale_of_equal_values_is_flat() -> None:
    scale = Scale(np.array([3.0, 3.0]))
    np.testing.assert_array_equal(scale.warped(np.array([1.0, 3.0, 5.0])), np.zeros(3))


def test_improvement_is_over_the_best_known_or_awaited() -> None:
    merit = Improvement(VALUES)
    top = float(warp(VALUES).max())
    means = [[top + 0.2, top, top - 0.1]]
    alone = np.exp(merit.rate(outlook(means, 0.3, [1, 1, 1], []), 0))
    gains = [sampled_gain(m, 0.3, top) for m in means[0]]
    np.testing.assert_allclose(alone, np.array(gains) * [1.0, 0.75, 0.5], rtol=0.02)
    after = np.exp(merit.rate(outlook(means, 0.3, [1, 1, 1], [0]), 0))
    gains = [sampled_gain(m, 0.3, top + 0.2) for m in means[0]]
    np.testing.assert_allclose(after, np.array(gains) * [1.0, 0.75, 0.5], rtol=0.02)
    assert merit.furthest == np.inf


def test_under_a_ceiling_the_totals_say_how_much_a_number_of_gpus_needs() -> None:
    merit = ImprovementUnderCeiling(VALUES, GPUS)
    np.testing.assert_allclose(merit.columns, np.stack([warp(VALUES), warp(TOTALS)], axis=1))
    # All three are believed to reach the highest total: 8 GPUs would need 900 of it, 16 would need 1800.
    reached = float(warp(TOTALS).max())
    means = [[0.0, 0.0, 0.0], [reached] * 3]
    rated = np.exp(merit.rate(outlook(means, 0.5, [8, 10, 16], []), 1))
    levels = Scale(TOTALS).warped(112.5 * np.array([8, 10, 16]))
    assert levels[0] == pytest.approx(warp(TOTALS)[2])
    gains = [sampled_gain(reached, 0.5, level) for level in levels]
    np.testing.assert_allclose(rated[:2], (np.array(gains) * [1.0, 0.75, 0.5])[:2], rtol=0.05)
    assert rated[0] > rated[1] > 1e6 * rated[2]


def test_under_a_ceiling_an_awaited_point_raises_what_is_needed() -> None:
    merit = ImprovementUnderCeiling(VALUES, GPUS)
    reached = float(warp(TOTALS).max())
    means = [[0.0, 0.0], [reached, reached]]
    # 1000 on 5 GPUs are awaited, 200 each: then 8 GPUs need 1600.
    gains = np.exp(merit.rate(outlook(means, 0.1, [5, 8], [0]), 1))
    level = Scale(TOTALS).warped(np.array([1600.0]))[0]
    assert gains[1] == pytest.approx(0.5 * sampled_gain(reached, 0.1, level), abs=1e-6)
    assert gains[1] < 1e-3 * np.exp(merit.rate(outlook(means, 0.1, [5, 8], []), 1))[1]


def test_under_a_ceiling_the_values_have_to_agree_in_every_other_place() -> None:
    merit = ImprovementUnderCeiling(VALUES, GPUS)
    plain = Improvement(VALUES)
    reached = float(warp(TOTALS).max())
    # Two GPUs cannot: the model of totals does not know that, the model of values does.
    means = [[-1.0, 0.6], [reached, reached]]
    view = outlook(means, 0.2, [2, 8], [])
    odd, even = merit.rate(view, 1), merit.rate(view, 2)
    assert odd[0] > odd[1]
    assert even[0] < even[1]
    np.testing.assert_allclose(even, np.minimum(odd, plain.rate(view, 0)))


def test_beyond_the_furthest_no_total_would_do() -> None:
    # 1000, or two percent more, on so many GPUs is 112.5 each.
    assert ImprovementUnderCeiling(VALUES, GPUS).furthest == pytest.approx(1020 / 112.5)
    assert ImprovementUnderCeiling(np.zeros(3), GPUS[:3]).furthest == np.inf


def test_the_gain_of_a_front_counts_what_is_awaited() -> None:
    points = np.array([[1.0, 5.0], [3.0, 3.0], [5.0, 1.0]])
    merit = Hypervolume(points, seed=0)
    best = merit.columns.max(axis=0)
    means = [[best[0] + 0.5, best[0] + 0.5], [best[1] + 0.5, best[1] + 0.5]]
    before = merit.rate(outlook(means, 0.01, [1, 1], []), 0)
    after = merit.rate(outlook(means, 0.01, [1, 1], [0]), 0)
    assert before[0] == pytest.approx(2 * before[1])
    assert after[1] < 0.01 * before[1]


def test_a_divisor_is_of_one_maximised_objective() -> None:
    parameter = (FloatParameter("x", 0.0, 1.0, 0.5),)
    for objectives in ((Objective("a"), Objective("b")), (Objective("ms", maximize=False),)):
        with pytest.raises(ValueError, match="a divisor needs one maximised objective"):
            Study(parameter, objectives, 0, divisor=lambda _: 1.0)
