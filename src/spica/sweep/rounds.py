"""The state of a sweep while it runs: branches, their rounds, and what each suggestion came to."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from spica.goals.ranking import Point
from spica.optimize.protocol import Suggestion
from spica.sweep.budget import Standing
from spica.sweep.inputs import Decoded, SearchBranch
from spica.sweep.study import BranchStudy
from spica.trial import Outcome, TrialResult

#: Suggestions per wanted candidate after which a round gives up.
SUGGESTIONS_PER_CANDIDATE = 11

#: Failures that say something about the stack rather than about a candidate.
_BROKEN = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.UNSUPPORTED})


class Kind(StrEnum):
    """How a suggestion got, or will get, its result."""

    NEW = "new"
    """The first of its candidate: it is measured."""
    REPEATED = "repeated"
    """Of a candidate that an earlier suggestion has measured or is measuring: no replay."""
    INFEASIBLE = "infeasible"
    """Known to be infeasible without a replay."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One suggestion of a round."""

    suggestion: Suggestion
    decoded: Decoded
    key: str
    kind: Kind
    round: int


@dataclass(slots=True)
class Round:
    """One open round: ``spent`` suggestions, ``succeeded`` new feasible candidates, ``waiting`` entries whose
    results are not told yet, in the order of suggestion. ``exhausted``: there are no other candidates."""

    number: int
    wanted: int
    spent: int = 0
    succeeded: int = 0
    exhausted: bool = False
    waiting: list[Entry] = field(default_factory=list)

    @property
    def limit(self) -> int:
        return SUGGESTIONS_PER_CANDIDATE * self.wanted

    @property
    def missing(self) -> int:
        """How many suggestions to ask for now: as many candidates as are wanted and not under way."""
        if self.exhausted:
            return 0
        under_way = sum(e.kind is Kind.NEW for e in self.waiting)
        return max(0, min(self.wanted - self.succeeded - under_way, self.limit - self.spent))


@dataclass(slots=True)
class BranchState:
    """One branch: ``told`` holds the results that have been told, by key; ``first`` the entry that measures
    each key; ``entries`` all of them in order."""

    branch: SearchBranch
    study: BranchStudy
    max_rounds: int
    opened: int = 0
    closed: int = 0
    stopped: str = ""
    early: bool = False
    told: dict[str, TrialResult] = field(default_factory=dict)
    first: dict[str, Entry] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return self.branch.mode

    def trial(self, entry: Entry) -> str:
        return f"{self.name}-{entry.suggestion.id}"

    def standing(self) -> Standing:
        return Standing(self.opened, self.closed, self.max_rounds, bool(self.stopped), tuple(self.points))

    def stop(self, reason: str, *, early: bool) -> bool:
        """Take no more rounds. False when it had stopped before."""
        if self.stopped:
            return False
        self.stopped, self.early = reason, early
        return True

    def count_failure(self, result: TrialResult) -> None:
        if result.outcome in _BROKEN:
            self.failures[f"{result.outcome}: {without_numbers(result.reason)}"] += 1

    def hopeless(self, limit: int) -> bool:
        """Whether the same failure has come ``limit`` times and nothing is feasible."""
        return not self.points and any(count >= limit for count in self.failures.values())


def without_numbers(reason: str) -> str:
    """The reason with its numbers blotted out: what two failures for one cause have in common."""
    return re.sub(r"\d[\d.,_]*", "#", reason)
