"""Workers that are late, too large, killed or orphaned."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest
from evaluation_samples import Make

from spica.evaluate.bounds import Limits, told_apart
from spica.evaluate.pool import LocalEvaluator, default_memory_limit
from spica.evaluate.process import WorkerProcess, describe_death
from spica.evaluate.reasons import is_lost, perhaps_memory
from spica.evaluate.replay import ReplayOptions
from spica.evaluate.worker import Task
from spica.traffic.replayed import SyntheticTraffic
from spica.trial import Outcome, TrialResult

pytestmark = pytest.mark.real

SMALL = SyntheticTraffic(isl=100, osl=4, num_requests=4, concurrency=4)
#: One request at a time, 200 million single-token steps: minutes of work.
ENDLESS = SyntheticTraffic(isl=100, osl=2000, num_requests=100_000, concurrency=1)


def _task(traffic: SyntheticTraffic) -> Task:
    return Task(Make(replicas=1).plan(traffic), ReplayOptions())


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _wait(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    process = WorkerProcess({"SPICA_TEST_MARK": "here"}, tmp_path_factory.mktemp("logs") / "worker.log")
    yield process
    process.stop()


def _pid(worker: WorkerProcess) -> int:
    worker.ensure_ready()
    assert worker.pid is not None
    return worker.pid


def test_a_late_worker_is_killed_and_replaced(worker: WorkerProcess) -> None:
    pid = _pid(worker)
    result = worker.run(_task(ENDLESS), Limits(max_seconds=1.0))
    assert result.outcome is Outcome.TIMED_OUT
    assert "exceed runtime" in result.reason
    assert _gone(pid)
    assert worker.run(_task(SMALL), Limits()).outcome is Outcome.FEASIBLE


def test_a_worker_over_its_memory_cap_is_killed(worker: WorkerProcess) -> None:
    pid = _pid(worker)
    large = SyntheticTraffic(isl=30_000, osl=50, num_requests=8000, concurrency=16)
    result = worker.run(_task(large), Limits(max_bytes=400 * 2**20))
    assert result.outcome is Outcome.FAILED
    assert is_lost(result)
    assert "memory cap" in result.reason
    assert re.search(r"more than the cap of 0\.39\d* GiB", result.reason)
    assert _gone(pid)


def test_a_killed_worker_costs_one_trial(worker: WorkerProcess) -> None:
    pid = _pid(worker)
    assassin = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
    assassin.start()
    result = worker.run(_task(ENDLESS), Limits())
    assassin.join()
    assert result.outcome is Outcome.FAILED
    assert result.reason.startswith("worker died (signal 9, SIGKILL")
    assert worker.run(_task(SMALL), Limits()).outcome is Outcome.FEASIBLE
    idle = _pid(worker)
    os.kill(idle, signal.SIGKILL)
    assert _wait(lambda: worker.pid is None)
    assert worker.run(_task(SMALL), Limits()).outcome is Outcome.FEASIBLE


def test_a_worker_that_dies_before_it_has_the_plan_costs_nothing(worker: WorkerProcess) -> None:
    """It is stopped, so that it cannot read the plan that is already in the pipe, and then killed."""
    first = _pid(worker)
    os.kill(first, signal.SIGSTOP)
    assassin = threading.Timer(0.5, os.kill, (first, signal.SIGKILL))
    assassin.start()
    result = worker.run(_task(SMALL), Limits())
    assassin.join()
    assert result.outcome is Outcome.FEASIBLE
    assert worker.pid not in (None, first)


def test_a_worker_ignores_ctrl_c_and_has_its_own_environment(worker: WorkerProcess) -> None:
    pid = _pid(worker)
    os.kill(pid, signal.SIGINT)
    assert worker.run(_task(SMALL), Limits()).outcome is Outcome.FEASIBLE
    assert worker.pid == pid
    assert os.getpgid(pid) != os.getpgid(0)
    environment = psutil.Process(pid).environ()
    assert environment["DYN_LOG"] == "error"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["SPICA_TEST_MARK"] == "here"
    assert "SPICA_TEST_MARK" not in os.environ


def test_the_ways_to_die() -> None:
    assert describe_death(-9) == "signal 9, SIGKILL, perhaps out of memory"
    assert describe_death(-6) == "signal 6, SIGABRT, perhaps out of memory"
    assert describe_death(-11) == "signal 11, SIGSEGV"
    assert describe_death(3) == "exit code 3"


def test_the_default_memory_cap_fits_the_machine() -> None:
    total = psutil.virtual_memory().total
    for jobs in (1, 2, 16):
        assert 2**30 <= default_memory_limit(jobs) <= max(2**30, min(4 * 2**30, total // jobs))


def test_close_with_kill_ends_everything_at_once() -> None:
    evaluator = LocalEvaluator(1, max_eval_seconds=None, memory_limit_bytes=None)
    running, queued = (evaluator.submit(Make(replicas=1).plan(ENDLESS)) for _ in range(2))
    assert _wait(lambda: len(evaluator.worker_pids()) == 1)
    (pid,) = evaluator.worker_pids()
    started = time.monotonic()
    evaluator.close(kill=True)
    assert time.monotonic() - started < 5
    assert _gone(pid)
    assert queued.cancelled()
    with pytest.raises(CancelledError):
        running.result(timeout=0)
    evaluator.close()


def test_a_result_says_which_worker_had_it() -> None:
    with LocalEvaluator(2) as evaluator:
        refused = evaluator.submit(Make().plan(SyntheticTraffic(10_000, 10, 10**9, concurrency=1))).result()
        futures = [evaluator.submit(Make(replicas=n % 2 + 1).plan(SMALL)) for n in range(8)]
        who = {(result.worker, result.pid) for result in (future.result() for future in futures)}
        pids = evaluator.worker_pids()
    assert who <= {(n, pid) for n in (0, 1) for pid in pids}
    assert len(who) == len({number for number, _ in who})
    assert (refused.worker, refused.pid) == (None, None)


#: A second or two of work.
LONG = SyntheticTraffic(isl=100, osl=1000, num_requests=300, concurrency=2)


def _kill_at_work(evaluator: LocalEvaluator, deaths: int) -> threading.Thread:
    """Kill the one worker while it has a trial, ``deaths`` times."""
    (worker,) = evaluator._workers

    def at_work(killed: set[int]) -> bool:
        return worker._ready and worker._taken and worker.pid is not None and worker.pid not in killed

    def work() -> None:
        killed: set[int] = set()
        while len(killed) < deaths and _wait(lambda: at_work(killed), 60.0):
            time.sleep(0.05)
            if at_work(killed) and (pid := worker.pid) is not None:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_trial_whose_worker_is_killed_is_tried_once_more(evaluator: LocalEvaluator, deaths: int) -> None:
    """Killed once it has its result all the same, that of an undisturbed worker; killed twice it is lost."""
    plan = Make(replicas=1).plan(LONG)
    undisturbed = evaluator.submit(plan)
    with LocalEvaluator(1, max_eval_seconds=None) as attacked:
        future = attacked.submit(plan)
        assassin = _kill_at_work(attacked, deaths)
        result = future.result()
        assassin.join()
    assert undisturbed.result().outcome is Outcome.FEASIBLE
    if deaths == 1:
        assert result == undisturbed.result()
    else:
        assert result.outcome is Outcome.FAILED
        assert is_lost(result)
        assert "SIGKILL" in result.reason
        assert "in a fresh worker and with no other replay running" in result.reason


def test_a_worker_that_has_grown_costs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process is said to be too large, as one is that has had many trials."""
    real = WorkerProcess._resident_bytes
    first: list[int | None] = []

    def grown(worker: WorkerProcess) -> int:
        first.append(worker.last_pid)
        return 10 * 2**30 if worker.last_pid == first[0] else real(worker)

    monkeypatch.setattr(WorkerProcess, "_resident_bytes", grown)
    with LocalEvaluator(1, memory_limit_bytes=2**30) as evaluator:
        result = evaluator.submit(Make(replicas=1).plan(LONG)).result()
    assert result.outcome is Outcome.FEASIBLE
    assert result.pid not in (None, first[0])
    with LocalEvaluator(1, memory_limit_bytes=220 * 2**20) as evaluator:
        too_large = SyntheticTraffic(isl=2000, osl=200, num_requests=1000, concurrency=16)
        monkeypatch.setattr(WorkerProcess, "_resident_bytes", lambda worker: 2**30)
        result = evaluator.submit(Make(replicas=1).plan(too_large)).result()
    assert result.outcome is Outcome.FAILED
    assert is_lost(result)
    assert result.reason.startswith("memory cap: the replay used 1.0")


