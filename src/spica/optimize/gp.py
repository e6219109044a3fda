"""The strategy of the sweep: space-filling seeds, then Vizier's Gaussian process over a pool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spica.optimize import acquisition, candidates, labels
from spica.optimize.history import AskTell, History
from spica.optimize.merit import Hypervolume, Improvement, ImprovementUnderCeiling, Merit, Outlook
from spica.optimize.posterior import Posterior
from spica.optimize.protocol import SEEDS, Influence, Study
from spica.optimize.sampling import enumerate_rows, far_apart, fresh_or_repeated, quasi_random, unseen
from spica.optimize.shapes import ShapeWalk
from spica.optimize.space import Features, Rows, Space
from spica.optimize.surrogate import Surrogate

Array = NDArray[np.float64]

# Points whose chance of a score is below this come after all others, whatever they promise: where a model is
# sure of the rest, any finite weight would let it go on failing.
_HOPELESS = 0.05
_LAST = 1e-300


@dataclass(frozen=True, slots=True)
class Settings:
    """Numbers of the strategy; the defaults are what ``bench/optimizer_quality.py`` was tuned to."""

    seeds: int = SEEDS
    """Suggestions before the model is used, the default point among them."""
    seed_pool: int = 128
    """Points of which the seeds are those farthest apart, or more for many seeds."""
    restarts: int = 1
    """Random starts of a hyper-parameter fit beside Vizier's fixed one."""
    enumerate_up_to: int = 2048
    """Spaces with at most this many points (floats on a grid) are enumerated."""
    tiny: int = 24
    """Spaces with at most this many candidates are swept in a space-filling order, without a model."""
    spread: int = 320
    """Points of a pool drawn from the whole space."""
    mutated: int = 352
    """Points of a pool drawn near the best observed ones."""
    refined: int = 320
    """Points drawn near the best of a pool, for a second look."""
    parents: int = 6
    """Observed points whose neighbourhoods are searched."""
    fit_up_to: int = 304
    """Observations a model is fitted to; beyond, the best half and the latest half of this many."""
    local_changes: int = 2
    """Every other place of a batch goes to a point that differs from one of the best in at most so many
    parameters."""
    shape_every: int = 2
    """One suggestion of so many goes to a new shape beside those of the best, whatever the model says."""
    walked_from: int = 3
    """So many of the best observed points take turns as the one whose shape is left."""
    front_every: int = 4
    """``shape_every`` of several objectives, where the shapes of the whole front are left in turn."""
    vary_every: int = 3
    """Of several objectives, one of so many of these is a random variation of one of the front instead."""
    looks: int = 1
    """How many times the neighbourhood of a pool's best points is looked at before choosing."""


@dataclass(frozen=True, slots=True)
class _Data:
    """What is known: the merit of all scored observations, rows ``(n, width)`` of those the model is given
    with their columns of it ``(n, columns)``, rows ``(f, width)`` without a score, pending rows
    ``(p, width)``."""

    merit: Merit
    rows: Rows
    labels: Array
    failed: Rows
    pending: Rows


@dataclass(frozen=True, slots=True)
class _Models:
    """One posterior per column of the merit, given the scored observations alone, and one of being scored at
    all."""

    columns: list[Posterior]
    scored: Posterior | None
    share: float
    """Share of the observations that have a score."""

    def chance(self, features: Features) -> Array:
        """Probability of a score. Shape ``(m,)``.

        By regression on standardised zeros and ones: where nothing is known it is the share so far.
        """
        if self.scored is None:
            return np.ones(len(features))
        mean, _ = self.scored.marginal(features)
        deviation = np.sqrt(self.share * (1 - self.share))
        chance = np.minimum(self.share + deviation * mean, 1.0)
        return np.where(chance < _HOPELESS, _LAST, chance)


