"""The Gaussian-process strategy on the real Vizier."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from optimizer_studies import MIXED, cost, identity, mixed, run, value

import spica.optimize
from spica.optimize import (
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Objective,
    Observation,
    Study,
    Value,
    Values,
    jax_environment,
    make_optimizer,
    warm_up,
)
from spica.optimize.acquisition import non_dominated
from spica.optimize.history import History
from spica.optimize.labels import warp
from spica.optimize.sampling import RandomOptimizer, enumerate_rows
from spica.optimize.space import Space

pytestmark = pytest.mark.real

ROOT = Path(spica.optimize.__file__).parents[2]


def best(study: Study, label: Callable[[Values], float | None], rounds: int, batch: int = 8) -> float:
    optimizer, top = make_optimizer(study), -np.inf
    for _ in range(rounds):
        told = []
        for suggestion in optimizer.ask(batch):
            found = label(suggestion.values)
            told.append(Observation(suggestion, None if found is None else (found,)))
            top = max(top, -np.inf if found is None else found)
        optimizer.tell(told)
    return float(top)


def test_it_finds_the_optimum_of_a_mixed_function() -> None:
    # The optimum, 0, is one of 9 x 4 x 3 x 3 candidates; 40 random ones miss it nine times out of ten.
    assert best(mixed(), value, rounds=5) == pytest.approx(0.0, abs=0.06)


def test_a_process_started_later_suggests_the_same() -> None:
    program = (
        "from optimizer_studies import mixed, run\n"
        "from spica.optimize import make_optimizer\n"
        "print([tuple(s.values.items()) for s in run(make_optimizer(mixed(9)), mixed(9), 3, 5)])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])}
    # A hash seed of its own, so that nothing may depend on the order of sets.
    environment["PYTHONHASHSEED"] = "12345"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    here = [tuple(s.values.items()) for s in run(make_optimizer(mixed(9)), mixed(9), 3, 5)]
    assert done.stdout.strip() == repr(here)
    # Neither Vizier nor JAX says a word.
    assert done.stderr == ""


def test_importing_the_package_imports_neither_vizier_nor_numpy() -> None:
    program = (
        "import sys, spica.optimize; print(sorted({'vizier', 'jax', 'scipy', 'numpy'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_warming_up_changes_no_suggestion() -> None:
    study = mixed(2)
    before = run(make_optimizer(study), study, 2, 6)
    warm_up(study)
    warm_up(Study((), (Objective("o"),), 0))
    assert run(make_optimizer(study), study, 2, 6) == before


def test_a_region_that_fails_is_avoided_and_the_optimum_beside_it_found() -> None:
    # Everything with size 8 fails; the best of the rest is size 4.
    def label(values: Values) -> float | None:
        return None if values["size"] == 8 else value(values)

    late = 0
    for seed in range(4):
        optimizer = make_optimizer(mixed(seed))
        failed = []
        top = -np.inf
        for _ in range(6):
            told = []
            for suggestion in optimizer.ask(8):
                found = label(suggestion.values)
                failed.append(found is None)
                top = max(top, -np.inf if found is None else found)
                told.append(Observation(suggestion, None if found is None else (found,)))
            optimizer.tell(told)
        assert sum(failed[:8]) >= 1
        assert top == pytest.approx(-1 / 3, abs=0.06)
        late += sum(failed[24:])
    # A quarter of the space fails: by chance, 24 of the last 4 x 24 suggestions would.
    assert late < 12


def _past(study: Study, count: int, failing: Callable[[Values], bool]) -> History:
    """Quasi-random points, all told; the failing ones without a score."""
    from spica.optimize.sampling import QuasiRandomOptimizer

    optimizer = QuasiRandomOptimizer(study)
    asked = optimizer.ask(count)
    optimizer.tell(
        [Observation(s, None if failing(s.values) else (value(s.values),)) for s in asked],
    )
    return optimizer.past


def test_failures_leave_the_labels_of_the_others_as_they_are() -> None:
    from spica.optimize.gp import GaussianProcessStrategy

    jax_environment.prepare()

    study = mixed(1)
    past = _past(study, 30, lambda v: v["size"] == 8)
    data = GaussianProcessStrategy(study)._data(past)
    scored = [o for o in past.told() if o.labels is not None]
    assert 3 <= len(data.failed) == 30 - len(scored)
    np.testing.assert_array_equal(data.rows, [past.space.encode(o.suggestion.values) for o in scored])
    labels = np.array([value(o.suggestion.values) for o in scored])
    np.testing.assert_allclose(data.labels[:, 0], warp(labels))
    # Nothing has collapsed: different values stay different, in their order.
    order = np.argsort(labels)
    apart = np.diff(labels[order]) > 1e-6
    assert (np.diff(data.labels[order, 0])[apart] > 1e-4).all()


def test_the_chance_of_a_score_is_low_only_where_trials_fail() -> None:
    from spica.optimize.gp import GaussianProcessStrategy

    study = mixed(1)
    strategy = GaussianProcessStrategy(study)
    space = Space(study)
    rows = np.array([space.encode(s.values) for s in RandomOptimizer(mixed(5)).ask(60)])
    big = np.array([space.decode(row)["size"] == 8 for row in rows])
    assert 5 < big.sum() < 30
    models = strategy._fit(strategy._data(_past(study, 40, lambda v: v["size"] == 8)), seed=0)
    chance = models.chance(space.features(rows))
    assert chance[big].max() < 0.5 < 0.8 < chance[~big].min()
    sound = strategy._fit(strategy._data(_past(study, 40, lambda v: False)), seed=0)
    np.testing.assert_array_equal(sound.chance(space.features(rows)), np.ones(60))


def test_seeds_are_the_points_farthest_from_all_before_them() -> None:
    from spica.optimize.sampling import far_apart

    study = Study(
        (FloatParameter("x", 0.0, 2.0, 1.0), CategoricalParameter("c", ("a", "b"), "a")), (Objective("o"),), 0
    )
    pool = np.array([[0.9, 0], [1.8, 0], [0.2, 1], [1.1, 1], [0.0, 0]])
    # x counts by half, unlike choices are 0.4 apart, squared. From the default: 0.0025, 0.16, 0.16 + 0.4,
    # 0.0025 + 0.4 and 0.25. Then (0, a) has 0.25, (1.1, b) 0.2025 from the point picked, (1.8, a) 0.16.
    picked = far_apart(History(study), pool, 4)
    np.testing.assert_array_equal(picked, [[1.0, 0], [0.2, 1], [0.0, 0], [1.1, 1]])
    assert len(far_apart(History(study), pool, 99)) == 6


def test_pending_points_keep_later_ones_away() -> None:
    study = Study(
        (FloatParameter("x", 0.0, 1.0, 0.5), FloatParameter("y", 0.0, 1.0, 0.5)), (Objective("o"),), 0
    )
    optimizer = make_optimizer(study)
    first = optimizer.ask(10)
    told = [Observation(s, (-((float(s.values["x"]) - 0.4) ** 2) - float(s.values["y"]),)) for s in first]
    optimizer.tell(told)
    points = np.array([[float(v) for v in s.values.values()] for _ in range(3) for s in optimizer.ask(1)])
    distances = [np.abs(points[i] - points[j]).max() for i in range(3) for j in range(i)]
    assert min(distances) > 0.01


def _fit(study: Study, count: int, column: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Hyper-parameters after no and after many steps of the fit, of one objective of ``mixed``."""
    jax_environment.prepare()
    from spica.optimize.sampling import quasi_random
    from spica.optimize.surrogate import Surrogate

    space = Space(study)
    rows = quasi_random(space, count, 1)
    points = [space.decode(r) for r in rows]
    labels = np.array([[value(p), -cost(p)][column] for p in points])
    start, end = (
        Surrogate(restarts=1, max_iterations=n).fit(space.features(rows), warp(labels), 0).parameters
        for n in (0, 50)
    )
    return start, end


