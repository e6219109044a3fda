"""Pools of points for an acquisition to choose from: everywhere, and near the good ones."""

from __future__ import annotations

import numpy as np

from spica.optimize.space import Rows, Space

# Steps of a float, as shares of its range, in the systematic and in the random neighbourhood.
_FLOAT_STEPS = (0.02, 0.06, 0.15, 0.35)
# Share of mutated values drawn anew from the whole range instead of nearby.
_JUMP = 0.25


def one_step(space: Space, row: Rows) -> Rows:
    """All points that differ from ``row`` in one parameter: every choice, and a few steps of each float."""
    here = space.positions(row[None])[0]
    found = []
    for i in range(space.width):
        if space.is_float[i]:
            moves = np.repeat(here[None], 2 * len(_FLOAT_STEPS), axis=0)
            moves[:, i] += [sign * s for s in _FLOAT_STEPS for sign in (-1.0, 1.0)]
            values = space.at_positions(np.clip(moves, 0.0, 1.0))[:, i]
        else:
            values = np.arange(space.sizes[i], dtype=np.float64)
        for value in values[values != row[i]]:
            moved = row.copy()
            moved[i] = value
            found.append(moved)
    return np.array(found).reshape(len(found), space.width)


def mutations(space: Space, parents: Rows, count: int, rng: np.random.Generator) -> Rows:
    """``count`` random variations of the parents, each with one or more parameters changed.

    Some take a share of their values from a second parent first.
    """
    width = space.width
    low, high = space.bounds
    first = parents[rng.integers(len(parents), size=count)]
    second = parents[rng.integers(len(parents), size=count)]
    crossed = (rng.random((count, width)) < 0.5) & (rng.random((count, 1)) < 0.3)
    rows = np.where(crossed, second, first)
    # One change always, more with a probability that makes about one more on average.
    change = rng.random((count, width)) < 1.0 / width
    change[np.arange(count), rng.integers(width, size=count)] = True
    jump = rng.random((count, width)) < _JUMP
    anywhere = space.from_unit(rng.random((count, width)))
    scale = np.asarray(_FLOAT_STEPS)[rng.integers(len(_FLOAT_STEPS), size=(count, width))]
    moved = space.positions(rows) + rng.standard_normal((count, width)) * scale
    nudged = space.at_positions(np.clip(moved, 0.0, 1.0))
    stepped = rows + rng.choice([-2.0, -1.0, 1.0, 2.0], p=[0.1, 0.4, 0.4, 0.1], size=(count, width))
    near = np.clip(np.where(space.is_float, nudged, stepped), low, high)
    near = np.where(space.is_categorical | jump, anywhere, near)
    return np.asarray(np.where(change, near, rows), dtype=np.float64)


def unique_rows(rows: Rows) -> Rows:
    """Rows without repetitions, in the order of first appearance."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]
