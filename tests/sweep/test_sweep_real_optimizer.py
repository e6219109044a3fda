from __future__ import annotations

from pathlib import Path

import pytest
from sweep_fakes import FakeBranch, FakeEvaluator, Setup

from spica.ledger import Ledger
from spica.optimize import make_optimizer
from spica.sweep import StopFlag
from spica.sweep.events import SweepEvent, TrialFinished


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