@pytest.mark.parametrize("column", [0, 1])
def test_padding_does_not_disable_the_fit_of_any_objective(column: int) -> None:
    start, end = _fit(mixed(objectives=2), 30, column)
    # Both rows and columns are padded here: 30 to 48 observations, 3 + 1 to 8 + 8 features.
    lengths = end["continuous_length_scale_squared"]
    assert np.abs(np.log(lengths[:3] / start["continuous_length_scale_squared"][:3])).max() > 0.5
    # The cost is the size and hardly anything else; its length scale (the second feature) is the shortest.
    if column == 1:
        assert lengths[1] < lengths[0]
        assert lengths[1] < lengths[2]


def test_the_posterior_is_that_of_a_matern_process() -> None:
    jax_environment.prepare()
    from spica.optimize.surrogate import Surrogate

    space = Space(mixed())
    rng = np.random.default_rng(0)
    every = enumerate_rows(Space(Study(MIXED[1:], (Objective("o"),), 0)), 100)
    assert every is not None
    rows = np.column_stack([rng.uniform(0.1, 0.9, len(every)), every])
    features = space.features(rows)
    labels = rng.standard_normal(20)
    posterior = Surrogate().fit(space.features(rows[:20]), labels, seed=1)
    p = posterior.parameters
    scale = np.sqrt(p["continuous_length_scale_squared"][:3])
    apart = ((features.continuous[:, None] - features.continuous[None]) / scale) ** 2
    differs = features.categorical[:, None, 0] != features.categorical[None, :, 0]
    square = apart.sum(axis=2) + differs / p["categorical_length_scale_squared"][0]
    r = np.sqrt(5 * square)
    kernel = p["signal_variance"] * (1 + r + r**2 / 3) * np.exp(-r)
    noisy = kernel[:20, :20] + p["observation_noise_variance"] * np.eye(20)
    gain = kernel[20:, :20] @ np.linalg.inv(noisy)
    mean, covariance = posterior.joint(space.features(rows[20:]))
    np.testing.assert_allclose(mean, gain @ labels, atol=1e-5)
    np.testing.assert_allclose(covariance, kernel[20:, 20:] - gain @ kernel[:20, 20:], atol=1e-5)


