"""The neighbourhood of a good shape.

A model that has seen a cliff, as an SLA makes them, is sure of too much: it varies the knobs of the best
shape again and again, and never tries the shape beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spica.optimize.history import History
from spica.optimize.protocol import Influence
from spica.optimize.sampling import embedding
from spica.optimize.space import Rows, Space

# How many variations of a shape are looked at; many stand for the same one.
_DRAWS = 192
# Steps of a float, as shares of its range, and the share of variations that change a given mode.
_STEPS = (0.04, 0.1, 0.2)
_OTHER_MODE = 0.3


class ShapeWalk:
    """Steps from good candidates to the nearest shapes that were never asked for."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._columns = space.columns(Influence.SHAPE)

    def step(
        self, past: History, also: Rows, parent: Rows, rng: np.random.Generator, furthest: float = np.inf
    ) -> Rows | None:
        """``parent`` with the nearest shape that neither the past nor ``also`` has, and a divisor of at most
        ``furthest``; None when none was found, or when the study has no shapes."""
        if not len(self._columns):
            return None
        asked = past.rows(range(past.asked_count))
        taken = {self._shape(row) for row in [*asked, *also]}
        varied = np.unique(self._varied(parent, rng), axis=0)
        fresh = {row.tobytes(): row for row in map(self._space.canonical, varied)}
        rows = np.array([row for row in fresh.values() if self._shape(row) not in taken])
        rows = rows[self._space.divisors(rows) <= furthest]
        if not len(rows):
            return None
        place = embedding(self._space, self._with_knobs_of(parent, rows))
        distance = ((place - embedding(self._space, parent[None])) ** 2).sum(axis=1)
        return np.asarray(rows[int(np.argmin(distance))])

    def _shape(self, row: Rows) -> bytes:
        return row[self._columns].tobytes()

    def _with_knobs_of(self, parent: Rows, rows: Rows) -> Rows:
        """``rows`` that differ from ``parent`` in nothing but the shape."""
        alike = np.repeat(parent[None], len(rows), axis=0)
        alike[:, self._columns] = rows[:, self._columns]
        return alike

    def _varied(self, parent: Rows, rng: np.random.Generator) -> Rows:
        """Variations of the shape of ``parent``, knobs as they are. Shape ``(draws, width)``."""
        space = self._space
        here = np.repeat(parent[None], _DRAWS, axis=0)
        steps = rng.choice(_STEPS, size=(_DRAWS, 1)) * rng.standard_normal(here.shape)
        nudged = space.at_positions(np.clip(space.positions(here) + steps, 0.0, 1.0))
        moved = np.clip(here + rng.choice([-1.0, 0.0, 0.0, 1.0], size=here.shape), *space.bounds)
        anything = space.from_unit(rng.random(here.shape))
        other: NDArray[np.bool_] = rng.random(here.shape) < _OTHER_MODE
        varied = np.where(space.is_float, nudged, moved)
        varied = np.where(space.is_categorical, np.where(other, anything, here), varied)
        here[:, self._columns] = varied[:, self._columns]
        return here
