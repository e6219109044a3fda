from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sweep_fakes import (
    IDENTITY,
    THROUGHPUT,
    CrashError,
    CrashingLedger,
    CuriousOptimizer,
    FakeBranch,
    FakeDecoded,
    FakeEvaluator,
    Setup,
    fine,
    wait_until,
)

from spica.deployment.sample import Sample
from spica.deployment.shapes import Mode
from spica.errors import LedgerError, SweepInterrupted
from spica.goals.score import Scoring
from spica.optimize.protocol import Study, Values
from spica.record import Ledger
from spica.record.results import SweepResult
from spica.sweep import ConfirmOptions, StopFlag, raise_if_interrupted, stop_on_interrupt
from spica.sweep.events import PhaseChanged, SweepEvent, TrialFinished
from spica.sweep.finished import has_ended
from spica.trial import Outcome, TrialResult

HERE = Path(__file__).parent
PARETO = Scoring("pareto", ("throughput", "throughput_per_user"))


class NoisyBranch(FakeBranch):
    """Only the KV router: every leader has to be confirmed."""

    def __init__(self, mode: Mode) -> None:
        super().__init__(mode, FakeBranch().parameters[:3])

    def decode(self, values: Values) -> FakeDecoded:
        plain = super().decode(values)
        return replace(plain, sample=replace(plain.sample, router_mode="kv_router"))


def setup(folder: Path, scoring: Scoring = THROUGHPUT) -> Setup:
    made = Setup(folder, (NoisyBranch("agg"), NoisyBranch("disagg")), scoring)
    return made.with_options(max_rounds=3, confirm=ConfirmOptions(top=2, repeats=2))


def crash_at(folder: Path, made: Setup, fuse: int, *, after: bool, seed: int) -> bool:
    """Run until the ``fuse``-th commit from here, then die there. True when it ended before that."""
    if (folder / "run.sqlite").exists():
        ledger = CrashingLedger.resume(folder)
    else:
        ledger = CrashingLedger.create(folder, IDENTITY)
    done = {(t.key, t.repeat) for t in ledger.trials()}
    ledger.fuse, ledger.after = fuse, after
    evaluator = RepeatAware(done, jobs=3, delay=0.004, seed=seed)
    try:
        replace(made, folder=folder).run(evaluator, ledger=ledger)
    except CrashError:
        return False
    return True


class RepeatAware(FakeEvaluator):
    """Continues each key's repeats where the record left them, and refuses to measure anything twice.

    Of a key only the search's measurement is outstanding until it is recorded; repeats of a confirmation are
    asked for in their order, and lost ones again.
    """

    def __init__(self, done: set[tuple[str, int]], *, jobs: int, delay: float, seed: int) -> None:
        super().__init__(jobs, self.answer, delay, seed)
        self.done = done

    def answer(self, sample: Sample, nth: int) -> TrialResult:
        outstanding = [n for n in range(10) if (sample.key(), n) not in self.done]
        return fine(sample, outstanding[nth])


@pytest.fixture(scope="module", params=["throughput", "pareto"])
def uninterrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    scoring = PARETO if request.param == "pareto" else Scoring("throughput")
    folder = tmp_path_factory.mktemp("whole")
    return setup(folder, scoring).run(RepeatAware(set(), jobs=2, delay=0.0, seed=0))


