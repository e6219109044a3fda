"""Which of a pool of points to measure next, given the joint posterior over the pool.

Points chosen earlier in a batch, and points still being measured, are taken as measured at their posterior
mean: that leaves all means as they are and lowers the variance around them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]


class Beliefs:
    """Posterior over a pool of ``m`` points for each of ``k`` objectives, all to be maximised."""

    def __init__(self, means: Array, covariances: Array, noises: Array) -> None:
        """``means`` has shape ``(k, m)``, ``covariances`` ``(k, m, m)``, ``noises`` ``(k,)``."""
        self.means = means
        self._covariances = covariances.copy()
        self._noises = noises

    @property
    def deviations(self) -> Array:
        """Standard deviations. Shape ``(k, m)``."""
        return np.sqrt(np.maximum(np.diagonal(self._covariances, axis1=1, axis2=2), 1e-18))

    def measure(self, index: int) -> None:
        """Condition on the point having been measured at its mean."""
        for covariance, noise in zip(self._covariances, self._noises, strict=True):
            column = covariance[:, index].copy()
            covariance -= np.outer(column, column) / (column[index] + max(noise, 1e-9))


def _log_density(z: Array) -> Array:
    return np.asarray(-0.5 * z**2 - 0.5 * np.log(2 * np.pi))


def log_expected_improvement(mean: Array, deviation: Array, best: float | Array) -> Array:
    """Logarithm of the expected improvement over ``best`` (one for all, or one each), stable far below it.
    Shapes ``(m,)``.

    EI = s (phi(z) + z Phi(z)), z = (mean - best) / s. Below z = -1 the sum cancels, and is computed as
    phi(z) (1 - |z| R(|z|)) with the Mills ratio R from the scaled complementary error function.
    """
    z = (mean - best) / deviation
    middle = np.maximum(z, -1.0)
    plain = np.log(np.exp(_log_density(middle)) + middle * special.ndtr(middle))
    low = np.maximum(-z, 1.0)
    mills = np.sqrt(np.pi / 2) * special.erfcx(low / np.sqrt(2))
    # 1 - |z| R(|z|) tends to 1 / z^2; take that once the difference has no digits left.
    tail = np.where(low < 1e3, np.maximum(1 - low * mills, 1e-300), 1 / low**2)
    return np.asarray(np.where(z > -1, plain, _log_density(-low) + np.log(tail)) + np.log(deviation))


def expected_excess(mean: Array, deviation: Array, level: Array) -> Array:
    """E[(y - level)+] for normal ``y``.

    ``mean`` and ``deviation`` have shape ``(m,)``, ``level`` ``(s,)``, the result ``(m, s)``.
    """
    z = (mean[:, None] - level[None, :]) / deviation[:, None]
    return np.asarray(deviation[:, None] * (np.exp(_log_density(z)) + z * special.ndtr(z)))


def non_dominated(points: Array) -> Array:
    """The rows of ``(n, k)`` that no other row dominates (as good in all, better in one), without repeats."""
    left = np.unique(points, axis=0)[::-1]
    front = []
    while len(left):
        # In descending order of columns the first one left cannot be dominated by a later one.
        front.append(left[0])
        left = left[(left > left[0]).any(axis=1)]
    return np.array(front[::-1], dtype=np.float64).reshape(len(front), points.shape[1])


def expected_hypervolume_gain(means: Array, deviations: Array, front: Array, reference: Array) -> Array:
    """Exact expected gain in dominated area for two independent normal objectives. Shape ``(m,)``.

    The area above the front is cut into strips along the first objective; in a strip from ``a`` to ``b`` over
    height ``h`` the gain is (min(y1, b) - a)+ (y2 - h)+, whose factors are independent. ``means`` and
    ``deviations`` have shape ``(2, m)``, ``front`` ``(n, 2)``, ``reference`` ``(2,)`` lies below all of it.
    """
    front = front[np.all(front > reference, axis=1)]
    front = front[np.argsort(front[:, 0])]
    edges = np.concatenate([[reference[0]], front[:, 0]])
    heights = np.concatenate([front[:, 1], [reference[1]]])
    above = expected_excess(means[0], deviations[0], edges)
    widths = above - np.concatenate([above[:, 1:], np.zeros((len(above), 1))], axis=1)
    return np.asarray((widths * expected_excess(means[1], deviations[1], heights)).sum(axis=1))


def sampled_hypervolume_gain(
    means: Array, deviations: Array, front: Array, reference: Array, rng: np.random.Generator
) -> Array:
    """Estimate, up to a factor, of the expected gain in dominated volume for any number of objectives.

    The volume is proportional to the mean, over directions ``u`` of the positive unit sphere, of
    max over points of min_k ((y_k - reference_k)+ / u_k)^K (Zhang and Golovin, "Random hypervolume
    scalarizations", 2020). Shapes as in ``expected_hypervolume_gain``, with ``K`` objectives.
    """
    objectives = len(means)
    directions = np.abs(rng.standard_normal((48, objectives))) + 1e-6
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def scalarized(points: Array) -> Array:
        shares = np.maximum(points - reference, 0.0)[None] / directions[:, None, :]
        return np.asarray(shares.min(axis=2) ** objectives)

    best = scalarized(front).max(axis=1, initial=0.0)
    gain = np.zeros(means.shape[1])
    for draw in rng.standard_normal((16, objectives)):
        reached = scalarized(means.T + deviations.T * draw)
        gain += np.maximum(reached - best[:, None], 0.0).mean(axis=0)
    return gain


def greedy_batch(
    beliefs: Beliefs,
    score: Callable[[Beliefs, list[int], int], Array],
    pending: list[int],
    allowed: Callable[[int], bool],
    count: int,
) -> list[int]:
    """``count`` pool indices by repeated maximisation; ``pending`` ones are already being measured.

    ``score`` rates the pool given the beliefs, what is already chosen or pending, and how many are chosen;
    ``allowed`` is asked from the best score down, so that looking up identities is paid for few points. Fewer
    when the pool runs out.
    """
    for index in pending:
        beliefs.measure(index)
    taken = list(pending)
    chosen: list[int] = []
    while len(chosen) < count:
        ranking = np.argsort(-score(beliefs, taken, len(chosen)), kind="stable")
        best = next((int(i) for i in ranking if int(i) not in taken and allowed(int(i))), None)
        if best is None:
            break
        beliefs.measure(best)
        taken.append(best)
        chosen.append(best)
    return chosen
