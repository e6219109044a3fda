"""The parent's handle on one worker process: start it, give it a task, bound it, kill it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import psutil

from spica.errors import StackError
from spica.evaluate.bounds import Limits, told_apart
from spica.evaluate.reasons import CAP_PREFIX, DIED_PREFIX, OUT_OF_MEMORY
from spica.evaluate.slim_tables import SlimTables
from spica.evaluate.worker import WORKER_ENV, Ready, TablesTask, Taken, Task
from spica.trial import Outcome, TrialResult

#: How often the parent looks at a worker's memory, in seconds.
WATCH_SECONDS: Final = 0.2
#: How long a new worker may take to import the replay (seconds; about 2 warm, 10 on a cold disk).
START_SECONDS: Final = 180.0
#: How often a worker that is killed while it starts is started.
START_ATTEMPTS: Final = 3
#: Below this cap on a replay, what it needs is loaded before its clock starts (seconds; loading takes 2 to
#: 10, more on a busy machine).
COLD_SECONDS: Final = 120.0
#: How long making the cut-down tables may take (seconds; about 2).
TABLES_SECONDS: Final = 120.0


#: Not ``-m``: the module's classes would then be ``__main__``'s own, and would not travel over the pipe.
_PROGRAM: Final = (
    "import sys; from spica.evaluate.worker import main; main(*(int(word) for word in sys.argv[1:4]))"
)


class WorkerGone(Exception):
    """The worker process ended; ``status`` is its return code (negative: the signal that killed it)."""

    def __init__(self, status: int | None) -> None:
        super().__init__(describe_death(status))
        self.status = status


class WorkerProcess:
    """One worker, restarted when it has died. Used by one thread at a time; ``kill`` by any.

    ``number`` tells the workers of a pool apart; ``last_pid`` is its process, or the last one it had.
    """

    def __init__(self, env: Mapping[str, str], log: Path | None, number: int = 0) -> None:
        self.number = number
        self.last_pid: int | None = None
        self._env = dict(env)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline: int | None = None
        self._ready = False
        self._loaded: set[tuple[str, str, str | None]] = set()
        self._closed = False
        self._taken = False
        self._sent = 0.0
        self._starting = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def run(self, task: Task, limits: Limits) -> TrialResult:
        """Measure ``task``. A worker that is late, too large or dies costs this one trial; one that is dead
        before it has taken the task up is replaced, once, at no cost.

        The clock starts when the worker has its imports done and its tables loaded, so that a cold start is
        not a slow candidate. StackError when the replay cannot be imported at all.
        """
        try:
            return self._attempt(task, limits)
        except WorkerGone as gone:
            self.stop()
            if self._taken or self._closed:
                return self._death(gone)
        try:
            return self._attempt(task, limits)
        except WorkerGone as gone:
            self.stop()
            return self._death(gone)

    def _attempt(self, task: Task, limits: Limits) -> TrialResult:
        self.ensure_ready()
        self._taken, self._sent = False, time.monotonic()
        if limits.max_seconds is not None and limits.max_seconds < COLD_SECONDS:
            self._load(task, limits)
        self._taken, self._sent = False, time.monotonic()
        self._send(task)
        return self._await(task, limits, self._sent)

    def _death(self, gone: WorkerGone) -> TrialResult:
        reason = f"{DIED_PREFIX} ({gone})"
        return TrialResult(Outcome.FAILED, reason, seconds=time.monotonic() - self._sent)

    def _load(self, task: Task, limits: Limits) -> None:
        """Have the worker load what ``task`` needs, unless it has done so before. Whatever comes of it, the
        task itself will show."""
        sample = task.plan.sample
        need = (sample.backend, sample.mode, task.tables)
        if need in self._loaded:
            return
        self._send(replace(task, warm=True))
        answer = self._await(task, replace(limits, max_seconds=COLD_SECONDS), time.monotonic())
        if self._process is None:
            raise WorkerGone(None)
        if answer.outcome is not Outcome.FAILED:
            self._loaded.add(need)

    def make_tables(self, task: TablesTask) -> SlimTables:
        """Have the worker make the cut-down tables; whatever goes wrong only means that there are none."""
        try:
            self.ensure_ready()
            self._send(task)
            answer = self._receive(TABLES_SECONDS)
            if isinstance(answer, Taken):
                answer = self._receive(TABLES_SECONDS)
        except WorkerGone as gone:
            self.stop()
            return SlimTables(None, f"the worker that made them died ({gone})")
        if isinstance(answer, SlimTables):
            return answer
        self.stop()
        return SlimTables(None, f"it took more than {TABLES_SECONDS:.0f} s")

    def ensure_ready(self) -> None:
        """Start the process if it does not run, and wait for its imports; StackError when they fail.

        One that is killed meanwhile is started again, up to twice: that says nothing about the stack.
        """
        if self._process is not None and self._process.poll() is not None:
            self.stop()
        if self._ready:
            return
        message: object = None
        for attempts_left in reversed(range(START_ATTEMPTS)):
            try:
                message = self._first_message()
                break
            except WorkerGone as gone:
                self.stop()
                if attempts_left and gone.status == -signal.SIGKILL and not self._closed:
                    continue
                raise StackError(f"a worker process did not start ({gone})", remedy=self._see_log()) from gone
        if not isinstance(message, Ready) or message.problem:
            self.stop()
            problem = message.problem if isinstance(message, Ready) else f"it took over {START_SECONDS:.0f} s"
            raise StackError(f"the replay cannot be loaded: {problem}", remedy=self._see_log())
        self._ready = True

    def _first_message(self) -> object:
        """Start the process if need be, and wait for what it says once it has its imports."""
        if self._process is None:
            with self._starting:
                self._start()
        return self._receive(START_SECONDS)

    def retire(self) -> None:
        """Kill the worker for good: it is not started again, also by a thread that was about to."""
        with self._starting:
            self._closed = True
        self.kill()

    def kill(self) -> None:
        """SIGKILL the worker and whatever it started; a thread waiting for it sees it gone."""
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Kill the worker, wait for its end, and free its descriptors. May be called by two threads."""
        self.kill()
        with self._starting:
            process, connection, lifeline = self._process, self._connection, self._lifeline
            self._process = self._connection = self._lifeline = None
            self._ready = False
            self._loaded.clear()
        if process is not None:
            process.wait()
        if connection is not None:
            connection.close()
        if lifeline is not None:
            os.close(lifeline)

    def _start(self) -> None:
        if self._closed:
            raise WorkerGone(None)
        ours, theirs = Pipe(duplex=True)
        watched, lifeline = os.pipe()
        fds = (theirs.fileno(), watched)
        command = [sys.executable, "-P", "-c", _PROGRAM]
        out: int = subprocess.DEVNULL
        if self._log is not None:
            out = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._process = subprocess.Popen(
                [*command, *(str(fd) for fd in fds), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=worker_environment(self._env),
                pass_fds=fds,
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(watched)
            if out >= 0:
                os.close(out)
        self._connection, self._lifeline = ours, lifeline
        self.last_pid = self._process.pid

    def _send(self, task: Task | TablesTask) -> None:
        connection = self._connection
        if connection is None:
            raise WorkerGone(None)
        try:
            connection.send(task)
        except OSError as error:
            raise WorkerGone(self._status()) from error

    def _await(self, task: Task, limits: Limits, started: float) -> TrialResult:
        while True:
            left = None if limits.max_seconds is None else started + limits.max_seconds - time.monotonic()
            answer = self._receive(WATCH_SECONDS if left is None else max(0.0, min(left, WATCH_SECONDS)))
            if isinstance(answer, TrialResult):
                return answer
            if isinstance(answer, Taken):
                self._taken = True
                continue
            spent = time.monotonic() - started
            if limits.max_seconds is not None and spent >= limits.max_seconds:
                self.stop()
                reason = f"exceed runtime: the replay was stopped after {limits.max_seconds:g} s"
                return TrialResult(Outcome.TIMED_OUT, reason, seconds=spent)
            used = self._resident_bytes()
            if limits.max_bytes is not None and used > limits.max_bytes:
                self.stop()
                size, cap = told_apart(used, limits.max_bytes)
                reason = f"{CAP_PREFIX}: the replay used {size}, more than the cap of {cap}"
                return TrialResult(Outcome.FAILED, reason, seconds=spent)

    def _receive(self, timeout: float) -> object:
        """The next message, or None after ``timeout`` seconds. Raises WorkerGone."""
        connection = self._connection
        if connection is None:
            raise WorkerGone(None)
        try:
            return connection.recv() if connection.poll(timeout) else None
        except (EOFError, OSError) as error:
            raise WorkerGone(self._status()) from error

    def _status(self) -> int | None:
        process = self._process
        if process is None:
            return None
        try:
            return process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return None

    def _resident_bytes(self) -> int:
        process = self._process
        if process is None:
            return 0
        try:
            return int(psutil.Process(process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def _see_log(self) -> str:
        return f"its output is in {self._log}" if self._log is not None else ""


def worker_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The parent's environment, the workers' own settings, ``extra``, and a path on which Spica is found."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
    return {**os.environ, **WORKER_ENV, **extra, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def describe_death(status: int | None) -> str:
    """How a process ended, from its return code."""
    if status is None:
        return "it closed its pipe"
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
    # The kernel kills for memory, and the runtime aborts when it gets none.
    hint = f", perhaps {OUT_OF_MEMORY}" if -status in (signal.SIGKILL, signal.SIGABRT) else ""
    return f"signal {-status}, {name}{hint}"
