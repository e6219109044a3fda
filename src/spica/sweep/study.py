"""One branch's optimizer, with the past of an interrupted run played back to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from spica.errors import LedgerError
from spica.optimize.protocol import Asked, Event, Observation, Optimizer, Study, Suggestion, Told
from spica.record import AskRecord, Ledger, SuggestionRecord
from spica.sweep.inputs import OptimizerFactory

T = TypeVar("T")


class _Carry:
    """Carries an error out of a thread; it is raised again where the result is taken."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True


class InBackground(Generic[T]):
    """A call running in a thread of its own, so that the caller can go on collecting results and notice a
    stop.

    An abandoned call goes on, and the interpreter's end waits for it: it must not be taken down while the
    optimizer's compiler runs. The command line does not wait, see ``spica.commands.guard.leave``.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._carry = _Carry()
        self._results: list[T] = []

        def run() -> None:
            with self._carry:
                self._results.append(call())

        self._thread = threading.Thread(target=run, name="spica-suggest")
        self._thread.start()

    def done(self, timeout: float) -> bool:
        """Whether it has ended; waits up to ``timeout`` seconds for that."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Its result; raises what it raised. Only after ``done``."""
        if self._carry.error is not None:
            raise self._carry.error
        return self._results[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """Suggestions, their place among the branch's asks, and whether they come from the ledger."""

    index: int
    suggestions: tuple[Suggestion, ...]
    recorded: bool


class BranchStudy:
    """Asks and tells of one branch.

    As long as the ledger has the answers of an earlier process, they are given without an optimizer; the
    first new ask makes one and restores it from everything that was played back. Because the sweep's
    control flow is a function of answers and results alone, a resumed run passes through the same asks.
    """

    def __init__(
        self,
        name: str,
        study: Study,
        factory: OptimizerFactory,
        ledger: Ledger,
        recorded: Sequence[AskRecord],
        *,
        force: bool,
    ) -> None:
        self.name = name
        self._study = study
        self._factory = factory
        self._ledger = ledger
        self._recorded = tuple(recorded)
        self._force = force
        self._past: list[Event] = []
        self._optimizer: Optimizer | None = None
        self._asks = 0
        self._suggested = 0

    @property
    def recorded_suggestions(self) -> int:
        """How many suggestions the record has, as far as it is followed."""
        return sum(len(ask.suggestions) for ask in self._recorded)

    def recall(self, count: int, round_: int, objection: Callable[[SuggestionRecord], str]) -> Answer | None:
        """The recorded answer to the next ask, or None when it must be computed.

        ``objection`` says what is wrong with a recorded suggestion (empty: nothing). A record that does not
        fit raises LedgerError; when forced, the rest of it is dropped instead.
        """
        if self._asks >= len(self._recorded):
            return None
        record = self._recorded[self._asks]
        # An ask may have been answered with fewer: there were no more candidates.
        ids = list(range(self._suggested, self._suggested + min(count, len(record.suggestions))))
        if record.round != round_ or [s.id for s in record.suggestions] != ids:
            self._reject("its rounds were cut differently")
            return None
        for suggestion in record.suggestions:
            if why := objection(suggestion):
                self._reject(f"suggestion {suggestion.id} {why}")
                return None
        suggestions = tuple(Suggestion(s.id, s.values) for s in record.suggestions)
        self._past.append(Asked(suggestions))
        answer = Answer(self._asks, suggestions, recorded=True)
        self.accept(answer)
        return answer

    def depart(self) -> None:
        """Leave the record: what it has beyond this point was suggested without knowing what is known now."""
        if self._asks < len(self._recorded):
            self._recorded = self._recorded[: self._asks]
            self._ledger.forget_asks(self.name, self._asks)

    def _reject(self, why: str) -> None:
        if not self._force:
            raise LedgerError(
                f"the run cannot be continued: branch {self.name}: {why}",
                remedy="start a new run, or go on from here all the same with --force",
            )
        self.depart()

    def compute(self, count: int) -> InBackground[Answer]:
        """Start computing the answer to the next ask. ``accept`` its result before the next call."""
        return InBackground(lambda: self._compute(count))

    def _compute(self, count: int) -> Answer:
        if not self._study.parameters:
            # A single candidate: there is nothing to optimise.
            only = tuple(Suggestion(self._suggested + i, {}) for i in range(count))
            return Answer(self._asks, only, recorded=False)
        if self._optimizer is None:
            self._optimizer = self._factory(self._study)
            if self._past:
                self._optimizer.restore(self._past)
        return Answer(self._asks, self._optimizer.ask(count), recorded=False)

    def accept(self, answer: Answer) -> None:
        """Take note of an answer that will be acted upon. One without suggestions is not recorded."""
        self._asks += bool(answer.suggestions)
        self._suggested += len(answer.suggestions)

    def tell(self, observations: Sequence[Observation]) -> None:
        if self._optimizer is None:
            self._past.append(Told(tuple(observations)))
        else:
            self._optimizer.tell(observations)
