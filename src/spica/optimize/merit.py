"""What the model is fitted to for a goal, and how much is expected of a point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spica.optimize import acquisition, labels

Array = NDArray[np.float64]

# How much higher a total may be than the highest so far; at a ceiling totals differ by one or two percent.
_SLACK = 1.02


@dataclass(frozen=True, slots=True)
class Outlook:
    """Of ``m`` points: ``means`` and ``deviations`` ``(columns, m)`` of the model of each column of a merit,
    ``chance`` of a score ``(m,)``, ``divisors`` ``(m,)`` (``Study.divisor``). ``taken``: which of them are
    being measured."""

    means: Array
    deviations: Array
    chance: Array
    divisors: Array
    taken: list[int]


class Merit(ABC):
    """Made from all scored observations. ``columns``: what models are fitted to, one per column, more is
    better; the first ones are the objectives. Shape ``(n, columns)``."""

    def __init__(self, columns: Array) -> None:
        self.columns = columns

    @property
    def furthest(self) -> float:
        """Points with a larger ``Study.divisor`` cannot be better than what is known."""
        return np.inf

    @abstractmethod
    def rate(self, outlook: Outlook, place: int) -> Array:
        """How much is expected of each point in the ``place``-th place of a batch. Shape ``(m,)``."""


class Improvement(Merit):
    """One objective: the logarithm of the expected improvement. ``upward``: values, shape ``(n,)``."""

    def __init__(self, upward: Array) -> None:
        super().__init__(labels.warp(upward)[:, None])

    def rate(self, outlook: Outlook, place: int) -> Array:
        mean = outlook.means[0]
        best = max([float(self.columns.max()), *mean[outlook.taken]])
        expected = acquisition.log_expected_improvement(mean, outlook.deviations[0], best)
        return expected + np.log(outlook.chance)


class ImprovementUnderCeiling(Merit):
    """One objective that is a total under a ceiling, divided by a known number: goodput per GPU of an offered
    load.

    Two models: of the values, and of the totals. Where the ceiling is reached totals are all alike, so the
    second sees that no knob will help there, and which smaller candidates would be better if they held. Alone
    it takes what it has not seen for an average total, which would make the smallest candidates the best; so
    in every other place the first must agree.
    """

    def __init__(self, upward: Array, divisors: Array) -> None:
        """``upward``: values ``(n,)``; ``divisors`` ``(n,)``, positive."""
        self._totals = labels.Scale(upward * divisors)
        self._best = float(upward.max())
        self._value = Improvement(upward)
        super().__init__(np.hstack([self._value.columns, self._totals.fitted[:, None]]))

    @property
    def furthest(self) -> float:
        """The largest divisor with which the highest total, or a little more, would be the best value."""
        return _SLACK * self._totals.highest / self._best if self._best > 0 else np.inf

    def rate(self, outlook: Outlook, place: int) -> Array:
        mean, taken = outlook.means[1], outlook.taken
        reached = self._totals.natural(mean[taken]) / outlook.divisors[taken]
        needed = self._totals.warped(max([self._best, *reached]) * outlook.divisors)
        of_totals = acquisition.log_expected_improvement(mean, outlook.deviations[1], needed)
        of_totals += np.log(outlook.chance)
        if place % 2:
            return of_totals
        return np.minimum(of_totals, self._value.rate(outlook, place))


class Hypervolume(Merit):
    """Several objectives: the expected gain in dominated volume. ``upward``: values, shape ``(n, k)``."""

    def __init__(self, upward: Array, seed: int) -> None:
        super().__init__(np.stack([labels.warp(column) for column in upward.T], axis=1))
        self._seed = seed

    def rate(self, outlook: Outlook, place: int) -> Array:
        means, deviations = outlook.means, outlook.deviations
        reference = self.columns.min(axis=0) - 0.1
        front = acquisition.non_dominated(np.vstack([self.columns, means[:, outlook.taken].T]))
        if len(means) == 2:
            gain = acquisition.expected_hypervolume_gain(means, deviations, front, reference)
        else:
            rng = np.random.default_rng(self._seed)
            gain = acquisition.sampled_hypervolume_gain(means, deviations, front, reference, rng)
        return outlook.chance * gain
