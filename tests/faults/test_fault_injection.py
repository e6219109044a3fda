"""Real sweeps, spoiled at random instants: what is recorded stays true, and the answer is the same."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from fault_sweep import (
    CONFIG,
    PATIENCE,
    Sweep,
    Witness,
    answer,
    fill,
    has_begun,
    kill,
    rows,
    small_disk,
    trial_count,
)

pytestmark = pytest.mark.real


@dataclass
class Scene:
    """One run folder that is started, spoiled, and continued."""

    config: Path
    run: Path
    witness: Witness

    @classmethod
    def make(cls, tmp: Path, run: Path, modes: str, rounds: int, per_round: int) -> Scene:
        config = tmp / "sweep.yaml"
        config.write_text(CONFIG.format(modes=modes, rounds=rounds, per_round=per_round))
        return cls(config, run, Witness(run))

    def start(self) -> Sweep:
        if has_begun(self.run):
            return Sweep(("--resume", str(self.run)))
        return Sweep((str(self.config), "--out", str(self.run)))

    def finish(self) -> Sweep:
        sweep = self.start()
        assert sweep.wait() == 0, sweep.err
        self.after(sweep)
        return sweep

    def until(self, sweep: Sweep, trials: int) -> bool:
        """Wait for so many trials more than there were; False when the sweep ends before."""
        goal, deadline = len(self.witness.seen) + trials, time.monotonic() + PATIENCE
        while sweep.alive() and time.monotonic() < deadline:
            sweep.workers()
            if trial_count(self.run) >= goal and (trials == 0 or "searching" in sweep.err):
                return True
            time.sleep(0.02)
        return False

    def after(self, sweep: Sweep) -> None:
        assert sweep.orphans() == [], "no worker outlives the sweep"
        if has_begun(self.run):
            self.witness.check()


def kill_main(scene: Scene, sweep: Sweep) -> None:
    sweep.signal(signal.SIGKILL)
    assert sweep.wait() == -signal.SIGKILL
    scene.after(sweep)


def interrupt(scene: Scene, sweep: Sweep) -> None:
    sweep.signal(signal.SIGINT)
    assert sweep.wait() == 130, sweep.err
    assert f"spica sweep --resume {scene.run}" in sweep.err
    shown = json.loads(sweep.out)
    assert shown["stop"] == "interrupted"
    scene.after(sweep)
    assert len(shown["candidates"]) == sum(row[0] == "feasible" for row in scene.witness.seen.values())
    assert json.loads((scene.run / "candidates.json").read_text())["candidates"] == shown["candidates"]


def limit_files(scene: Scene, sweep: Sweep) -> None:
    """No file may grow any more: to SQLite, and to the user, the same as a full disk."""
    resource.prlimit(sweep.process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
    _check_full(scene, sweep)


def fill_disk(scene: Scene, sweep: Sweep) -> None:
    filler = fill(scene.run.parent)
    try:
        _check_full(scene, sweep)
    finally:
        filler.unlink()


def _check_full(scene: Scene, sweep: Sweep) -> None:
    assert sweep.wait() == 3, sweep.err
    assert "free some space" in sweep.err
    assert f"spica sweep --resume {scene.run}" in sweep.err
    assert "Traceback" not in sweep.err
    scene.after(sweep)


Fault = Callable[[Scene, Sweep], None]


def test_killed_interrupted_and_out_of_space_a_sweep_ends_as_if_undisturbed(tmp_path: Path) -> None:
    whole = Scene.make(tmp_path, tmp_path / "whole", "[agg]", 2, 4)
    whole.finish()
    scene = Scene.make(tmp_path, tmp_path / "run", "[agg]", 2, 4)
    faults: list[tuple[int, Fault]] = [(1, kill_main), (1, interrupt), (1, limit_files)]
    for trials, fault in faults:
        sweep = scene.start()
        assert scene.until(sweep, trials), sweep.err
        fault(scene, sweep)
    scene.finish()
    assert len(scene.witness.seen) == len(whole.witness.seen) == 8
    assert answer(scene.run) == answer(whole.run)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_sweep_of_sixty_trials_survives_twelve_random_faults(tmp_path: Path) -> None:
    """None of them costs a result, so the answer is that of the run left alone."""
    dice = random.Random(20)
    whole = Scene.make(tmp_path, tmp_path / "whole", "[agg, disagg]", 2, 15)
    whole.finish()
    assert len(whole.witness.seen) == 60
    with small_disk(tmp_path / "disk", megabytes=16) as mounted:
        scene = Scene.make(tmp_path, tmp_path / "disk" / "run", "[agg, disagg]", 2, 15)
        kinds: tuple[Fault, ...] = (*[kill_main] * 7, *[interrupt] * 2, limit_files)
        faults = list(kinds)
        faults += [fill_disk if mounted else limit_files] * 2
        dice.shuffle(faults)
        done = [spoil(scene, fault, dice, len(faults) - n) for n, fault in enumerate(faults)]
        scene.finish()
        assert answer(scene.run) == answer(whole.run)
        assert len(scene.witness.seen) == 60
    print(f"\nfaults, and the trials recorded when they struck: {done}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_sweep_of_sixty_trials_loses_at_most_a_trial_per_killed_worker(tmp_path: Path) -> None:
    scene = Scene.make(tmp_path, tmp_path / "workers", "[agg, disagg]", 2, 15)
    lost = kill_workers(scene, random.Random(8), 8)
    feasible = sum(row[0] == "feasible" for row in scene.witness.seen.values())
    assert feasible == 60, "a lost candidate is replaced by another"
    print(f"\n8 workers killed, {lost} trials lost, {feasible} candidates measured")


def spoil(scene: Scene, fault: Fault, dice: random.Random, left: int) -> tuple[str, int]:
    """Start or continue the sweep and let ``fault`` strike up to 5 trials later (a kill: also before any), so
    that enough trials remain for the faults that are ``left``."""
    sweep = scene.start()
    first = 0 if fault is kill_main else 1
    most = (60 - len(scene.witness.seen)) // left - 2
    assert scene.until(sweep, dice.randint(first, max(1, min(5, most)))), sweep.err
    if fault is kill_main:
        time.sleep(dice.uniform(0.0, 0.5))
    before = trial_count(scene.run)
    fault(scene, sweep)
    return fault.__name__, before


def kill_workers(scene: Scene, dice: random.Random, count: int) -> int:
    """Kill workers of one sweep while it searches; how many trials that has cost."""
    sweep, struck = scene.start(), 0
    assert scene.until(sweep, 1), sweep.err
    while struck < count and sweep.alive():
        time.sleep(dice.uniform(0.0, 1.5))
        if found := [p for p in sweep.workers() if _is_worker(p)]:
            kill(dice.choice(found))
            struck += 1
    assert sweep.wait() == 0, sweep.err
    scene.after(sweep)
    assert struck == count, "the sweep was over before all workers were killed"
    lost = rows(scene.run, "SELECT reason FROM trials WHERE outcome = 'failed'")
    assert len(lost) <= count
    assert all(reason.startswith("worker died (signal 9, SIGKILL") for (reason,) in lost)
    return len(lost)


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("spica.evaluate.worker" in word for word in process.cmdline())
    return False
