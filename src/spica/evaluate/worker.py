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
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.proven import Replays
from spica.evaluate.replay import ReplayOptions
from spica.evaluate.slim_tables import TablesRequest, prepare_systems
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
class Taken:
    """The worker has the task and starts with it; until then nothing of it has happened."""


@dataclass(frozen=True, slots=True)
class Task:
    """One plan to measure, with the folder of a cut-down copy of the tables if there is one. ``warm``: only
    load what the plan needs, by a replay of a single short request."""

    plan: ReplayPlan
    options: ReplayOptions
    tables: str | None = None
    warm: bool = False


@dataclass(frozen=True, slots=True)
class TablesTask:
    """Make (or find) the cut-down copy of the performance tables."""

    request: TablesRequest
    cache_dir: Path


def main(connection_fd: int, lifeline_fd: int, parent_pid: int) -> None:
    """Serve until the parent closes the pipe. ``lifeline_fd`` is read only to notice that the parent died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    _die_with_parent(lifeline_fd, parent_pid)
    connection = Connection(connection_fd)
    connection.send(Ready(_import_replay()))
    replays = Replays()
    while True:
        try:
            task: Task | TablesTask = connection.recv()
            connection.send(Taken())
            answer = (
                replays.run(task) if isinstance(task, Task) else prepare_systems(task.request, task.cache_dir)
            )
            connection.send(answer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


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