@pytest.mark.parametrize("seed", range(2))
def test_crashing_again_and_again_gives_the_same_answer(
    tmp_path: Path, uninterrupted: SweepResult, seed: int
) -> None:
    made = setup(tmp_path, uninterrupted.scoring)
    dice = random.Random(seed)
    for attempt in range(60):
        if crash_at(tmp_path, made, dice.randint(3, 20), after=dice.random() < 0.5, seed=attempt):
            break
    else:
        raise AssertionError("60 crashes and no end")
    with Ledger.read(tmp_path) as ledger:
        trials = [(t.key, t.repeat) for t in ledger.trials()]
        assert len(trials) == len(set(trials))
        crashes = [e for e in ledger.events() if e[0] == "started"]
    assert len(crashes) > 3
    evaluator = FakeEvaluator()
    with Ledger.resume(tmp_path) as ledger:
        again = made.run(evaluator, ledger=ledger)
    assert again == uninterrupted
    assert any(c.spread for c in again.candidates)
    assert evaluator.measured == []


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_each_single_commit(tmp_path: Path, after: bool) -> None:
    def small(folder: Path) -> Setup:
        made = Setup(folder, (FakeBranch("agg"),))
        return made.with_options(max_rounds=2, candidates_per_round=2)

    expected = small(tmp_path / "whole").run()
    fuse = 0
    while True:
        fuse += 1
        folder = tmp_path / str(fuse)
        if crash_at(folder, small(folder), fuse, after=after, seed=fuse):
            break
        with Ledger.read(folder) as ledger:
            finished = {t.key for t in ledger.trials()}
        evaluator = FakeEvaluator()
        assert small(folder).run(evaluator, ledger=Ledger.resume(folder)) == expected
        assert not finished & set(evaluator.measured)
    assert fuse > 8


def test_a_restored_optimizer_is_asked_only_for_what_is_new(tmp_path: Path) -> None:
    asked: list[int] = []

    class Counting(CuriousOptimizer):
        def ask(self, count: int):  # type: ignore[no-untyped-def]
            asked.append(count)
            return super().ask(count)

    made = Setup(tmp_path, factory=Counting)
    stop = StopFlag()
    seen: list[SweepEvent] = []

    class StopAfter:
        def on_event(self, event: SweepEvent) -> None:
            seen.append(event)
            if sum(isinstance(e, TrialFinished) for e in seen) == 12:
                stop.request()

    first = made.run(observer=StopAfter(), stop=stop)
    assert first.stop == "interrupted"
    before = len(asked)
    second = made.run(ledger=Ledger.resume(tmp_path))
    whole = Setup(tmp_path / "whole", factory=Counting)
    resumed = len(asked)
    assert whole.run() == second
    assert len(asked) - resumed == resumed  # before + after the stop = all asks of an uninterrupted run
    assert before


def test_an_interrupt_keeps_what_was_measured_and_kills_the_workers(tmp_path: Path) -> None:
    stop = StopFlag()
    evaluator = FakeEvaluator(jobs=2, delay=0.05)

    class StopEarly:
        def on_event(self, event: SweepEvent) -> None:
            if isinstance(event, TrialFinished) and event.done == 5:
                stop.request()

    result = Setup(tmp_path).run(evaluator, observer=StopEarly(), stop=stop)
    assert result.stop == "interrupted"
    assert evaluator.closed
    with Ledger.read(tmp_path) as ledger:
        assert {t.key for t in ledger.trials()} == {c.key for c in result.candidates}
        assert ledger.events()[-1][0] == "interrupted"
    assert len(result.candidates) >= 5
    with pytest.raises(SweepInterrupted, match="interrupted") as told:
        raise_if_interrupted(result, str(tmp_path))
    assert f"--resume {tmp_path}" in str(told.value)
    assert told.value.exit_code == 130


def test_late_replays_are_abandoned_and_measured_again_after_a_resume(tmp_path: Path) -> None:
    stop = StopFlag()
    stop.request()
    evaluator = FakeEvaluator(jobs=2, delay=600.0)
    made = Setup(tmp_path).with_options(grace_seconds=0.05)
    result = made.run(evaluator, stop=stop)
    assert result.candidates == ()
    expected = Setup(tmp_path / "whole").with_options(grace_seconds=0.05).run()
    assert made.run(ledger=Ledger.resume(tmp_path)) == expected


def test_the_time_budget_ends_the_sweep_and_it_can_go_on(tmp_path: Path) -> None:
    made = Setup(tmp_path).with_options(grace_seconds=0.05)
    late = made.with_options(max_minutes=0.3 / 60)
    result = late.run(FakeEvaluator(jobs=1, delay=0.3))
    assert result.stop == "max_minutes"
    assert len(result.candidates) < 32
    raise_if_interrupted(result, "x")
    assert (
        made.run(ledger=Ledger.resume(tmp_path))
        == Setup(tmp_path / "whole").with_options(grace_seconds=0.05).run()
    )