@pytest.mark.parametrize("reason", ["memory cap: 2 GiB", f"worker died ({describe_death(-9)})"])
def test_after_a_lack_of_memory_the_second_try_is_alone(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """Four workers, every trial lost at first: no second try ever runs beside another replay."""
    running: list[str] = []
    beside: list[tuple[str, int]] = []
    lock = threading.Lock()
    tried: dict[int, int] = {}

    def run(worker: WorkerProcess, task: Task, limits: Limits) -> TrialResult:
        number = task.plan.traffic.num_requests
        with lock:
            tried[number] = tried.get(number, 0) + 1
            turn = "second" if tried[number] == 2 else "first"
            running.append(turn)
            beside.append((turn, len(running)))
            if "second" in running and len(running) > 1:
                beside.append(("second", len(running)))
        time.sleep(0.01)
        with lock:
            running.remove(turn)
        return TrialResult(Outcome.FAILED, reason if turn == "first" else "worker died (again)")

    monkeypatch.setattr(WorkerProcess, "run", run)
    monkeypatch.setattr(WorkerProcess, "ensure_ready", lambda self: None)
    with LocalEvaluator(4) as evaluator:
        plans = [Make().plan(SyntheticTraffic(10, 1, n, concurrency=1)) for n in range(1, 21)]
        results = [future.result() for future in [evaluator.submit(plan) for plan in plans]]
    assert perhaps_memory(reason)
    assert set(tried.values()) == {2}
    assert {count for turn, count in beside if turn == "second"} == {1}
    assert max(count for turn, count in beside if turn == "first") > 1
    assert {result.outcome for result in results} == {Outcome.FAILED}


@pytest.mark.parametrize(
    ("used", "cap", "shown"),
    [
        (200 * 2**20, 161_061_274, ("0.195 GiB", "0.150 GiB")),
        (5 * 2**30, 4 * 2**30, ("5.0 GiB", "4.0 GiB")),
        (4 * 2**30 + 2**22, 4 * 2**30, ("4.004 GiB", "4.000 GiB")),
        (20 * 2**40, 2**30, ("20480.0 GiB", "1.0 GiB")),
        (2**30, 2**30, ("1.0 GiB", "1.0 GiB")),
    ],
)
def test_sizes_are_told_apart(used: int, cap: int, shown: tuple[str, str]) -> None:
    assert told_apart(used, cap) == shown


_SCRIPT = """
import sys, time
sys.path.insert(0, {tests!r})
from evaluation_samples import Make
from spica.evaluate.pool import LocalEvaluator
from spica.traffic.replayed import SyntheticTraffic

print("once", flush=True)
evaluator = LocalEvaluator(1, max_eval_seconds=None)
first = evaluator.submit(Make(backend="sglang", replicas=1).plan(SyntheticTraffic(100, 4, 4, concurrency=4)))
print(first.result().outcome, evaluator.worker_pids()[0], flush=True)
evaluator.submit(Make(replicas=1).plan(SyntheticTraffic(100, 2000, 100_000, concurrency=1)))
time.sleep(600)
"""


def test_a_script_without_a_guard_and_no_orphan_when_it_is_killed(tmp_path: Path) -> None:
    """The script's top level runs once (workers do not import it again), the workers print nothing, and they
    die with a parent that had no chance to say good-bye."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(_SCRIPT.format(tests=str(Path(__file__).parent))))
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert parent.stdout is not None
    with parent:
        assert parent.stdout.readline() == "once\n"
        outcome, pid = parent.stdout.readline().split()
        assert outcome == "feasible"
        assert not _gone(int(pid))
        time.sleep(0.5)
        parent.kill()
        rest = parent.stdout.read()
    assert rest == ""
    assert _wait(lambda: _gone(int(pid)), 10.0)
