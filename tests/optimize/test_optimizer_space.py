"""Encoding of points, and the checks of studies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spica.optimize import (
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Objective,
    Observation,
    Study,
    Suggestion,
)
from spica.optimize.candidates import mutations, one_step, unique_rows
from spica.optimize.protocol import Parameter
from spica.optimize.sampling import enumerate_rows, quasi_random, unseen
from spica.optimize.space import Space

numbers = st.one_of(st.integers(1, 10**6), st.floats(0.001, 1e6, allow_nan=False))


@st.composite
def parameters(draw: st.DrawFn) -> tuple[Parameter, ...]:
    made: list[Parameter] = []
    for i in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from("fdc"))
        if kind == "f":
            low = draw(st.floats(-100, 100))
            high = low + draw(st.floats(0.01, 100))
            made.append(FloatParameter(f"p{i}", low, high, draw(st.sampled_from([low, high]))))
        elif kind == "d":
            choices = tuple(sorted(draw(st.sets(numbers, min_size=2, max_size=6))))
            made.append(DiscreteParameter(f"p{i}", choices, choices[-1], log=draw(st.booleans())))
        else:
            names = tuple(draw(st.lists(st.text("abcé-", max_size=3), min_size=2, max_size=5, unique=True)))
            made.append(CategoricalParameter(f"p{i}", names, names[0]))
    return tuple(made)


def study(ps: tuple[Parameter, ...]) -> Study:
    return Study(ps, (Objective("o"),), seed=0)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(parameters(), st.integers(0, 2**31))
def test_generated_points_lie_in_the_space_and_survive_a_round_trip(
    ps: tuple[Parameter, ...], seed: int
) -> None:
    space = Space(study(ps))
    rng = np.random.default_rng(seed)
    start = quasi_random(space, 8, seed)
    rows = np.vstack([start, mutations(space, start, 8, rng), one_step(space, start[0])])
    for row in rows:
        values = space.decode(row)
        for p in ps:
            if isinstance(p, FloatParameter):
                given_value = values[p.name]
                assert isinstance(given_value, float)
                assert p.low <= given_value <= p.high
            else:
                # The very object that was given: an int is not turned into a float.
                assert any(values[p.name] is choice for choice in p.choices)
        np.testing.assert_array_equal(space.encode(values), row)
    features = space.features(rows)
    assert features.continuous.shape[1] + features.categorical.shape[1] == len(ps)
    assert features.continuous.min(initial=0.0) >= 0.0
    assert features.continuous.max(initial=0.0) <= 1.0 + 1e-12


def test_ints_stay_ints_and_log_scaling_spaces_powers_evenly() -> None:
    space = Space(study((DiscreteParameter("n", (1, 2, 4, 8), 4, log=True),)))
    values = space.decode(space.default_row())
    assert values == {"n": 4}
    assert type(values["n"]) is int
    features = space.features(np.array([[0.0], [1.0], [2.0], [3.0]]))
    np.testing.assert_allclose(features.continuous[:, 0], [0, 1 / 3, 2 / 3, 1])


def test_a_float_on_a_log_scale_tells_small_shares_apart() -> None:
    study = Study((FloatParameter("load", 0.0, 2.0, 1.0, log=True),), (Objective("o"),), 0)
    space = Space(study)
    # A hundredth of the range is ln(2) / ln(101) of the way, the middle of the way (sqrt(101) - 1) / 100.
    middle = 2.0 * 0.0904987562
    rows = np.array([[0.0], [0.02], [middle], [2.0]])
    np.testing.assert_allclose(space.positions(rows)[:, 0], [0.0, 0.1501909, 0.5, 1.0], atol=1e-6)
    np.testing.assert_allclose(space.at_positions(space.positions(rows)), rows, atol=1e-12)
    np.testing.assert_allclose(space.features(rows).continuous[:, 0], [0.0, 0.1501909, 0.5, 1.0], atol=1e-6)
    # Half of all points lie below 9% of the range; a step of 0.15 from the middle ends at 65% of the way.
    drawn = quasi_random(space, 64, seed=1)[:, 0]
    assert (drawn < middle).sum() == 32
    near = one_step(space, np.array([middle]))[:, 0]
    assert np.isclose(near, 2.0 * (101**0.65 - 1) / 100).sum() == 1


def test_linear_scaling_keeps_ratios_of_gaps() -> None:
    space = Space(study((DiscreteParameter("n", (0, 1, 4), 0),)))
    np.testing.assert_allclose(space.features(np.array([[0.0], [1.0], [2.0]])).continuous[:, 0], [0, 0.25, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CategoricalParameter("c", ("a",), "a"), "at least two choices"),
        (lambda: DiscreteParameter("d", (4,), 4), "at least two choices"),
        (lambda: DiscreteParameter("d", (4, 2), 4), "ascend"),
        (lambda: DiscreteParameter("d", (0, 2), 2, log=True), "positive"),
        (lambda: DiscreteParameter("d", (1, float("inf")), 1), "finite"),
        (lambda: DiscreteParameter("d", (1, 2), 3), "not among"),
        (lambda: CategoricalParameter("c", ("a", "a"), "a"), "duplicate"),
        (lambda: FloatParameter("f", 1.0, 1.0, 1.0), "low < high"),
        (lambda: FloatParameter("f", 0.0, float("nan"), 0.0), "low < high"),
        (lambda: FloatParameter("f", 0.0, 1.0, 2.0), "outside"),
        (lambda: Study((), (), 0), "objectives"),
        (lambda: Study((), (Objective("a"), Objective("a")), 0), "objectives"),
        (lambda: Study((), (Objective("a"),), -1), "seed"),
        (
            lambda: Study((FloatParameter("f", 0, 1, 0), FloatParameter("f", 0, 1, 0)), (Objective("a"),), 0),
            "duplicate",
        ),
        (lambda: Observation(Suggestion(0, {}), (float("nan"),)), "finite"),
        (lambda: Observation(Suggestion(0, {}), (1.0,), repeats=0), "repeats"),
    ],
)
def test_impossible_values_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("values", [{}, {"n": 3}, {"n": "1"}])
def test_points_outside_the_space_are_refused(values: dict[str, int | str]) -> None:
    with pytest.raises(ValueError, match="n"):
        Space(study((DiscreteParameter("n", (1, 2), 1),))).encode(values)


def test_enumeration_finds_every_combination_once() -> None:
    ps = (DiscreteParameter("n", (1, 2, 4), 1), CategoricalParameter("c", ("a", "b"), "a"))
    space = Space(study(ps))
    rows = enumerate_rows(space, limit=6)
    assert rows is not None
    expected = {(n, c) for n in (1, 2, 4) for c in "ab"}
    assert {tuple(space.decode(r).values()) for r in rows} == expected
    assert len(rows) == len(expected)
    assert enumerate_rows(space, limit=5) is None


def test_unseen_drops_known_candidates_and_other_clothes_of_the_same_one() -> None:
    ps = (DiscreteParameter("n", (1, 2, 4), 1), CategoricalParameter("c", ("a", "b"), "a"))
    space = Space(Study(ps, (Objective("o"),), 0, identity=lambda v: str(v["n"])))
    rows = enumerate_rows(space, limit=6)
    assert rows is not None
    fresh = unseen(space, rows, frozenset({"2"}), 10)
    assert [space.decode(r)["n"] for r in fresh] == [1, 4]


def test_one_step_changes_exactly_one_parameter() -> None:
    ps = (
        DiscreteParameter("n", (1, 2, 4), 1),
        CategoricalParameter("c", ("a", "b"), "a"),
        FloatParameter("f", 0.0, 1.0, 0.5),
    )
    space = Space(study(ps))
    row = space.default_row()
    moved = one_step(space, row)
    assert ((moved != row).sum(axis=1) == 1).all()
    # Two other sizes, one other category, four step lengths both ways.
    assert len(moved) == 2 + 1 + 8


def test_unique_rows_keep_their_order() -> None:
    rows = np.array([[2.0], [1.0], [2.0], [0.0], [1.0]])
    np.testing.assert_array_equal(unique_rows(rows), [[2.0], [1.0], [0.0]])