def test_marginals_are_the_diagonal_of_the_joint() -> None:
    jax_environment.prepare()
    from spica.optimize.sampling import quasi_random
    from spica.optimize.surrogate import Surrogate

    space = Space(mixed())
    features = space.features(quasi_random(space, 60, 3))
    posterior = Surrogate().fit(space.features(quasi_random(space, 12, 4)), np.linspace(-1, 1, 12), seed=0)
    mean, variance = posterior.marginal(features)
    joint_mean, covariance = posterior.joint(features)
    np.testing.assert_allclose(mean, joint_mean, atol=1e-9)
    np.testing.assert_allclose(variance, np.diag(covariance), atol=1e-9)


def test_two_objectives_reach_the_front() -> None:
    study = mixed(1, objectives=2)
    asked = run(make_optimizer(study), study, rounds=5, batch=8)
    random = run(RandomOptimizer(study), study, rounds=5, batch=8)
    space = Space(study)
    axes = [np.linspace(0.1, 0.9, 9)] + [np.arange(n) for n in (4, 3, 3)]
    grid = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)

    def labels(points: list[Values]) -> np.ndarray:
        return np.array([[value(p), -round(cost(p), 9)] for p in points])

    def area(found: np.ndarray) -> float:
        front = non_dominated(found[np.all(found > [-1.5, -9.0], axis=1)])
        steps = np.diff(np.concatenate([[-1.5], front[:, 0]]))
        return float((steps * (front[:, 1] + 9.0)).sum())

    whole = area(labels([space.decode(row) for row in grid]))
    assert area(labels([s.values for s in asked])) > 0.97 * whole
    assert area(labels([s.values for s in random])) < area(labels([s.values for s in asked]))


def test_canonical_points_are_suggested_and_modelled() -> None:
    ps = (CategoricalParameter("router", ("rr", "kv"), "rr"), DiscreteParameter("weight", tuple(range(9)), 4))

    def canonical(values: Values) -> Values:
        fixed: dict[str, Value] = dict(values)
        if fixed["router"] == "rr":
            fixed["weight"] = 4
        return fixed

    study = Study(ps, (Objective("o"),), 0, lambda v: repr(sorted(canonical(v).items())), canonical)
    optimizer = make_optimizer(study)
    values = [dict(s.values) for s in optimizer.ask(10)]
    assert all(v["weight"] == 4 for v in values if v["router"] == "rr")
    # One candidate under round robin, nine under the other.
    assert len({repr(v) for v in values}) == 10


def test_an_exhausted_space_is_noticed_and_never_blocks() -> None:
    study = Study(MIXED[1:], (Objective("o"),), 0)
    optimizer = make_optimizer(study)
    seen = set()
    counts = []
    for _ in range(6):
        suggestions = optimizer.ask(8)
        counts.append(len(suggestions))
        seen |= {repr(s.values) for s in suggestions}
        optimizer.tell([Observation(s, (float(s.values["weight"]),)) for s in suggestions])
    assert len(seen) == 4 * 3 * 3
    assert counts == [8, 8, 8, 8, 4, 0]


@pytest.mark.parametrize("score", [None, 1.0])
def test_a_tiny_space_is_swept_whole_and_then_at_its_end(score: float | None) -> None:
    study = Study(MIXED[2:], (Objective("o"),), 3)
    optimizer = make_optimizer(study)
    seen, counts = set(), []
    for _ in range(4):
        suggestions = optimizer.ask(4)
        counts.append(len(suggestions))
        seen |= {repr(s.values) for s in suggestions}
        optimizer.tell([Observation(s, None if score is None else (score,)) for s in suggestions])
    assert len(seen) == 3 * 3
    assert counts == [4, 4, 1, 0]


def test_repeated_measurements_are_taken_as_their_mean() -> None:
    study = mixed(8)
    history = History(study)
    optimizer = make_optimizer(study)
    suggestions = optimizer.ask(8)
    history.add_asked(suggestions)
    optimizer.tell([Observation(s, (value(s.values),), repeats=5) for s in suggestions])
    assert identity(optimizer.ask(1)[0].values) not in history.keys


def test_more_observations_than_the_largest_rung_are_cut_to_the_best_and_the_latest() -> None:
    jax_environment.prepare()
    from spica.optimize.gp import GaussianProcessOptimizer, Settings

    study = mixed(0)
    optimizer = GaussianProcessOptimizer(study, Settings(fit_up_to=10))
    for _ in range(4):
        optimizer.tell([Observation(s, (value(s.values),)) for s in optimizer.ask(8)])
    assert len(optimizer.ask(2)) == 2
