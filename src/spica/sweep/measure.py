"""Measurements: each at most once, each committed before anything else learns of it."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass

from spica.errors import StackError
from spica.evaluate.protocol import Evaluator, ReplayPlan
from spica.evaluate.reasons import is_lost
from spica.goals.score import Scoring
from spica.record import Ledger, TrialRecord
from spica.trial import TrialResult


@dataclass(frozen=True, slots=True)
class MeasurementId:
    """A candidate's key, and 0 for the search's measurement or 1.. for a confirming one."""

    key: str
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    id: MeasurementId
    result: TrialResult


class Measurer:
    """Sends plans to the evaluator and keeps their results.

    A result is judged and committed to the ledger in the thread that brings it, then waits in a queue for
    ``collect``: a finished trial is durable at once, whatever the main thread is doing. A trial that the
    record has as lost with its worker is measured again when it is asked for.
    """

    def __init__(
        self, evaluator: Evaluator, ledger: Ledger, scoring: Scoring, known: Sequence[TrialRecord]
    ) -> None:
        self._evaluator = evaluator
        self._ledger = ledger
        self._scoring = scoring
        ids = {MeasurementId(t.key, t.repeat): t.result for t in known}
        self._lost = frozenset(id for id, result in ids.items() if is_lost(result))
        self._known = {id: scoring.judge(r) for id, r in ids.items() if id not in self._lost}
        self._flying: dict[MeasurementId, Future[TrialResult]] = {}
        self._arrived: queue.SimpleQueue[Finished | BaseException] = queue.SimpleQueue()

    @property
    def in_flight(self) -> int:
        return len(self._flying)

    @property
    def seconds(self) -> float:
        """Seconds of all known measurements together."""
        return sum(r.seconds for r in self._known.values())

    def result(self, id: MeasurementId) -> TrialResult | None:
        return self._known.get(id)

    def recovered(self, id: MeasurementId) -> bool:
        """Whether the measurement was lost in the record, and now has a result."""
        result = self._known.get(id)
        return id in self._lost and result is not None and not is_lost(result)

    def request(self, id: MeasurementId, plan: ReplayPlan) -> TrialResult | None:
        """The result when it is known already (from the ledger), else None and it is on its way."""
        if id in self._known or id in self._flying:
            return self._known.get(id)
        future = self._evaluator.submit(plan)
        self._flying[id] = future
        future.add_done_callback(lambda f: self._commit(id, f))
        return None

    def _commit(self, id: MeasurementId, future: Future[TrialResult]) -> None:
        """Judge and record what a future brought. Runs in its callback, where an exception would go unseen:
        whatever it is, it is handed to ``collect``, which raises it."""
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or isinstance(error, CancelledError):
            return
        if error is not None:
            broke = StackError(f"the evaluator broke: {type(error).__name__}: {error}")
            broke.__cause__ = error
            self._arrived.put(broke)
            return
        try:
            result = self._scoring.judge(future.result())
            self._ledger.record_trial(TrialRecord(id.key, result, id.repeat), again=id in self._lost)
        except BaseException as failure:  # noqa: BLE001 - collect() raises it
            self._arrived.put(failure)
        else:
            self._arrived.put(Finished(id, result))

    def collect(self, timeout: float) -> tuple[Finished, ...]:
        """What has finished since the last call; waits up to ``timeout`` seconds for the first.

        Raises what kept a result from being committed: StackError or LedgerError of the ledger, or whatever
        else went wrong with it.
        """
        found: list[Finished] = []
        try:
            found.append(self._take(timeout))
            while True:
                found.append(self._take(0.0))
        except queue.Empty:
            return tuple(found)

    def _take(self, timeout: float) -> Finished:
        item = self._arrived.get(timeout=timeout) if timeout > 0 else self._arrived.get_nowait()
        if isinstance(item, BaseException):
            raise item
        self._known[item.id] = item.result
        self._flying.pop(item.id, None)
        return item

    def drain(self, grace: float) -> tuple[Finished, ...]:
        """Start nothing more, give what runs ``grace`` seconds to finish, then end the workers."""
        for future in self._flying.values():
            future.cancel()
        found: list[Finished] = []
        deadline = time.monotonic() + grace
        while any(not f.done() for f in self._flying.values()) and time.monotonic() < deadline:
            found += self.collect(0.05)
        self._evaluator.close(kill=True)
        found += self.collect(0.0)
        self._flying.clear()
        return tuple(found)