class GaussianProcessStrategy:
    """Proposes from the past alone; what it keeps between calls are caches of pure results."""

    def __init__(self, study: Study, settings: Settings = Settings()) -> None:
        self._study = study
        self._settings = settings
        self._space = Space(study)
        self._surrogate = Surrogate(restarts=settings.restarts)
        self._walk = ShapeWalk(self._space)

    @cached_property
    def _everything(self) -> Rows | None:
        """One row per candidate of a space small enough to enumerate; None for a large one."""
        rows = enumerate_rows(self._space, self._settings.enumerate_up_to)
        if rows is None:
            return None
        return np.array(unseen(self._space, rows, frozenset(), len(rows)))

    def propose(self, past: History, count: int) -> Rows:
        if self._space.width == 0:
            return np.zeros((count, 0))
        due = self._seeds_due(past, count)
        seeds = self._seeds(past, due)
        if due == count:
            return seeds
        rest = self._modelled(past, count - due, frozenset(self._space.key(r) for r in seeds))
        return np.vstack([seeds, rest])

    @cached_property
    def _tiny(self) -> bool:
        return self._everything is not None and len(self._everything) <= self._settings.tiny

    def _seeds_due(self, past: History, count: int) -> int:
        """How many of the next points need no model: the first ones, all of a tiny space, and as long as
        there is nothing to learn from."""
        if self._tiny or not any(o.labels is not None for o in past.told()):
            return count
        return min(count, max(self._settings.seeds - past.asked_count, 0))

    def _seeds(self, past: History, wanted: int) -> Rows:
        """Space-filling points, the first ones with knobs at their defaults. Fewer than wanted when there are
        no others."""
        if not wanted:
            return np.zeros((0, self._space.width))
        size = max(self._settings.seed_pool, 16 * wanted + 4 * past.asked_count)
        pool = quasi_random(self._space, size, self._study.seed)
        plain = np.zeros((0, self._space.width))
        if self._tiny:
            pool = np.vstack([pool, self._enumerated])
        else:
            tuned = self._space.columns(Influence.TUNING, Influence.WEIGHT)
            untuned = pool.copy()
            untuned[:, tuned] = self._space.default_row()[tuned]
            due = min(wanted, max(self._settings.seeds - past.asked_count, 0))
            plain = far_apart(past, untuned, due)
        found = far_apart(past, pool, wanted - len(plain), also=plain)
        return self._topped_up(past, [*plain, *found], wanted, frozenset())

    @property
    def _enumerated(self) -> Rows:
        return np.zeros((0, self._space.width)) if self._everything is None else self._everything

    def _modelled(self, past: History, count: int, also_seen: frozenset[str]) -> Rows:
        seen = past.keys | also_seen
        if self._everything is not None and len(self._everything) - len(seen) <= count:
            left = unseen(self._space, self._everything, seen, count)
            return self._topped_up(past, left, count, also_seen)
        data = self._data(past)
        rng = np.random.default_rng([self._study.seed, past.asked_count])
        models = self._fit(data, seed=past.asked_count)
        pool = self._pool(models, data, rng)
        walked = self._walked(past, data, count, rng)
        held = replace(data, pending=np.vstack([data.pending, *walked]))
        seen |= {self._space.key(row) for row in walked}
        picked = self._pick(models, held, pool, seen, count - len(walked))
        return self._topped_up(past, [*walked, *(pool[i] for i in picked)], count, also_seen)

    def _walked(self, past: History, data: _Data, count: int, rng: np.random.Generator) -> list[Rows]:
        """The suggestions beside the model that are due among the next ``count``."""
        settings, several = self._settings, len(self._study.objectives) > 1
        every = settings.front_every if several else settings.shape_every
        due = (past.asked_count + count) // every - past.asked_count // every
        parents = self._parents(data)
        if not several:
            parents = parents[: settings.walked_from]
        walked: list[Rows] = []
        for turn in range(past.asked_count // every, past.asked_count // every + due):
            if several and turn % settings.vary_every == 0:
                walked += self._varied(past, data, walked, rng)
                continue
            parent = parents[turn % len(parents)]
            row = self._walk.step(past, np.array(walked), parent, rng, data.merit.furthest)
            walked += [] if row is None else [row]
        return walked

    def _varied(self, past: History, data: _Data, also: list[Rows], rng: np.random.Generator) -> list[Rows]:
        """A random variation of one of the front; none of a study without shapes, or if all are known."""
        if not len(self._space.columns(Influence.SHAPE)):
            return []
        drawn = candidates.mutations(self._space, self._parents(data), 48, rng)
        return unseen(self._space, drawn, past.keys | {self._space.key(row) for row in also}, 1)

    def _topped_up(self, past: History, rows: list[Rows], count: int, also_seen: frozenset[str]) -> Rows:
        """``rows`` and, when they are too few, unseen points, should any be found. Of a space that is not
        known as a whole, repeats after that: there may be more."""
        if len(rows) < count:
            taken = past.keys | also_seen | {self._space.key(r) for r in rows}
            wanted = 16 * count + 4 * past.asked_count + 16
            more = np.vstack([self._enumerated, quasi_random(self._space, wanted, self._study.seed + 1)])
            rows = rows + unseen(self._space, more, taken, count - len(rows))
            if len(rows) < count and self._everything is None:
                rows += list(fresh_or_repeated(past, more, count - len(rows)))
        return np.array(rows).reshape(len(rows), self._space.width)

    def _fit(self, data: _Data, seed: int) -> _Models:
        features = self._space.features(data.rows)
        columns = [self._surrogate.fit(features, column, seed=seed) for column in data.labels.T]
        share = len(data.rows) / (len(data.rows) + len(data.failed))
        if share == 1.0:
            return _Models(columns, None, share)
        everything = self._space.features(np.vstack([data.rows, data.failed]))
        known = np.repeat([1.0, 0.0], [len(data.rows), len(data.failed)])
        standard = (known - share) / np.sqrt(share * (1 - share))
        return _Models(columns, self._surrogate.fit(everything, standard, seed=seed), share)

    def _data(self, past: History) -> _Data:
        told = past.told()
        upward = labels.upward(told, self._study.objectives)
        rows = past.rows([o.suggestion.id for o in told])
        scored = ~np.isnan(upward).any(axis=1)
        merit = self._merit(rows[scored], upward[scored])
        keep = self._training_subset(merit.columns[:, : len(self._study.objectives)])
        failed = rows[~scored][-self._settings.fit_up_to // 4 :]
        pending = past.rows(past.pending_ids())
        return _Data(merit, rows[scored][keep], merit.columns[keep], failed, pending)

    def _merit(self, rows: Rows, upward: Array) -> Merit:
        if upward.shape[1] > 1:
            return Hypervolume(upward, self._study.seed)
        if self._study.divisor is None:
            return Improvement(upward[:, 0])
        return ImprovementUnderCeiling(upward[:, 0], self._space.divisors(rows))

    def _training_subset(self, table: Array) -> NDArray[np.intp]:
        limit = self._settings.fit_up_to
        if len(table) <= limit:
            return np.arange(len(table))
        best = np.argsort(-table.max(axis=1), kind="stable")[: limit // 2]
        latest = np.setdiff1d(np.arange(len(table)), best)[-(limit - len(best)) :]
        return np.sort(np.concatenate([best, latest]))

    def _parents(self, data: _Data) -> Rows:
        rows, table = data.rows, data.labels
        if len(self._study.objectives) == 1:
            return np.asarray(rows[np.argsort(-table[:, 0], kind="stable")[: self._settings.parents]])
        front = acquisition.non_dominated(table)
        on_front = (table[:, None, :] == front[None, :, :]).all(axis=2).any(axis=1)
        return np.asarray(rows[on_front])

    def _pool(self, models: _Models, data: _Data, rng: np.random.Generator) -> Rows:
        """Candidates to choose from: all of a small space, else spread ones, neighbours, a second look."""
        if self._everything is not None:
            return self._everything
        settings, space = self._settings, self._space
        parents = self._parents(data)
        near = np.vstack([candidates.one_step(space, parent) for parent in parents[:2]])
        spread = quasi_random(space, settings.spread, int(rng.integers(2**31)))
        moved = candidates.mutations(space, parents, settings.mutated, rng)
        pool = self._canonical(np.vstack([spread, near, moved]))[:1000]
        for _ in range(settings.looks):
            score = self._marginal_score(models, data, pool)
            top = pool[np.argsort(-score, kind="stable")[:160]]
            refined = candidates.mutations(space, top[:12], settings.refined, rng)
            near = np.vstack([candidates.one_step(space, row) for row in top[:3]])
            pool = self._canonical(np.vstack([top, near, refined]))[:800]
        return pool

    def _near(self, centres: Rows, pool: Rows) -> NDArray[np.bool_]:
        """Which points of the pool differ in few parameters from one of the centres."""
        changed = (pool[:, None, :] != centres[None, :, :]).sum(axis=2).min(axis=1)
        return np.asarray(changed <= self._settings.local_changes)

    def _open(self, local: NDArray[np.bool_], slot: int) -> NDArray[np.bool_]:
        """Every other place of a batch is kept for the neighbourhood of the best points."""
        if slot % 2 or not local.any():
            return np.ones_like(local)
        return local

    def _canonical(self, rows: Rows) -> Rows:
        if self._study.canonical is not None:
            rows = np.array([self._space.canonical(row) for row in rows])
        return candidates.unique_rows(rows)

    def _marginal_score(self, models: _Models, data: _Data, pool: Rows) -> Array:
        """How much is expected of each point alone."""
        features = self._space.features(pool)
        marginals = [model.marginal(features) for model in models.columns]
        means = np.array([mean for mean, _ in marginals])
        deviations = np.sqrt(np.array([variance for _, variance in marginals]))
        sizes = self._space.divisors(pool)
        outlook = Outlook(means, deviations, models.chance(features), sizes, [])
        return data.merit.rate(outlook, place=1)

    @staticmethod
    def _beliefs(models: _Models, features: Features) -> acquisition.Beliefs:
        joints = [model.joint(features) for model in models.columns]
        return acquisition.Beliefs(
            np.array([mean for mean, _ in joints]),
            np.array([covariance for _, covariance in joints]),
            np.array([model.noise for model in models.columns]),
        )

    def _pick(self, models: _Models, data: _Data, pool: Rows, seen: frozenset[str], count: int) -> list[int]:
        held = len(data.pending)
        rows = np.vstack([data.pending, pool])
        features, divisors = self._space.features(rows), self._space.divisors(rows)
        beliefs, chance = self._beliefs(models, features), models.chance(features)
        local = np.concatenate([np.zeros(held, dtype=bool), self._near(self._parents(data)[:3], pool)])
        taken = set(seen)

        def allowed(index: int) -> bool:
            key = self._space.key(pool[index - held])
            fresh = key not in taken
            taken.add(key)
            return fresh

        def score(now: acquisition.Beliefs, measured: list[int], place: int) -> Array:
            outlook = Outlook(now.means, now.deviations, chance, divisors, measured)
            return np.where(self._open(local, place), data.merit.rate(outlook, place), -np.inf)

        picked = acquisition.greedy_batch(beliefs, score, list(range(held)), allowed, count)
        return [i - held for i in picked]


class GaussianProcessOptimizer(AskTell):
    """``Optimizer`` on Vizier's Gaussian process."""

    def __init__(self, study: Study, settings: Settings = Settings()) -> None:
        super().__init__(study, GaussianProcessStrategy(study, settings))
