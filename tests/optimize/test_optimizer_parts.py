"""The pieces of the strategy, each against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from optimizer_studies import mixed, observe

from spica.optimize import surrogate as module
from spica.optimize.gp import GaussianProcessStrategy, _Models
from spica.optimize.history import History
from spica.optimize.sampling import quasi_random
from spica.optimize.space import Features, Space
from spica.optimize.surrogate import Surrogate

Array = NDArray[np.float64]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        # The best 152 of 400 are the last ones; the latest 152 of the others come before them.
        (range(400), range(96, 400)),
        # The best are the first ones.
        (range(400, 0, -1), [*range(152), *range(248, 400)]),
        (range(304), range(304)),
    ],
)
def test_a_model_of_many_observations_is_given_the_best_and_the_latest(
    values: range, kept: list[int] | range
) -> None:
    strategy = GaussianProcessStrategy(mixed())
    table = np.array(values, dtype=np.float64)[:, None]
    assert strategy._training_subset(table).tolist() == list(kept)


def test_of_several_objectives_the_best_in_any_is_kept() -> None:
    table = np.zeros((400, 2))
    table[3, 1] = table[5, 0] = 9.0
    kept = GaussianProcessStrategy(mixed(objectives=2))._training_subset(table)
    assert {3, 5} <= set(kept.tolist())
    assert len(kept) == 304


class Known:
    """A posterior with these means."""

    def __init__(self, *means: float) -> None:
        self.means = np.array(means)

    def marginal(self, features: Features) -> tuple[Array, Array]:
        return self.means, np.ones_like(self.means)


def test_the_chance_of_a_score_is_in_the_units_of_a_share() -> None:
    # Three of four scored: zeros and ones with mean 0.75 and deviation sqrt(0.75 * 0.25).
    models = _Models([], Known(-1.7, -1.0, 0.0, 0.5, 1.0), 0.75)  # type: ignore[arg-type]
    deviation = math.sqrt(0.75 * 0.25)
    wanted = [1e-300, 0.75 - deviation, 0.75, 0.75 + 0.5 * deviation, 1.0]
    assert models.chance(np.zeros((5, 1))) == pytest.approx(wanted)  # type: ignore[arg-type]


@pytest.mark.real
def test_what_is_being_measured_is_known_to_the_model() -> None:
    from spica.optimize import make_optimizer

    study = mixed()
    optimizer = make_optimizer(study)
    asked = optimizer.ask(12)
    optimizer.tell([observe(study, s) for s in asked[:7]])
    past: History = optimizer.past  # type: ignore[attr-defined]
    data = GaussianProcessStrategy(study)._data(past)
    space = Space(study)
    assert data.pending.tolist() == [space.encode(s.values).tolist() for s in asked[7:]]
    assert data.rows.tolist() == [space.encode(s.values).tolist() for s in asked[:7]]


@pytest.mark.real
def test_the_random_starts_of_a_fit_are_its_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[list[Array]] = []

    def taken(loss: object, given: list[Array], low: Array, high: Array, iterations: int) -> Array:
        starts.append(given)
        return given[0]

    monkeypatch.setattr(module, "smallest", taken)
    space = Space(mixed())
    features = space.features(quasi_random(space, 8, seed=0))
    for seed in (1, 2, 1):
        Surrogate(restarts=2).fit(features, np.arange(8.0), seed=seed)
    one, two, again = ([start.tolist() for start in each] for each in starts)
    assert one == again
    assert one[0] == two[0]  # Vizier's own start
    assert one[1] != two[1]
    assert one[1] != one[2]
