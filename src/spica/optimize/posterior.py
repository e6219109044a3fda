"""The posterior of a fitted Gaussian process: Vizier's kernel and hyper-parameters, plain linear algebra.

The library's own predictions would be traced and compiled for every size of a pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from spica.optimize.space import Features

Array = NDArray[np.float64]

# Added to the diagonal until its factor exists, as shares of the signal variance.
_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)


def one_thread() -> Any:
    """Inside, BLAS uses one thread: the matrices are small, and sums do not depend on the number of cores.

    The variables that limit it are read when a library is loaded, which may be before our time.
    """
    return ThreadpoolController().limit(limits=1, user_api="blas")


class Posterior:
    """A Matern-5/2 process with zero mean, given ``labels`` ``(n,)`` at ``n`` points; in units of the labels.

    ``parameters`` go by Vizier's names: a squared length scale per continuous and per categorical feature
    (whose distance is 0 or 1), the variance of the signal and that of the observation noise. Lengths beyond
    the features' own are padding.
    """

    def __init__(self, features: Features, labels: Array, parameters: Mapping[str, Array]) -> None:
        self.parameters = dict(parameters)
        self.noise = float(parameters["observation_noise_variance"])
        self._signal = float(parameters["signal_variance"])
        self._known = features
        with one_thread():
            self._factor = _factor(self._kernel(features, features), self.noise, self._signal)
            self._whitened = self._solve(labels)

    def marginal(self, features: Features) -> tuple[Array, Array]:
        """Mean and variance of the noise-free function at ``m`` points. Shapes ``(m,)``."""
        with one_thread():
            gain = self._solve(self._kernel(self._known, features))
            variance = self._signal - (gain**2).sum(axis=0)
            return gain.T @ self._whitened, np.maximum(variance, 1e-12)

    def joint(self, features: Features) -> tuple[Array, Array]:
        """Mean ``(m,)`` and covariance ``(m, m)`` of the noise-free function at ``m`` points."""
        with one_thread():
            gain = self._solve(self._kernel(self._known, features))
            covariance = self._kernel(features, features) - gain.T @ gain
            diagonal = np.diag_indices(len(covariance))
            covariance[diagonal] = np.maximum(covariance[diagonal], 1e-12)
            return gain.T @ self._whitened, covariance

    def _solve(self, values: Array) -> Array:
        return np.asarray(solve_triangular(self._factor, values, lower=True, check_finite=False))

    def _kernel(self, a: Features, b: Features) -> Array:
        count = a.continuous.shape[1]
        lengths = np.sqrt(self.parameters["continuous_length_scale_squared"][:count])
        squared = cdist(a.continuous / lengths, b.continuous / lengths, "sqeuclidean")
        scales = self.parameters["categorical_length_scale_squared"][: a.categorical.shape[1]]
        for column, other, scale in zip(a.categorical.T, b.categorical.T, scales, strict=True):
            squared += (column[:, None] != other[None, :]) / scale
        r = np.sqrt(5.0 * squared)
        return np.asarray(self._signal * (1.0 + r + r**2 / 3.0) * np.exp(-r))


def _factor(covariance: Array, noise: float, signal: float) -> Array:
    """The lower Cholesky factor of the noisy covariance."""
    for jitter in _JITTERS:
        noisy = covariance + (noise + jitter * signal) * np.eye(len(covariance))
        try:
            return np.asarray(cholesky(noisy, lower=True, check_finite=False))
        except np.linalg.LinAlgError:
            continue
    raise ValueError(f"the covariance of {len(covariance)} points is not positive definite")
