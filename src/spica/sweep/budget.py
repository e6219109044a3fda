"""Which branch gets the next round. Pure: a function of the rounds that have been closed.

The rule (``docs/runs.md``): every branch gets its opening rounds. From then on a branch that is clearly worse
than another is *behind* and gets one round for every four of the leaders, until it is no longer behind.
Rounds that a branch behind does not get are saved: ``max_rounds`` stays each branch's cap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spica.goals.ranking import Point, hypervolume, pareto_front, reference_point

#: A branch is behind when its best is below this share of the leader's best (or of the joint hypervolume).
BEHIND_BELOW: Final = 0.9
#: Rounds of the leaders for each round of a branch behind.
LEADER_ROUNDS: Final = 4
#: Candidates (and rounds, at least 2) before a branch is judged.
OPENING_CANDIDATES: Final = 8
OPENING_ROUNDS: Final = 2


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a branch stands: rounds ``opened`` and ``closed`` (results known), the most it may have
    (``cap``), whether it has stopped before that, and the objective values of its feasible candidates so
    far, natural units."""

    opened: int
    closed: int
    cap: int
    stopped: bool = False
    points: tuple[Point, ...] = ()

    @property
    def finished(self) -> bool:
        return self.stopped or self.closed >= self.cap


def opening_rounds(max_rounds: int, candidates_per_round: int) -> int:
    needed = math.ceil(OPENING_CANDIDATES / candidates_per_round)
    return min(max(OPENING_ROUNDS, needed), max_rounds)


def behind(standings: Sequence[Standing], maximize: Sequence[bool]) -> tuple[bool, ...]:
    """Which branches are clearly worse than the best one."""
    if len(maximize) == 1:
        return _behind_in_score(standings, maximize[0])
    return _behind_in_front(standings, maximize)


def _behind_in_score(standings: Sequence[Standing], up: bool) -> tuple[bool, ...]:
    bests = [_best([p[0] for p in s.points], up) for s in standings]
    known = [b for b in bests if b is not None]
    if not known:
        return (False,) * len(bests)
    leader = max(known) if up else min(known)

    def worse(best: float | None) -> bool:
        if best is None:
            return True
        return best < BEHIND_BELOW * leader if up else leader < BEHIND_BELOW * best

    return tuple(worse(b) for b in bests)


def _best(values: Sequence[float], up: bool) -> float | None:
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return None
    return max(finite) if up else min(finite)


def _behind_in_front(standings: Sequence[Standing], maximize: Sequence[bool]) -> tuple[bool, ...]:
    """Behind: no point on the joint front, and less than ``BEHIND_BELOW`` of the joint hypervolume alone."""
    joint = [p for s in standings for p in s.points]
    if not joint:
        return (False,) * len(standings)
    front = set(pareto_front(joint, maximize, point=lambda p: p, key=str))
    reference = reference_point(joint, maximize)
    whole = hypervolume(joint, maximize, reference)
    return tuple(
        not front.intersection(s.points) and hypervolume(s.points, maximize, reference) < BEHIND_BELOW * whole
        for s in standings
    )


def next_branch(
    standings: Sequence[Standing], maximize: Sequence[bool], *, candidates_per_round: int
) -> int | None:
    """The index of the branch to open a round of, or None when all have had theirs.

    The one with the fewest rounds opened, the first of equals, among those that have not used up what they
    may have.
    """
    allowed = _allowances(standings, maximize, candidates_per_round)
    open_to = [i for i, s in enumerate(standings) if not s.stopped and s.opened < allowed[i]]
    return min(open_to, key=lambda i: (standings[i].opened, i), default=None)


def _allowances(
    standings: Sequence[Standing], maximize: Sequence[bool], candidates_per_round: int
) -> list[int]:
    caps = [s.cap for s in standings]
    openings = [opening_rounds(s.cap, candidates_per_round) for s in standings]
    if any(not s.finished and s.closed < first for s, first in zip(standings, openings, strict=True)):
        return caps
    late = behind(standings, maximize)
    # A leader that has finished needs no more rounds; those behind then get all of their share.
    most = max(caps, default=0)
    lead = max(
        (most if s.finished else s.opened for s, b in zip(standings, late, strict=True) if not b), default=0
    )
    return [
        min(first + max(lead - first, 0) // LEADER_ROUNDS, cap) if is_late else cap
        for first, is_late, cap in zip(openings, late, caps, strict=True)
    ]