def test_a_record_that_does_not_fit_is_refused_unless_forced(tmp_path: Path) -> None:
    made = Setup(tmp_path)
    whole = made.run()
    other = made.with_options(candidates_per_round=5)
    with pytest.raises(LedgerError, match="cut differently"):
        other.run(ledger=Ledger.resume(tmp_path))
    evaluator = FakeEvaluator()
    forced = replace(other, force=True).run(evaluator, ledger=Ledger.resume(tmp_path))
    assert {c.key for c in forced.candidates} != {c.key for c in whole.candidates}
    assert not {c.key for c in whole.candidates} & set(evaluator.measured)
    # The new record is whole in itself.
    assert replace(other, force=True).run(FakeEvaluator(), ledger=Ledger.resume(tmp_path)) == forced
    assert other.run(ledger=Ledger.resume(tmp_path)) == forced


def test_an_evaluator_that_breaks_is_reported(tmp_path: Path) -> None:
    from spica.errors import StackError

    def broken(sample: Sample, repeat: int) -> TrialResult:
        raise OSError("pipe is gone")

    with pytest.raises(StackError, match="pipe is gone"):
        Setup(tmp_path).run(FakeEvaluator(model=broken))


def test_an_optimizer_that_raises_is_not_swallowed(tmp_path: Path) -> None:
    def refuse(study: Study) -> CuriousOptimizer:
        raise ImportError("no vizier")

    with pytest.raises(ImportError, match="no vizier"):
        Setup(tmp_path, factory=refuse).run()


_CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from sweep_fakes import IDENTITY, FakeEvaluator, Setup
from spica.record import Ledger, LEDGER_FILE
from spica.sweep import StopFlag, stop_on_interrupt
from spica.sweep.events import TrialFinished

class Say:
    def on_event(self, event):
        if isinstance(event, TrialFinished):
            print(event.trial, flush=True)

folder = Path(sys.argv[1])
ledger = Ledger.resume(folder) if (folder / LEDGER_FILE).exists() else Ledger.create(folder, IDENTITY)
evaluator = FakeEvaluator(jobs=2, delay=float(sys.argv[2]))
stop = StopFlag()
with stop_on_interrupt(stop, kill_workers=lambda: evaluator.close(kill=True), farewell="go on with it"):
    print("ready", flush=True)
    result = Setup(folder).run(evaluator, ledger=ledger, observer=Say(), stop=stop)
