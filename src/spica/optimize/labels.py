"""Labels as the model wants them: more is better, and the good ones pulled apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from spica.optimize.protocol import Objective, Observation

Array = NDArray[np.float64]

# Base of the logarithm that pulls good labels apart, as in Vizier.
_LOG_BASE = 1.5


def upward(observations: Sequence[Observation], objectives: Sequence[Objective]) -> Array:
    """Labels turned so that more is better. Shape ``(n, objectives)``, NaN where there is no score."""
    signs = np.array([1.0 if o.maximize else -1.0 for o in objectives])
    missing = [float("nan")] * len(objectives)
    table = [missing if o.labels is None else list(o.labels) for o in observations]
    return np.asarray(np.array(table, dtype=np.float64).reshape(len(table), len(objectives)) * signs)


def warp(labels: Array) -> Array:
    """Vizier's default warping of finite labels that are to be maximised. Shape ``(n,)`` to ``(n,)``.

    The lower half is spread by rank, good values are pulled apart, the order is kept, and the mean is near
    zero. Song et al., "The Vizier Gaussian Process Bandit Algorithm" (2024), appendix on output warping;
    computed here because Vizier takes seconds to import.
    """
    if len(np.unique(labels)) < 2:
        return np.zeros(len(labels))
    warped = _logarithmic(_half_rank(labels))
    # Vizier expects failures among the labels, and shifts the others so that the mean of all is zero, with
    # one half of a failure more than there were.
    scored = (len(warped) + 0.5) / (len(warped) + 1)
    failure = warped.min() - 0.5 * np.ptp(warped) - 1
    return np.asarray(warped - (warped.mean() * scored + failure * (1 - scored)))


def _half_rank(labels: Array) -> Array:
    """Labels below the median put where their ranks would lie in a normal distribution."""
    median = float(np.median(labels))
    distinct, rank = np.unique(labels, return_inverse=True)
    above = distinct[distinct >= median]
    deviation = np.sqrt(np.mean((above - median) ** 2)) or np.sqrt(np.mean((distinct - median) ** 2))
    middle = int(np.searchsorted(distinct, median))
    quantile = 0.5 * (rank + 0.5) / (middle + 0.5 * (distinct[middle] == median))
    # Those above the median stay as they are, whatever their quantile.
    lower = labels < median
    return np.where(lower, median + deviation * ndtri(np.where(lower, quantile, 0.5)), labels)


def _logarithmic(labels: Array) -> Array:
    """From 0.5 for the best down to -0.5, steepest at the best."""
    below = (labels.max() - labels) / np.ptp(labels)
    return np.asarray(0.5 - np.log1p(below * (_LOG_BASE - 1)) / np.log(_LOG_BASE))


class Scale:
    """The warping of some values, for other values: between them by interpolation, above the highest along
    the slope it has there, below the lowest as the lowest."""

    def __init__(self, values: Array) -> None:
        self.fitted = warp(values)
        self._values, first = np.unique(values, return_index=True)
        self._warped = self.fitted[first]
        self.highest = float(self._values[-1])
        reach = float(np.ptp(_half_rank(values)))
        self._slope = (_LOG_BASE - 1) / np.log(_LOG_BASE) / reach if reach > 0 else 0.0

    def warped(self, values: Array) -> Array:
        above = self._slope * np.maximum(values - self.highest, 0.0)
        return np.asarray(np.interp(values, self._values, self._warped) + above)

    def natural(self, warped: Array) -> Array:
        """The inverse, never above the highest value."""
        return np.asarray(np.interp(warped, self._warped, self._values))
