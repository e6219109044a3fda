"""What is taken from Vizier, held beside Vizier's own; and the programs that outlive a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from optimizer_studies import mixed

from spica.optimize import jax_environment, program
from spica.optimize.labels import warp
from spica.optimize.parameters import Layout
from spica.optimize.sampling import quasi_random
from spica.optimize.space import Features, Space
from spica.optimize.surrogate import _START, Surrogate, loss_of, smallest

pytestmark = pytest.mark.real

Array = NDArray[np.float64]
ROWS, LAYOUT = 48, Layout(8, 8)


def _data(features: Features, labels: Array | None, rows: int) -> Any:
    """Vizier's own padded data or, without labels, its model input."""
    from vizier._src.jax import types

    def padded(table: NDArray[Any], columns: int, fill: float) -> types.PaddedArray:
        return types.PaddedArray.from_array(table, (rows, columns), fill_value=fill)

    inputs = types.ModelInput(padded(features.continuous, 8, 0.0), padded(features.categorical, 8, 0))
    return inputs if labels is None else types.ModelData(inputs, padded(labels[:, None], 1, np.nan))


def _observed() -> tuple[Features, Array]:
    space = Space(mixed())
    return space.features(quasi_random(space, 16, 3)), np.sin(np.arange(16.0))


class _Fit:
    """In the place of the optimizer of Vizier's designer: keeps what it is given, returns the first start."""

    starts: Mapping[str, Any]
    loss: Any
    bounds: Any

    def __call__(
        self, init_params: Mapping[str, Any], loss_fn: Any, rng: Any, *, constraints: Any, best_n: int
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        self.starts, self.loss, self.bounds = init_params, loss_fn, constraints.bounds
        return {name: value[:1] for name, value in init_params.items()}, {"loss": np.zeros((1, 2))}


@pytest.fixture(scope="module")
def designer_s_fit() -> _Fit:
    """The fit as Vizier's designer sets it up."""
    jax_environment.prepare()
    import jax
    from vizier import pyvizier as vz
    from vizier._src.algorithms.designers.gp_ucb_pe import VizierGPUCBPEBandit

    problem = vz.ProblemStatement()
    problem.search_space.root.add_float_param("x", 0.0, 1.0)
    problem.metric_information.append(
        vz.MetricInformation("y", goal=vz.ObjectiveMetricGoal.MAXIMIZE),
    )
    fit = _Fit()
    designer = VizierGPUCBPEBandit(problem, ard_optimizer=fit, ard_random_restarts=1)
    designer._build_gp_model_and_optimize_parameters(_data(*_observed(), ROWS), jax.random.PRNGKey(2))
    return fit


def test_loss_and_gradient_are_those_of_vizier_s_designer(designer_s_fit: _Fit) -> None:
    import jax

    features, labels = _observed()
    compiled = program.loss_program(ROWS, LAYOUT)
    ours = loss_of(compiled, ROWS, features, labels)
    low, high = np.log(compiled.low), np.log(compiled.high)
    theirs = jax.value_and_grad(lambda params: designer_s_fit.loss(params)[0])
    for share in np.random.default_rng(0).uniform(0.2, 0.8, (6, LAYOUT.size)):
        point = np.exp(low + share * (high - low))
        loss, gradient = ours(point)
        expected, slope = theirs(LAYOUT.named(point))
        assert loss == pytest.approx(float(expected), rel=1e-9)
        np.testing.assert_allclose(gradient, LAYOUT.flat(slope), rtol=1e-7, atol=1e-9)


def test_bounds_and_the_fixed_start_are_those_of_vizier_s_designer(designer_s_fit: _Fit) -> None:
    compiled = program.loss_program(ROWS, LAYOUT)
    low, high = designer_s_fit.bounds
    np.testing.assert_array_equal(compiled.low, LAYOUT.flat(low))
    np.testing.assert_array_equal(compiled.high, LAYOUT.flat(high))
    first = {name: np.asarray(value)[0] for name, value in designer_s_fit.starts.items()}
    np.testing.assert_array_equal(LAYOUT.flat(_START), LAYOUT.flat(first))


def test_the_posterior_is_vizier_s_own() -> None:
    from vizier._src.jax import stochastic_process_model
    from vizier._src.jax.models.tuned_gp_models import VizierGaussianProcess

    known, labels = _observed()
    space = Space(mixed())
    asked = space.features(quasi_random(space, 9, 4))
    posterior = Surrogate().fit(known, labels, seed=2)
    data = _data(known, labels, ROWS)
    coroutine = VizierGaussianProcess.build_model(data).coroutine
    model = stochastic_process_model.StochasticProcessWithCoroutine(coroutine, posterior.parameters)
    theirs = model.precompute_predictive(data).predict(_data(asked, None, 16))
    mean, covariance = posterior.joint(asked)
    # Theirs is of observations: the noise lies on its diagonal.
    noise = np.eye(9) * posterior.noise
    np.testing.assert_allclose(mean, np.asarray(theirs.mean())[:9], atol=1e-4)
    np.testing.assert_allclose(covariance, np.asarray(theirs.covariance())[:9, :9] - noise, atol=1e-4)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([0.0, 1.0, -3.5, 600.25]),
            st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3)),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_the_warping_is_vizier_s_own(labels: list[float]) -> None:
    from vizier._src.algorithms.designers.gp.output_warpers import create_default_warper

    expected = create_default_warper().warp(np.array(labels)[:, None])[:, 0]
    np.testing.assert_allclose(warp(np.array(labels)), expected, rtol=1e-9, atol=1e-9)


