"""From judged candidates to what a goal makes of them: order, front and knee.

The sweep's result and the report of a run are both arranged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from spica.goals.ranking import Point, Rankable, knee, pareto_front, rank
from spica.goals.score import Scoring, score


class Judged(Rankable, Protocol):
    """``objectives``: one value per target of the goal, natural units."""

    @property
    def objectives(self) -> Point: ...
    @property
    def excluded_by_sla(self) -> bool: ...


J = TypeVar("J", bound=Judged)


@dataclass(frozen=True, slots=True)
class Arranged(Generic[J]):
    """``ranked``: all, best first; of a Pareto goal by the first objective, for want of a single score.
    ``front``: those of a Pareto goal that nothing dominates, without those that an SLA excludes, by the last
    objective ascending; empty for a single target. ``knee``: the front's balanced point."""

    ranked: tuple[J, ...]
    front: tuple[J, ...] = ()
    knee: J | None = None


def arrange(found: Sequence[J], scoring: Scoring) -> Arranged[J]:
    """Order ``found`` under a goal; ties go to fewer GPUs, then to the key."""
    if not scoring.is_pareto:
        return Arranged(rank(found))
    first = scoring.targets[0]
    ranked = sorted(found, key=lambda c: (-score(first, c.objectives[0]), c.used_gpus, c.key))
    eligible = [c for c in found if not c.excluded_by_sla]
    front = pareto_front(eligible, scoring.maximize, lambda c: c.objectives, lambda c: c.key)
    at = knee([c.objectives for c in front], scoring.maximize)
    return Arranged(tuple(ranked), front, None if at is None else front[at])
