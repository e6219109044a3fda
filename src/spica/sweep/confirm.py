"""Measuring the leaders again: means, spreads, and which of them cannot be told apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

from spica.deployment.sample import Sample
from spica.goals.ranking import exclusive_share, pareto_front, rank, reference_point
from spica.goals.score import Scoring, avg_gpu, score
from spica.record.results import Candidate, Comparison, Spread
from spica.trial import Metrics

#: Two means differ when the chance of such a difference under equal means is below this.
SIGNIFICANCE: Final = 0.05
#: At most this many times ``top`` candidates are measured again when confirmed leaders fall behind others.
MOST_ROUNDS: Final = 3


def repeats_itself(sample: Sample) -> bool:
    """Whether replays of the sample are bit-exact: round robin is, the KV router is not."""
    return sample.router_mode == "round_robin"


def leaders(candidates: Sequence[Candidate], scoring: Scoring, top: int) -> tuple[Candidate, ...]:
    """The ``top`` best; of a front those that alone dominate the most."""
    if scoring.target != "pareto":
        return rank(candidates)[:top]
    eligible = [c for c in candidates if not c.excluded_by_sla]
    front = pareto_front(eligible, scoring.maximize, lambda c: c.objectives, lambda c: c.key)
    reference = reference_point([c.objectives for c in eligible], scoring.maximize)

    def share(candidate: Candidate) -> float:
        others = [c.objectives for c in front if c is not candidate]
        return exclusive_share([candidate.objectives], others, scoring.maximize, reference)

    return tuple(sorted(front, key=lambda c: (-share(c), c.used_gpus, c.key))[:top])


def confirm(
    candidates: Sequence[Candidate],
    scoring: Scoring,
    *,
    top: int,
    measure: Callable[[Sequence[Candidate]], Sequence[Sequence[Metrics]]],
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """Re-measure leaders until the ``top`` best are confirmed or repeat themselves anyway.

    ``measure`` gives the metrics of each candidate's fresh repeats. The measurement that made a candidate a
    leader is left out of its mean: it was chosen for being high. Returns all candidates, the confirmed ones
    with means and spreads, and the leaders that were left alone because their replays are exact.
    """
    current = {c.key: c for c in candidates}
    tried: set[str] = set()
    for _ in range(MOST_ROUNDS):
        best = leaders(tuple(current.values()), scoring, top)
        due = [c for c in best if c.key not in tried and not repeats_itself(c.sample)]
        if not due:
            break
        for candidate, metrics in zip(due, measure(due), strict=True):
            tried.add(candidate.key)
            if metrics:
                current[candidate.key] = with_repeats(candidate, scoring, metrics)
    final = tuple(current.values())
    exact = tuple(c for c in leaders(final, scoring, top) if repeats_itself(c.sample))
    return final, exact


def with_repeats(candidate: Candidate, scoring: Scoring, repeats: Sequence[Metrics]) -> Candidate:
    """The candidate with the means of ``repeats`` in place of its single measurement."""
    columns = list(zip(*(scoring.values(m) for m in repeats), strict=True))
    spreads = tuple(spread_of(column) for column in columns)
    metrics = mean_metrics(repeats)
    objectives = tuple(s.mean for s in spreads)
    return replace(
        candidate,
        objectives=objectives,
        score=0.0 if scoring.target == "pareto" else score(scoring.target, objectives[0]),
        metrics=metrics,
        avg_gpu=avg_gpu(metrics),
        spread=spreads,
        excluded_by_sla=scoring.excluded_by_sla(metrics),
    )


def spread_of(values: Sequence[float]) -> Spread:
    """The spread of one objective over its measurements.

    A mean over an infinite one, the worst that there is, is infinite. ``std`` of a single one is 0.
    """
    if not all(map(math.isfinite, values)):
        return Spread(len(values), math.inf, math.inf, min(values), max(values))
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(len(values), statistics.fmean(values), deviation, min(values), max(values))


def mean_metrics(repeats: Sequence[Metrics]) -> Metrics:
    """The mean of every number that all repeats report; ticks and timeline are the first one's."""
    names = [n for n in repeats[0].summary if all(n in m.summary for m in repeats)]
    summary = {n: math.fsum(m.summary[n] for m in repeats) / len(repeats) for n in names}
    return replace(repeats[0], summary=summary)


def equal_means_p(a: Spread, b: Spread) -> float:
    """Two-sided p-value of Welch's t-test, 1 when the means are equal.

    A measurement without repeats counts as exact (its replays repeat themselves). Two exact ones that differ
    give 0. Source: B. L. Welch, Biometrika 34 (1947).
    """
    difference = abs(a.mean - b.mean)
    if difference == 0:
        return 1.0
    parts = [(s.std**2 / s.repeats, s.repeats - 1) for s in (a, b) if s.repeats > 1 and s.std > 0]
    error = sum(variance for variance, _ in parts)
    if error == 0:
        return 0.0
    freedom = error**2 / sum(variance**2 / degrees for variance, degrees in parts)
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -difference / math.sqrt(error)))


def comparisons(
    best: Sequence[Candidate], scoring: Scoring, name: Callable[[Candidate], str]
) -> tuple[Comparison, ...]:
    """What the repeats say about pairs of leaders: the first against each other one, or, of a front, all
    pairs. ``name`` is what a candidate goes by where results are shown.

    Pairs in which neither was re-measured are left out, and so are pairs with a single noisy measurement.
    """
    pairs = combinations(best, 2) if scoring.is_pareto else [(best[0], other) for other in best[1:]]
    return tuple(
        _compare(a, b, scoring, f"{name(a)} and {name(b)}")
        for a, b in pairs
        if (a.spread or b.spread) and _known_well(a) and _known_well(b)
    )


def _known_well(candidate: Candidate) -> bool:
    return candidate.repeats > 1 or repeats_itself(candidate.sample)


def _compare(a: Candidate, b: Candidate, scoring: Scoring, who: str) -> Comparison:
    chances = {
        name: equal_means_p(x, y)
        for name, x, y in zip(scoring.targets, _spreads(a), _spreads(b), strict=True)
    }
    objective = min(chances, key=lambda name: chances[name])
    p_value = chances[objective]
    differ = p_value < SIGNIFICANCE
    verb = "differ" if differ else "cannot be told apart"
    statement = f"{who} {verb} in {objective} (p = {p_value:.2g})"
    return Comparison(a.trial_ids[0], b.trial_ids[0], objective, p_value, differ, statement)


def _spreads(candidate: Candidate) -> tuple[Spread, ...]:
    return candidate.spread or tuple(Spread(1, v, 0.0, v, v) for v in candidate.objectives)
