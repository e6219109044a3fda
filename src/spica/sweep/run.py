"""The one way into a sweep."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from spica.evaluate.protocol import Evaluator
from spica.record import Ledger
from spica.record.results import Candidate, Stop, SweepResult
from spica.sweep import summary
from spica.sweep.confirm import MOST_ROUNDS, confirm
from spica.sweep.events import PhaseChanged, Silent, SweepObserver, Warned
from spica.sweep.inputs import OptimizerFactory, SweepInputs
from spica.sweep.interrupts import StopFlag
from spica.sweep.loop import Search, Stopped, make_states
from spica.sweep.measure import Finished, MeasurementId, Measurer
from spica.sweep.progress import Progress
from spica.sweep.rounds import BranchState, Entry
from spica.trial import Metrics

_STOPPING: Final = {
    "interrupted": "stopping: replays in flight get {:g} s; once more ends everything at once",
    "max_minutes": "the time is up: replays in flight get {:g} s",
}


def run_sweep(
    inputs: SweepInputs,
    *,
    evaluator: Evaluator,
    optimizer_factory: OptimizerFactory,
    ledger: Ledger,
    observer: SweepObserver | None = None,
    stop: StopFlag | None = None,
    began: float | None = None,
) -> SweepResult:
    """Search every branch, confirm the leaders, and return what was found.

    A ledger with a past is continued: nothing in it is measured or suggested again, and the result is that
    of the uninterrupted run. A sweep stopped by ``stop`` or by its time budget returns what it has so far
    (``SweepResult.stop`` says so) after ending the evaluator's workers; otherwise closing the evaluator is
    the caller's affair. ``began`` is when preparing it began (``time.monotonic``), for the wall time.

    Raises StackError (disk full, evaluator broken) and LedgerError (record damaged, or it does not fit the
    inputs); the run can be resumed afterwards.
    """
    sweep = _Sweep(
        inputs, evaluator, optimizer_factory, ledger, observer or Silent(), stop or StopFlag(), began
    )
    return sweep.run()


class _Sweep:
    def __init__(
        self,
        inputs: SweepInputs,
        evaluator: Evaluator,
        factory: OptimizerFactory,
        ledger: Ledger,
        observer: SweepObserver,
        stop: StopFlag,
        began: float | None,
    ) -> None:
        self._inputs = inputs
        self._ledger = ledger
        self._states = make_states(inputs, factory, ledger, ledger.asks())
        self._measurer = Measurer(evaluator, ledger, inputs.scoring, ledger.trials())
        self._progress = Progress(
            observer,
            inputs.scoring,
            evaluating=lambda: self._measurer.seconds,
            most=self._most,
            began=began,
        )
        self._searched: int | None = None
        minutes = inputs.options.max_minutes
        deadline = math.inf if minutes is None else time.monotonic() + 60.0 * minutes
        self._search = Search(
            inputs,
            self._states,
            ledger,
            self._measurer,
            self._progress,
            stop,
            deadline,
            frozenset(ledger.tells()),
        )

    def run(self) -> SweepResult:
        self._ledger.record_event("started", f"process {os.getpid()}")
        why: Stop = ""
        exact: tuple[Candidate, ...] = ()
        try:
            self._phase("searching")
            self._search.run()
            found = self._found()
            self._searched = len(found)
            if self._inputs.options.confirm.top:
                self._phase("confirming")
                found, exact = self._confirm(found)
        except Stopped as stopped:
            why = stopped.why
            self._progress.emit(Warned(_STOPPING[why].format(self._inputs.options.grace_seconds)))
            for finished in self._measurer.drain(self._inputs.options.grace_seconds):
                self._progress.measured(finished)
            found = self._found()
        self._ledger.record_event(why or "finished")
        self._phase("done")
        timings = self._progress.timings()
        made = summary.result(self._inputs, self._search, found, exact=exact, stop=why, timings=timings)
        return replace(made, folder=self._ledger.folder)

    def _phase(self, phase: Literal["searching", "confirming", "done"]) -> None:
        self._progress.emit(PhaseChanged(phase))

    def _found(self) -> tuple[Candidate, ...]:
        return summary.candidates(self._states, self._measurer, self._inputs.scoring)

    def _most(self) -> int:
        """The most measurements that can succeed: the search's, and what confirming may add."""
        options = self._inputs.options
        again = options.confirm.repeats * options.confirm.top * MOST_ROUNDS
        if self._searched is not None:
            return self._searched + again
        return again + sum(_most(state, options.candidates_per_round) for state in self._states)

    def _confirm(self, found: tuple[Candidate, ...]) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
        options = self._inputs.options.confirm
        return confirm(found, self._inputs.scoring, top=options.top, measure=self._repeat)

    def _repeat(self, due: Sequence[Candidate]) -> list[list[Metrics]]:
        """Fresh measurements of each candidate; those that failed are left out."""
        where = {entry.key: (state, entry) for state in self._states for entry in state.first.values()}
        repeats = range(1, self._inputs.options.confirm.repeats + 1)
        for repeat in repeats:
            for candidate in due:
                self._request(*where[candidate.key], repeat)
        ids = [[MeasurementId(c.key, n) for n in repeats] for c in due]
        with self._progress.waiting():
            while any(self._measurer.result(id) is None for row in ids for id in row):
                self._search.pump()
        results = [[self._measurer.result(id) for id in row] for row in ids]
        return [[r.metrics for r in row if r is not None and r.metrics is not None] for row in results]

    def _request(self, state: BranchState, entry: Entry, repeat: int) -> None:
        id = MeasurementId(entry.key, repeat)
        self._progress.expect(id, state, entry)
        known = self._measurer.request(id, self._inputs.plan(state.branch, entry.decoded.sample))
        if known is not None:
            self._progress.measured(Finished(id, known))


def _most(state: BranchState, candidates_per_round: int) -> int:
    """The most candidates a branch can have: a round that closes short of what it wanted is its last."""
    wanted = candidates_per_round if state.branch.parameters else 1
    if state.stopped:
        return len(state.points) + wanted * (state.opened - state.closed)
    return wanted * state.max_rounds
