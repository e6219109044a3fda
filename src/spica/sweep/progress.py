"""Telling the observer what happens, and keeping the time."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spica.goals.ranking import Point, dominates
from spica.goals.score import Scoring
from spica.sweep.events import (
    BestImproved,
    BranchStopped,
    SweepEvent,
    SweepObserver,
    Timings,
    TrialFinished,
)
from spica.sweep.measure import Finished, MeasurementId
from spica.sweep.rounds import BranchState, Entry, Kind
from spica.trial import TrialResult


@dataclass(frozen=True, slots=True)
class _Expected:
    state: BranchState
    entry: Entry


class Progress:
    """Events in the order in which things happen; of a resumed run's recorded trials too.

    ``evaluating``: seconds of all replays so far. ``most``: the most measurements that can succeed in all.
    ``began``: when the wall time starts (None: now).

    What is counted are measurements that succeeded: failures are replaced by asking again, so that no useful
    bound of all replays is known, while one of the successes is, and can only come down.
    """

    def __init__(
        self,
        observer: SweepObserver,
        scoring: Scoring,
        *,
        evaluating: Callable[[], float],
        most: Callable[[], int],
        began: float | None = None,
    ) -> None:
        self._observer = observer
        self._scoring = scoring
        self._evaluating = evaluating
        self._most = most
        self._total = sys.maxsize
        self._expected: dict[MeasurementId, _Expected] = {}
        self._front: list[Point] = []
        self._started = time.monotonic() if began is None else began
        self._suggesting = 0.0
        self._waiting = 0.0
        self.done = 0

    def emit(self, event: SweepEvent) -> None:
        self._observer.on_event(event)

    def timings(self) -> Timings:
        wall = time.monotonic() - self._started
        return Timings(self._suggesting, self._waiting, self._evaluating(), wall)

    @contextmanager
    def suggesting(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._suggesting += time.monotonic() - start

    @contextmanager
    def waiting(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._waiting += time.monotonic() - start

    def labels(self, result: TrialResult) -> Point | None:
        """What an optimizer is told: the values, or None without finite ones."""
        if result.metrics is None:
            return None
        values = self._scoring.values(result.metrics)
        return values if all(map(math.isfinite, values)) else None

    def expect(self, id: MeasurementId, state: BranchState, entry: Entry) -> None:
        """Remember whose measurement this is, for when it is there."""
        self._expected[id] = _Expected(state, entry)

    def measured(self, finished: Finished) -> None:
        """A measurement is there."""
        expected = self._expected.pop(finished.id, None)
        if expected is None:
            return
        self.done += finished.result.metrics is not None
        self._trial(expected, finished.result, hit=False, repeat=finished.id.repeat)
        if finished.id.repeat == 0:
            self._improve(expected, finished.result)

    def known(self, state: BranchState, entry: Entry, result: TrialResult) -> None:
        """A suggestion got its result without a replay."""
        self._trial(_Expected(state, entry), result, hit=entry.kind is Kind.REPEATED, repeat=0)

    def branch_stopped(self, state: BranchState) -> None:
        self.emit(BranchStopped(state.name, state.stopped, state.early))

    def _trial(self, expected: _Expected, result: TrialResult, *, hit: bool, repeat: int) -> None:
        state, entry = expected.state, expected.entry
        self._total = min(self._total, self._most())
        self.emit(
            TrialFinished(
                branch=state.name,
                trial=state.trial(entry),
                outcome=result.outcome,
                reason=result.reason,
                values=None if result.metrics is None else self._scoring.values(result.metrics),
                config=entry.decoded.sample.config(),
                seconds=0.0 if hit else result.seconds,
                cache_hit=hit,
                repeat=repeat,
                done=self.done,
                total=self._total,
                timings=self.timings(),
            )
        )

    def _improve(self, expected: _Expected, result: TrialResult) -> None:
        """Emit BestImproved when nothing known dominates the result or equals it."""
        labels = self.labels(result)
        if labels is None:
            return
        maximize = self._scoring.maximize
        if any(known == labels or dominates(known, labels, maximize) for known in self._front):
            return
        self._front = [known for known in self._front if not dominates(labels, known, maximize)]
        self._front.append(labels)
        state, entry = expected.state, expected.entry
        config = entry.decoded.sample.config()
        self.emit(BestImproved(state.name, state.trial(entry), labels, config, len(self._front)))
