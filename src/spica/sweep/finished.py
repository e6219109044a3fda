"""A run that had come to its end: resumed, it has nothing to measure, and needs no workers for that."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path

from spica.branches import BranchPlan
from spica.branches.space import space_json
from spica.errors import LedgerError
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.reasons import is_lost
from spica.optimize import make_optimizer
from spica.record import Ledger
from spica.record.results import SweepResult
from spica.record.runfolder import SPACE_FILE
from spica.record.sidefiles import read_json
from spica.sweep import SweepInputs, run_sweep
from spica.sweep.events import PhaseChanged, SweepObserver
from spica.trial import TrialResult


def has_ended(ledger: Ledger) -> bool:
    """Whether the last process that worked on the run came to the end of its search, with no trial lost."""
    kinds = [kind for kind, _, _ in ledger.events() if kind != "resumed"]
    return kinds[-1:] == ["finished"] and not any(is_lost(trial.result) for trial in ledger.trials())


def same_space(folder: Path, plan: BranchPlan) -> bool:
    """Whether ``plan`` is what the run searched: not so when its preflight had found that something does not
    work, or when what can run has changed since."""
    return bool(read_json(folder / SPACE_FILE) == json.loads(json.dumps(space_json(plan))))


def result_again(
    inputs: SweepInputs, ledger: Ledger, observer: SweepObserver, *, began: float
) -> SweepResult:
    """The result of an ended run from its record alone; the observer is told that it was complete.

    Raises LedgerError when a measurement turns out to be missing.
    """
    result = run_sweep(
        inputs, evaluator=_Nobody(ledger.folder), optimizer_factory=make_optimizer, ledger=ledger, began=began
    )
    observer.on_event(PhaseChanged("done", _told(inputs, result, ledger.folder)))
    return result


def _told(inputs: SweepInputs, result: SweepResult, folder: Path) -> str:
    found = len(result.candidates)
    told = f"this run is complete: {found} candidate{'s' * (found != 1)}; nothing is left to measure"
    ends = {branch.name: branch for branch in result.branches}
    if any(branch.parameters and not ends[branch.mode].early for branch in inputs.branches):
        rounds = inputs.options.max_rounds
        more = f"spica sweep --resume {folder} --force --set sweep.max_rounds={2 * rounds}"
        told += f" (for more than {rounds} round{'s' * (rounds != 1)} of each branch: {more})"
    return told


class _Nobody:
    """An evaluator for a run that needs none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def submit(self, plan: ReplayPlan) -> Future[TrialResult]:
        raise LedgerError(
            f"{self._folder}: the record says that the run has ended, but lacks a measurement",
            remedy="start a new run",
        )

    def close(self, *, kill: bool = False) -> None:
        return
