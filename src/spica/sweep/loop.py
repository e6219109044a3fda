"""The search: rounds of every branch, two of them open at a time.

The order of all asks and tells is a function of the results alone, never of when they arrive: a round is
opened (asked, decoded, submitted) while the one opened before it is still being evaluated, rounds are
closed in the order of opening, and results are told in the order of suggestion. So the number of workers
changes nothing, and a resumed run repeats the same steps with the ledger's answers.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from spica.goals.ranking import Point
from spica.optimize.protocol import Observation, Suggestion
from spica.record import AskRecord, Ledger, SuggestionRecord, TellRecord
from spica.record.records import to_json
from spica.sweep.budget import next_branch
from spica.sweep.events import RoundFinished
from spica.sweep.inputs import OptimizerFactory, SweepInputs
from spica.sweep.interrupts import StopFlag
from spica.sweep.measure import Finished, MeasurementId, Measurer
from spica.sweep.progress import Progress
from spica.sweep.rounds import BranchState, Entry, Kind, Round
from spica.sweep.study import Answer, BranchStudy
from spica.trial import Outcome, TrialResult

#: Rounds open at the same time: one being evaluated, one being asked for or queued behind it.
OPEN_ROUNDS: Final = 2
_POLL_SECONDS: Final = 0.1


class Stopped(Exception):
    """The sweep was asked to stop, or its time is up; never leaves the sweep."""

    def __init__(self, why: Literal["interrupted", "max_minutes"]) -> None:
        super().__init__(why)
        self.why: Final = why


@dataclass(frozen=True, slots=True)
class OpenRound:
    state: BranchState
    round: Round


@dataclass(frozen=True, slots=True)
class RoundMark:
    """How many replays and feasible points (in the order of telling) there were when a round was closed."""

    branch: str
    round: int
    replays: int
    points: int


@dataclass(slots=True)
class Search:
    """Runs the rounds of all branches. ``points`` are the feasible ones of all branches, as they were told;
    ``recorded`` the tells of an interrupted run, which need not be written again."""

    inputs: SweepInputs
    states: list[BranchState]
    ledger: Ledger
    measurer: Measurer
    progress: Progress
    stop: StopFlag
    deadline: float
    recorded: frozenset[TellRecord] = frozenset()
    marks: list[RoundMark] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    def run(self) -> None:
        """Until no branch may take another round. Raises Stopped; StackError or LedgerError from the
        ledger."""
        open_rounds: deque[OpenRound] = deque()
        while True:
            while len(open_rounds) < OPEN_ROUNDS and (state := self._next()) is not None:
                open_rounds.append(self._open(state))
            if not open_rounds:
                return
            self._close(open_rounds.popleft())

    def pump(self, timeout: float = _POLL_SECONDS) -> None:
        """Take what has finished; raise Stopped when that is due."""
        for finished in self.measurer.collect(timeout):
            self.progress.measured(finished)
        if self.stop.requested:
            raise Stopped("interrupted")
        if time.monotonic() > self.deadline:
            raise Stopped("max_minutes")

    def _next(self) -> BranchState | None:
        options = self.inputs.options
        index = next_branch(
            [s.standing() for s in self.states],
            self.inputs.scoring.maximize,
            candidates_per_round=options.candidates_per_round,
        )
        return None if index is None else self.states[index]

    # -- a round ------------------------------------------------------------------------------------------

    def _open(self, state: BranchState) -> OpenRound:
        wanted = self.inputs.options.candidates_per_round if state.branch.parameters else 1
        opened = Round(state.opened, wanted)
        state.opened += 1
        self._fill(state, opened)
        return OpenRound(state, opened)

    def _close(self, open_round: OpenRound) -> None:
        """Wait for the round's results, tell them, and replace those that did not succeed."""
        state, current = open_round.state, open_round.round
        while True:
            self._await(current)
            waiting, current.waiting = current.waiting, []
            self._tell(state, current, waiting)
            if state.hopeless(self.inputs.options.same_failure_limit) or not state.branch.parameters:
                break
            self._fill(state, current)
            if not current.waiting:
                break
        state.closed += 1
        # A round that was opened beside the one in which the branch came to its end has nothing to tell.
        if current.spent or not state.stopped:
            self._report(state, current)
        self._stop_if_due(state, current)

    def _stop_if_due(self, state: BranchState, current: Round) -> None:
        if state.stopped:
            return
        if state.hopeless(self.inputs.options.same_failure_limit):
            reason, count = state.failures.most_common(1)[0]
            state.stop(f"{count} times the same failure and nothing feasible: {reason}", early=True)
        elif not state.branch.parameters:
            state.stop("its only candidate is done", early=False)
        elif current.exhausted:
            every = len({entry.key for entry in state.entries})
            state.stop(f"all of its {every} candidates have been suggested", early=True)
        elif current.succeeded < current.wanted:
            found = f"{current.succeeded} of {current.wanted} new feasible candidates"
            state.stop(f"{current.spent} suggestions in round {current.number + 1} gave {found}", early=True)
        elif state.closed == state.max_rounds:
            state.stop("all rounds done", early=False)
        if state.stopped:
            self.progress.branch_stopped(state)

    def _report(self, state: BranchState, current: Round) -> None:
        number, progress = current.number + 1, self.progress
        timings = progress.timings()
        finished = RoundFinished(
            state.name, number, state.max_rounds, current.succeeded, current.spent, timings
        )
        progress.emit(finished)
        replays = sum(e.key in s.told for s in self.states for e in s.first.values())
        points = sum(len(s.points) for s in self.states)
        self.marks.append(RoundMark(state.name, number, replays, points))

    # -- asking -------------------------------------------------------------------------------------------

    def _fill(self, state: BranchState, current: Round) -> None:
        """Ask until as many new candidates are under way as are wanted, or the round's suggestions are spent.

        What needs no replay is told at once, so that the next ask knows of it.
        """
        while count := current.missing:
            answer = self._ask(state, current.number, count)
            if not answer.suggestions:
                current.exhausted = True
                break
            entries = [self._entry(state, s, current.number) for s in answer.suggestions]
            if not answer.recorded:
                self.ledger.record_ask(_ask_record(state.name, answer.index, current.number, entries))
            current.spent += len(entries)
            at_once = [e for e in entries if e.kind is Kind.INFEASIBLE or self._is_told(state, e)]
            self._tell(state, current, at_once)
            held = {e.suggestion.id for e in at_once}
            for entry in entries:
                if entry.suggestion.id not in held:
                    current.waiting.append(entry)
                    if entry.kind is Kind.NEW:
                        self._submit(state, entry)

    @staticmethod
    def _is_told(state: BranchState, entry: Entry) -> bool:
        return entry.kind is Kind.REPEATED and entry.key in state.told

    def _ask(self, state: BranchState, round_: int, count: int) -> Answer:
        self.pump(0.0)
        recorded = state.study.recall(count, round_, lambda s: self._objection(state, s))
        if recorded is not None:
            return recorded
        with self.progress.suggesting():
            call = state.study.compute(count)
            while not call.done(_POLL_SECONDS):
                self.pump(0.0)
        answer = call.result()
        state.study.accept(answer)
        return answer

    def _objection(self, state: BranchState, recorded: SuggestionRecord) -> str:
        try:
            key = state.branch.decode(recorded.values).key
        except (ValueError, KeyError) as error:
            return f"is not in the search space any more: {error}"
        if key != recorded.key and not self.inputs.force:
            return "stands for another candidate now"
        return ""

    def _entry(self, state: BranchState, suggestion: Suggestion, round_: int) -> Entry:
        decoded = state.branch.decode(suggestion.values)
        key = decoded.key
        kind = Kind.REPEATED if key in state.first else Kind.NEW
        if decoded.reason:
            kind = Kind.INFEASIBLE
        entry = Entry(suggestion, decoded, key, kind, round_)
        state.entries.append(entry)
        if kind is Kind.NEW:
            state.first[key] = entry
        return entry

    def _submit(self, state: BranchState, entry: Entry) -> None:
        plan = self.inputs.plan(state.branch, entry.decoded.sample)
        id = MeasurementId(entry.key)
        self.progress.expect(id, state, entry)
        known = self.measurer.request(id, plan)
        if known is not None:
            self.progress.measured(Finished(id, known))

    # -- telling ------------------------------------------------------------------------------------------

    def _await(self, current: Round) -> None:
        keys = {e.key for e in current.waiting if e.kind is not Kind.INFEASIBLE}
        with self.progress.waiting():
            while any(self.measurer.result(MeasurementId(k)) is None for k in keys):
                self.pump()

    def _tell(self, state: BranchState, current: Round, entries: list[Entry]) -> None:
        """Tell results in the order of suggestion."""
        if not entries:
            return
        observations = [self._observe(state, current, entry) for entry in entries]
        tells = [
            TellRecord(state.name, o.suggestion.id, o.labels, e.kind is Kind.REPEATED)
            for o, e in zip(observations, entries, strict=True)
        ]
        if any(e.kind is Kind.NEW and self.measurer.recovered(MeasurementId(e.key)) for e in entries):
            # It was told as failed before. From here on the search goes as if it had not been lost.
            for each in self.states:
                each.study.depart()
        since = state.study.recorded_suggestions
        if new := [t for t in tells if t not in self.recorded or t.suggestion >= since]:
            self.ledger.record_tells(new)
        state.study.tell(observations)

    def _observe(self, state: BranchState, current: Round, entry: Entry) -> Observation:
        result = self._result(entry)
        if entry.kind is not Kind.NEW:
            self.progress.known(state, entry, result)
        state.told[entry.key] = result
        labels = self.progress.labels(result)
        if entry.kind is Kind.NEW:
            state.count_failure(result)
            if result.metrics is not None:
                current.succeeded += 1
                point = self.inputs.scoring.values(result.metrics)
                state.points.append(point)
                self.points.append(point)
        return Observation(entry.suggestion, labels)

    def _result(self, entry: Entry) -> TrialResult:
        if entry.kind is Kind.INFEASIBLE:
            return TrialResult(Outcome.INFEASIBLE, entry.decoded.reason)
        result = self.measurer.result(MeasurementId(entry.key))
        assert result is not None, "told before it was measured"
        return result


def _ask_record(branch: str, index: int, round_: int, entries: list[Entry]) -> AskRecord:
    return AskRecord(
        branch,
        index,
        round_,
        tuple(
            SuggestionRecord(
                e.suggestion.id,
                dict(e.suggestion.values),
                e.key,
                to_json(e.decoded.sample.config()),
                to_json(e.decoded.projection),
                e.decoded.reason,
            )
            for e in entries
        ),
    )


def make_states(
    inputs: SweepInputs, factory: OptimizerFactory, ledger: Ledger, asks: tuple[AskRecord, ...]
) -> list[BranchState]:
    """One state per branch, each with its own part of the record."""
    states = []
    for branch in inputs.branches:
        recorded = [a for a in asks if a.branch == branch.mode]
        study = BranchStudy(branch.mode, inputs.study(branch), factory, ledger, recorded, force=inputs.force)
        rounds = inputs.options.max_rounds if branch.parameters else 1
        states.append(BranchState(branch, study, rounds))
    return states
