"""Fitting the hyper-parameters of Vizier's Gaussian process to observations.

The loss, its bounds and the fixed start are those of Vizier's GP-UCB-PE designer. Its own optimizer runs
SciPy's L-BFGS-B through wrappers that convert every parameter of every evaluation one by one (about 2 ms
each, when the loss of 48 observations takes 0.2 ms), and its ``suggest`` compiles anew in every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from spica.optimize.parameters import Layout
from spica.optimize.posterior import Posterior, one_thread
from spica.optimize.program import LossProgram, loss_program
from spica.optimize.space import Features

Array = NDArray[np.float64]
Loss = Callable[[Array], tuple[float, Array]]

# Numbers of observations that programs are made for; beyond the last, it doubles.
ROW_RUNGS = (48, 96, 176, 304)
# Feature columns of each kind are padded to multiples of this.
_WIDTH_STEP = 8
# Where Vizier's designer starts the fit.
_START = {
    "continuous_length_scale_squared": 1.0,
    "categorical_length_scale_squared": 1.0,
    "observation_noise_variance": 0.0039,
    "signal_variance": 0.039,
}


def padded(size: int, rungs: tuple[int, ...]) -> int:
    """The smallest rung that holds ``size``; beyond the last it doubles."""
    for rung in rungs:
        if size <= rung:
            return rung
    rung = rungs[-1]
    while rung < size:
        rung *= 2
    return rung


def layout_of(features: Features) -> Layout:
    def up(n: int) -> int:
        return max(_WIDTH_STEP, -(-n // _WIDTH_STEP) * _WIDTH_STEP)

    return Layout(up(features.continuous.shape[1]), up(features.categorical.shape[1]))


def loss_of(program: LossProgram, rows: int, features: Features, labels: Array) -> Loss:
    """The program as a function of the parameters alone: the loss of ``labels`` ``(n,)`` at ``n`` points."""
    count, layout = len(features), program.layout
    continuous = np.zeros((rows, layout.continuous))
    categorical = np.zeros((rows, layout.categorical), dtype=np.int32)
    column = np.zeros(rows)
    continuous[:count, : features.continuous.shape[1]] = features.continuous
    categorical[:count, : features.categorical.shape[1]] = features.categorical
    column[:count] = labels
    sizes = np.array([count, features.continuous.shape[1], features.categorical.shape[1]], dtype=np.int64)

    def loss(flat: Array) -> tuple[float, Array]:
        both = np.asarray(program.run(flat, continuous, categorical, column, sizes))
        return float(both[0]), both[1:]

    return loss


def smallest(loss: Loss, starts: Sequence[Array], low: Array, high: Array, max_iterations: int) -> Array:
    """The best of the local minima that L-BFGS-B reaches from ``starts``; the first of equal ones."""
    bounds = optimize.Bounds(low, high)
    options = {"maxiter": max_iterations, "maxls": 20, "gtol": 1e-5}
    found = [
        optimize.minimize(
            loss, np.clip(s, low, high), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        for s in starts
    ]
    reached = [float(f.fun) if np.isfinite(f.fun) else np.inf for f in found]
    return np.asarray(found[int(np.argmin(reached))].x, dtype=np.float64)


class Surrogate:
    """Fits a process to observations.

    ``restarts`` random starts are tried beside Vizier's fixed one, drawn as there: uniformly between the
    logarithms of the bounds.
    """

    def __init__(self, *, restarts: int = 1, max_iterations: int = 50) -> None:
        self._restarts = restarts
        self._max_iterations = max_iterations

    def fit(self, features: Features, labels: Array, seed: int) -> Posterior:
        """The process given ``labels`` (shape ``(n,)``, finite, to be maximised) at ``n >= 1`` points."""
        rows, layout = padded(len(features), ROW_RUNGS), layout_of(features)
        program = loss_program(rows, layout)
        unit = np.random.default_rng(seed).random((self._restarts, layout.size))
        low, high = np.log(program.low), np.log(program.high)
        starts = [layout.flat(_START), *np.exp(low + unit * (high - low))]
        with one_thread():
            loss = loss_of(program, rows, features, labels)
            best = smallest(loss, starts, program.low, program.high, self._max_iterations)
        return Posterior(features, labels, layout.named(best))
