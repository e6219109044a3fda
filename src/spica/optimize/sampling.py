"""Points that need no model: defaults, low-discrepancy and random sequences, and whole finite spaces.

Also the two plain strategies built on them, which serve as baselines and in tests of the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.stats import qmc

from spica.optimize.history import AskTell, History
from spica.optimize.protocol import CategoricalParameter, Study
from spica.optimize.space import Rows, Space

# How many points may be drawn per wanted one before repeats are accepted: spaces where most points decode to
# a few candidates are exhausted long before their points are.
_DRAWS_PER_POINT = 16
# Levels at which a float parameter is looked at when a space is enumerated.
_FLOAT_LEVELS = 33
# Squared distance of two unlike choices of a categorical, where that of a range's two ends is 1.
_UNLIKE = 0.4


def quasi_random(space: Space, count: int, seed: int) -> Rows:
    """The first ``count`` points of a scrambled Sobol sequence. A longer call starts with a shorter one's."""
    if space.width == 0 or count == 0:
        return np.zeros((count, space.width))
    exponent = max(int(np.ceil(np.log2(count))), 0)
    unit = qmc.Sobol(space.width, scramble=True, rng=np.random.default_rng(seed)).random_base2(exponent)
    return space.from_unit(unit[:count])


def uniform(space: Space, count: int, rng: np.random.Generator) -> Rows:
    """Independent uniform points."""
    return space.from_unit(rng.random((count, space.width)))


def unseen(space: Space, rows: Iterable[Rows], seen: frozenset[str], count: int) -> list[Rows]:
    """The first ``count`` rows, canonical, whose candidates are neither ``seen`` nor earlier in ``rows``."""
    taken = set(seen)
    fresh: list[Rows] = []
    for row in rows:
        if len(fresh) == count:
            break
        stand_in = space.canonical(row)
        key = space.key(stand_in)
        if key not in taken:
            taken.add(key)
            fresh.append(stand_in)
    return fresh


def enumerate_rows(space: Space, limit: int) -> Rows | None:
    """Every point of the space, floats on a grid, or None when there would be more than ``limit``."""
    levels = np.where(space.is_float, _FLOAT_LEVELS, space.sizes)
    if float(np.prod(levels.astype(np.float64))) > limit:
        return None
    grid = space.at_positions(np.repeat(np.linspace(0.0, 1.0, _FLOAT_LEVELS)[:, None], space.width, axis=1))
    axes = [
        grid[:, i] if space.is_float[i] else np.arange(levels[i], dtype=float) for i in range(space.width)
    ]
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)


def fresh_or_repeated(past: History, pool: Rows, count: int) -> Rows:
    """The default point, then points of ``pool``, unseen ones first; repeats only when those run out."""
    space = past.space
    if space.width == 0:
        return np.zeros((count, 0))
    rows = np.vstack([space.default_row()[None], pool])
    fresh = unseen(space, rows, past.keys, count)
    if len(fresh) < count:
        start = 1 + past.asked_count
        again = rows[np.arange(start, start + count - len(fresh)) % len(rows)]
        fresh += [space.canonical(row) for row in again]
    return np.array(fresh)


def embedding(space: Space, rows: Rows) -> Rows:
    """Coordinates in which candidates are compared: ranges of length 1, unlike choices a little closer."""
    features = space.features(rows)
    choices = [len(p.choices) for p in space.parameters if isinstance(p, CategoricalParameter)]
    one_hot = [np.eye(n)[column] for n, column in zip(choices, features.categorical.T, strict=True)]
    # Unlike rows of an identity matrix are at squared distance 2.
    return np.hstack([features.continuous, *(np.sqrt(_UNLIKE / 2) * hot for hot in one_hot)])


def far_apart(past: History, pool: Rows, count: int, also: Rows | None = None) -> Rows:
    """Unseen points of the default and ``pool``, each as far as possible from all before it, which are those
    of the past and ``also``.

    The maximin design of Johnson, Moore and Ylvisaker, "Minimax and maximin distance designs" (1990), chosen
    greedily among candidates: what a plain sequence leaves out, the corners (one replica of the smallest
    worker), is often where the best deployments are. Fewer than ``count`` when the pool runs out.
    """
    space = past.space
    before = past.rows(range(past.asked_count))
    seen = past.keys
    if also is not None:
        before = np.vstack([before, also])
        seen |= {space.key(row) for row in also}
    rows = np.array(unseen(space, np.vstack([space.default_row()[None], pool]), seen, len(pool) + 1))
    if not len(rows):
        return np.zeros((0, space.width))
    places = embedding(space, rows)
    distance = np.full(len(rows), np.inf)
    for asked in embedding(space, before):
        distance = np.minimum(distance, ((places - asked) ** 2).sum(axis=1))
    chosen: list[int] = []
    while len(chosen) < min(count, len(rows)):
        best = int(np.argmax(distance))
        chosen.append(best)
        distance = np.minimum(distance, ((places - places[best]) ** 2).sum(axis=1))
        distance[chosen] = -1.0
    return rows[chosen]


class QuasiRandomStrategy:
    """The default point, then a scrambled Sobol sequence without candidates seen before."""

    def propose(self, past: History, count: int) -> Rows:
        wanted = _DRAWS_PER_POINT * count + 4 * past.asked_count + 16
        return fresh_or_repeated(past, quasi_random(past.space, wanted, past.study.seed), count)


class RandomStrategy:
    """The default point, then uniform points without candidates seen before."""

    def propose(self, past: History, count: int) -> Rows:
        rng = np.random.default_rng([past.study.seed, past.asked_count])
        return fresh_or_repeated(past, uniform(past.space, _DRAWS_PER_POINT * count + 16, rng), count)


class QuasiRandomOptimizer(AskTell):
    """``Optimizer`` that fills the space evenly and learns nothing."""

    def __init__(self, study: Study) -> None:
        super().__init__(study, QuasiRandomStrategy())


class RandomOptimizer(AskTell):
    """``Optimizer`` that draws uniformly and learns nothing."""

    def __init__(self, study: Study) -> None:
        super().__init__(study, RandomStrategy())