print("end", result.stop, len(result.candidates), flush=True)
"""


def child(folder: Path, delay: float) -> subprocess.Popen[str]:
    code = _CHILD.format(here=str(HERE))
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(delay)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_kill_9_at_random_points_and_reopen(tmp_path: Path) -> None:
    dice = random.Random(5)
    folder = tmp_path / "run"
    for _ in range(3):
        with child(folder, 0.06) as process:
            assert process.stdout is not None
            known = 0
            if (folder / "run.sqlite").exists():
                with Ledger.read(folder) as ledger:
                    known = len(ledger.trials())
            for line in process.stdout:
                if line.startswith(("agg", "disagg")):
                    known -= 1
                if known <= -3:
                    break
            time.sleep(dice.random() * 0.1)
            process.kill()
    evaluator = FakeEvaluator()
    with Ledger.read(folder) as ledger:
        finished = {t.key for t in ledger.trials()}
    assert len(finished) >= 6
    result = Setup(folder).run(evaluator, ledger=Ledger.resume(folder))
    assert not finished & set(evaluator.measured)
    assert result == Setup(tmp_path / "whole").run()


def test_the_first_sigint_stops_in_order(tmp_path: Path) -> None:
    with child(tmp_path / "run", 0.2) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        assert process.wait(20) == 0
    assert "end interrupted" in out
    assert Setup(tmp_path / "run").run(ledger=Ledger.resume(tmp_path / "run")) == Setup(tmp_path / "w").run()


def asked(folder: Path) -> int:
    with Ledger.read(folder) as ledger:
        return sum(len(a.suggestions) for a in ledger.asks())


def test_the_second_sigint_stops_at_once(tmp_path: Path) -> None:
    with child(tmp_path / "run", 3600.0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_until(lambda: asked(tmp_path / "run") >= 8)  # a round of each branch is in flight
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == "go on with it\n"
    with Ledger.resume(tmp_path / "run") as ledger:
        assert ledger.trials() == ()


def test_signals_are_left_alone_outside_the_main_thread() -> None:
    import threading

    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def inside() -> None:
        with stop_on_interrupt(StopFlag(), kill_workers=lambda: None):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [before]


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = StopFlag()
    with stop_on_interrupt(stop, kill_workers=lambda: None):
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
    assert signal.getsignal(signal.SIGINT) is before


def test_confirming_phase_is_announced(tmp_path: Path) -> None:
    phases: list[str] = []

    class Phases:
        def on_event(self, event: SweepEvent) -> None:
            if isinstance(event, PhaseChanged):
                phases.append(event.phase)

    setup(tmp_path).run(observer=Phases())
    assert phases == ["searching", "confirming", "done"]


DEATH = TrialResult(Outcome.FAILED, "worker died (signal 9, SIGKILL, perhaps out of memory)")


@pytest.mark.parametrize("seed", range(10))
def test_what_is_lost_with_its_worker_does_not_change_the_answer_after_a_resume(
    tmp_path: Path, uninterrupted: SweepResult, seed: int
) -> None:
    """Some measurements (of the search or of the confirmation) die; the run ends, or is stopped on its way.
    Resumed, it tries them again, and goes on as if nothing had been lost."""
    made = setup(tmp_path, uninterrupted.scoring)
    dice = random.Random(seed)

    first: list[str] = []

    def deadly(sample: Sample, repeat: int) -> TrialResult:
        first.append(sample.key())
        return DEATH if len(first) == 1 or dice.random() < 0.2 else fine(sample, repeat)

    stop = StopFlag()
    limit = dice.choice([6, 12, 10**6])

    class StopLater:
        def on_event(self, event: SweepEvent) -> None:
            if isinstance(event, TrialFinished) and event.done >= limit:
                stop.request()

    hurt = made.run(FakeEvaluator(3, deadly, 0.004, seed), observer=StopLater(), stop=stop)
    with Ledger.read(tmp_path) as ledger:
        lost = {(t.key, t.repeat) for t in ledger.trials() if t.result.metrics is None}
        done = {(t.key, t.repeat) for t in ledger.trials()} - lost
        assert has_ended(ledger) == (not lost and not hurt.stop)
    assert lost
    again = made.run(RepeatAware(done, jobs=2, delay=0.002, seed=seed), ledger=Ledger.resume(tmp_path))
    assert again == uninterrupted
    with Ledger.read(tmp_path) as ledger:
        asked = {s.key for a in ledger.asks() for s in a.suggestions}
        assert not any(t.result == DEATH for t in ledger.trials() if t.key in asked and not t.repeat)
        told = [(t.branch, t.suggestion) for t in ledger.tells()]
        assert len(told) == len(set(told)) == sum(len(a.suggestions) for a in ledger.asks())


def test_what_dies_again_stays_lost_and_is_tried_at_each_resume(tmp_path: Path) -> None:
    made = Setup(tmp_path, (FakeBranch("agg"),)).with_options(max_rounds=2)
    victims = {made.run(FakeEvaluator()).candidates[0].key}

    def deadly(sample: Sample, repeat: int) -> TrialResult:
        return DEATH if sample.key() in victims else fine(sample, repeat)

    folder = tmp_path / "again"
    made = replace(made, folder=folder)
    first = made.run(FakeEvaluator(model=deadly))
    for _ in range(2):
        evaluator = FakeEvaluator(model=deadly)
        assert made.run(evaluator, ledger=Ledger.resume(folder)) == first
        assert set(evaluator.measured) == victims
