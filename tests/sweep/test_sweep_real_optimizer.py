from __future__ import annotations

from pathlib import Path

import pytest
from sweep_fakes import FakeBranch, FakeEvaluator, Setup

from spica.optimize import DiscreteParameter, make_optimizer
from spica.record import Ledger
from spica.sweep import StopFlag
from spica.sweep.events import BranchStopped, SweepEvent, TrialFinished


@pytest.mark.real
def test_a_resumed_sweep_continues_the_gaussian_process_where_it_was(tmp_path: Path) -> None:
    def setup(name: str) -> Setup:
        made = Setup(tmp_path / name, (FakeBranch("agg"),), factory=make_optimizer)
        return made.with_options(max_rounds=4, candidates_per_round=4)

    class StopAt:
        """Stops when the model has been in use for a round."""

        def __init__(self, stop: StopFlag) -> None:
            self.stop = stop

        def on_event(self, event: SweepEvent) -> None:
            if isinstance(event, TrialFinished) and event.done == 13:
                self.stop.request()

    whole = setup("whole").run(FakeEvaluator(1, delay=0.0))
    stop = StopFlag()
    cut = setup("cut").run(FakeEvaluator(3, delay=0.05), observer=StopAt(stop), stop=stop)
    assert cut.stop == "interrupted"
    evaluator = FakeEvaluator(2)
    assert setup("cut").run(evaluator, ledger=Ledger.resume(tmp_path / "cut")) == whole
    assert len(evaluator.measured) + len(cut.candidates) == len(whole.candidates) == 16


@pytest.mark.real
def test_a_branch_ends_when_all_of_its_candidates_have_been_suggested(tmp_path: Path) -> None:
    def setup(name: str) -> Setup:
        few = FakeBranch("agg", parameters=[DiscreteParameter("seqs", (64, 128, 256), 64)])
        many = FakeBranch("disagg")
        made = Setup(tmp_path / name, (few, many), factory=make_optimizer)
        return made.with_options(max_rounds=3, candidates_per_round=2)

    whole = setup("whole").run()
    agg, disagg = whole.branches
    assert agg.stopped == "all of its 3 candidates have been suggested"
    assert agg.early
    # Two of the first round, the third of the second; nothing was suggested twice.
    assert (agg.suggestions, agg.new_trials) == (3, 3)
    assert disagg.stopped == "all rounds done"

    # Cut after the branch had come to its end, the run goes on to the same result.
    class StopAt:
        def __init__(self, stop: StopFlag) -> None:
            self.stop = stop

        def on_event(self, event: SweepEvent) -> None:
            if isinstance(event, BranchStopped):
                self.stop.request()

    stop = StopFlag()
    assert setup("cut").run(observer=StopAt(stop), stop=stop).stop == "interrupted"
    assert setup("cut").run(ledger=Ledger.resume(tmp_path / "cut")) == whole
