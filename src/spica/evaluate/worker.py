"""A worker process: receives plans over a pipe, replays them one after the other, sends back the results.

It is started as a plain new interpreter, not through ``multiprocessing``: that would run the caller's
``__main__`` again, which a script without a guard or a notebook does not survive. The environment set for it
is its own, and it dies with its parent however that ends.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Final

from spica.evaluate.protocol import ReplayPlan, SyntheticTraffic, TrialResult
from spica.evaluate.replay import ReplayOptions, run_replay
from spica.facts import estimator_available

#: The environment of every worker: no log line per request, one thread per process.
WORKER_ENV: Final = {
    "DYN_LOG": "error",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker's first message: it runs; ``problem`` says why the replay could not be imported."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One plan to measure. ``warm``: only load what it needs, by a replay of a single short request."""

    plan: ReplayPlan
    options: ReplayOptions
    warm: bool = False


def main(connection_fd: int, lifeline_fd: int, parent_pid: int) -> None:
    """Serve until the parent closes the pipe. ``lifeline_fd`` is read only to notice that the parent died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    _die_with_parent(lifeline_fd, parent_pid)
    connection = Connection(connection_fd)
    connection.send(Ready(_import_replay()))
    while True:
        try:
            task: Task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            connection.send(run_task(task))
        except (BrokenPipeError, ConnectionResetError):
            return


def run_task(task: Task) -> TrialResult:
    """Measure the task's plan, or warm up with a small one of its kind."""
    if not task.warm:
        return run_replay(task.plan, task.options)
    return run_replay(tiny_plan(task.plan), task.options)


def tiny_plan(plan: ReplayPlan) -> ReplayPlan:
    """The same deployment under one short request: everything is loaded, next to nothing simulated."""
    traffic = SyntheticTraffic(isl=16, osl=2, num_requests=1, concurrency=1)
    return replace(plan, traffic=traffic)


def _import_replay() -> str:
    try:
        import dynamo.replay.api  # noqa: F401
    except ImportError as error:
        return f"{type(error).__name__}: {error}"
    # Loads the performance database's code as well; without it the replay says itself what is missing.
    estimator_available()
    return ""


def _die_with_parent(lifeline_fd: int, parent_pid: int) -> None:
    """The end of the lifeline is held by the parent alone: reading it ends when the parent does.

    The replay releases the interpreter lock, so the watching thread runs during it. On Linux the kernel is
    asked as well, for code that does not release it.
    """

    def watch() -> None:
        while os.read(lifeline_fd, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:
            os._exit(1)