def test_the_fit_finds_a_bounded_minimum_from_the_better_start() -> None:
    def loss(point: Array) -> tuple[float, Array]:
        # (x^2 - 1)^2 + x / 4: a poor minimum near 0.93, a good one near -1.03; y is pushed to its bound.
        x, y = point[0], point[1:]
        slope = np.array([4 * x * (x**2 - 1) + 0.25, *(2 * (y - 5))])
        return float((x**2 - 1) ** 2 + x / 4 + ((y - 5) ** 2).sum()), slope

    low, high = np.array([-np.inf, 0.0, 0.0]), np.array([np.inf, 2.0, 9.0])
    best = smallest(loss, [np.array([0.9, 1.0, 1.0]), np.array([-0.5, 1.0, 1.0])], low, high, 60)
    roots = np.roots([4, 0, -4, 0.25])
    np.testing.assert_allclose(best, [min(roots.real), 2.0, 5.0], atol=1e-4)


_SECOND_PROCESS = """
import sys
import numpy as np
from spica.optimize.parameters import Layout
from spica.optimize.program import loss_program
compiled = loss_program(48, Layout(8, 8))
rng = np.random.default_rng(7)
arguments = rng.uniform(0.1, 0.9, 18), rng.random((48, 8)), np.zeros((48, 8), np.int32), rng.random(48)
both = np.asarray(compiled.run(*arguments, np.array([30, 5, 0])))
print(both.tobytes().hex(), "vizier" in sys.modules)
"""


def _second_process(cache: Path) -> tuple[str, str]:
    """What a process of its own computes, and whether it had to import Vizier."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SECOND_PROCESS],
        env={"XDG_CACHE_HOME": str(cache), "PATH": "", "HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    bits, vizier = done.stdout.split()
    return bits, vizier


def test_a_program_outlives_its_process_bit_for_bit(tmp_path: Path) -> None:
    first, imported = _second_process(tmp_path)
    assert imported == "True"
    assert _second_process(tmp_path) == (first, "False")
    (kept,) = (tmp_path / "spica" / "programs").glob("*.npz")
    whole = kept.read_bytes()
    kept.write_bytes(whole[:1000] + bytes(64) + whole[1064:])
    assert _second_process(tmp_path) == (first, "True")
    # A sound file with something else for a program, and no sum or that of another.
    garbage = np.arange(200, dtype=np.uint8)
    np.savez(kept, program=garbage, low=np.zeros(2), high=np.ones(2))
    assert program.load(kept) is None
    np.savez(kept, program=garbage, low=np.zeros(2), high=np.ones(2), sum=np.array("0" * 64))
    assert program.load(kept) is None
    assert _second_process(tmp_path) == (first, "True")


def test_a_damaged_program_is_not_loaded(tmp_path: Path) -> None:
    file = tmp_path / "p.npz"
    assert program.load(file) is None
    program._keep(file, program.Exported(bytes(range(200)), np.zeros(2), np.ones(2)))
    loaded = program.load(file)
    assert loaded is not None
    assert loaded.program == bytes(range(200))
    assert loaded.high.tolist() == [1, 1]
    for damaged in (file.read_bytes()[:-30], b"", b"PK"):
        (tmp_path / "d.npz").write_bytes(damaged)
        assert program.load(tmp_path / "d.npz") is None
    flipped = bytearray(file.read_bytes())
    flipped[flipped.index(bytes(range(100, 110)))] ^= 1
    (tmp_path / "d.npz").write_bytes(flipped)
    assert program.load(tmp_path / "d.npz") is None


def test_without_a_place_to_keep_it_a_program_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    program._keep(tmp_path / "file" / "p.npz", program.Exported(b"x", np.zeros(1), np.ones(1)))
    assert program.load(tmp_path / "file" / "p.npz") is None
