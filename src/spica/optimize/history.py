"""The past of a study, and the ask/tell shell around a strategy.

A strategy proposes points from the past alone, so nothing it has computed needs to survive an interruption:
restoring a run is handing back its past.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from spica.optimize.protocol import Asked, Event, Observation, Study, Suggestion
from spica.optimize.space import Rows, Space


class History:
    """What was asked and told so far. Reads are independent of the order in which results arrived."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.space = Space(study)
        self._asked: list[Suggestion] = []
        self._rows: list[Rows] = []
        self._told: dict[int, Observation] = {}
        self._keys: set[str] = set()

    @property
    def asked_count(self) -> int:
        return len(self._asked)

    @property
    def keys(self) -> frozenset[str]:
        """Identities of all candidates asked for so far."""
        return frozenset(self._keys)

    def told(self) -> tuple[Observation, ...]:
        """Observations in the order of asking."""
        return tuple(self._told[i] for i in sorted(self._told))

    def rows(self, ids: Sequence[int]) -> Rows:
        """Rows of suggestions by id. Shape ``(len(ids), width)``."""
        return np.array([self._rows[i] for i in ids], dtype=np.float64).reshape(len(ids), self.space.width)

    def pending_ids(self) -> tuple[int, ...]:
        """Suggestions without a result yet, in the order of asking."""
        return tuple(s.id for s in self._asked if s.id not in self._told)

    def add_asked(self, suggestions: Sequence[Suggestion]) -> None:
        for suggestion in suggestions:
            if suggestion.id != len(self._asked):
                raise ValueError(f"suggestion {suggestion.id} is out of order; expected {len(self._asked)}")
            row = self.space.encode(suggestion.values)
            self._asked.append(suggestion)
            self._rows.append(row)
            self._keys.add(self.space.key(row))

    def add_told(self, observations: Sequence[Observation]) -> None:
        for observation in observations:
            number = observation.suggestion.id
            if not 0 <= number < len(self._asked) or self._asked[number] != observation.suggestion:
                raise ValueError(f"told about a suggestion that was never asked: {observation.suggestion}")
            if number in self._told:
                raise ValueError(f"suggestion {number} was already told")
            if observation.labels is not None and len(observation.labels) != len(self.study.objectives):
                raise ValueError(
                    f"suggestion {number}: {len(observation.labels)} labels for "
                    f"{len(self.study.objectives)} objectives"
                )
            self._told[number] = observation


class Strategy(Protocol):
    """A way of choosing the next points; a pure function of the past it is given."""

    def propose(self, past: History, count: int) -> Rows:
        """``count`` points, or fewer when there are no others. Shape ``(count, width)``."""
        ...


class AskTell:
    """An ``Optimizer`` that keeps the past and leaves the choice to a strategy."""

    def __init__(self, study: Study, strategy: Strategy) -> None:
        self.past = History(study)
        self._strategy = strategy

    def ask(self, count: int) -> tuple[Suggestion, ...]:
        if count < 0:
            raise ValueError(f"cannot ask for {count} suggestions")
        if count == 0:
            return ()
        rows = self._strategy.propose(self.past, count)
        first = self.past.asked_count
        suggestions = tuple(Suggestion(first + i, self.past.space.decode(row)) for i, row in enumerate(rows))
        self.past.add_asked(suggestions)
        return suggestions

    def tell(self, observations: Sequence[Observation]) -> None:
        self.past.add_told(observations)

    def restore(self, history: Sequence[Event]) -> None:
        if self.past.asked_count:
            raise ValueError("restore comes before the first ask")
        for event in history:
            if isinstance(event, Asked):
                self.past.add_asked(event.suggestions)
            else:
                self.past.add_told(event.observations)
