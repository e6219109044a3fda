"""Replays in worker processes on this machine, behind standard futures."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import platformdirs
import psutil

from spica.errors import StackError
from spica.evaluate.bounds import Limits, refusal
from spica.evaluate.process import WorkerProcess
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.reasons import STACK_PREFIX, is_lost, perhaps_memory
from spica.evaluate.replay import ReplayOptions
from spica.evaluate.slim_tables import SlimTables, TablesRequest
from spica.evaluate.worker import TablesTask, Task
from spica.trial import Outcome, TrialResult

#: RAM left to the main process and the system when the default memory cap is worked out.
RESERVED_BYTES: Final = 2 * 2**30
MAX_DEFAULT_CAP: Final = 4 * 2**30
MIN_DEFAULT_CAP: Final = 1 * 2**30


def machine_bytes() -> int:
    """The RAM this process may use: the machine's, or its control group's limit when that is smaller."""
    total = int(psutil.virtual_memory().total)
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return min(total, int(text))
    return total


def default_memory_limit(jobs: int) -> int:
    """The resident bytes a worker may use unless told otherwise: an equal share of the RAM beyond 2 GiB,
    at most 4 GiB and at least 1 GiB (a usual replay needs 0.2 to 0.8 GiB)."""
    share = (machine_bytes() - RESERVED_BYTES) // max(1, jobs)
    return max(MIN_DEFAULT_CAP, min(MAX_DEFAULT_CAP, share))


class _Turns:
    """Who may replay: any number at a time, or one that wants to be alone; that one goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._wanting = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._wanting)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._wanting += 1
            self._changed.wait_for(lambda: not self._running)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._wanting -= 1
                self._changed.notify_all()


class LocalEvaluator:
    """An Evaluator on ``jobs`` worker processes.

    Threads of a standard executor each hold one worker while they wait for its answer; the replay itself runs
    in the worker, so a late one is ended by killing its process, with one job as with many. Workers start to
    import at once, in the background. A trial whose worker died or went over its memory cap is tried once
    more in a fresh worker, with no other replay running if memory may have been the cause.

    ``max_eval_seconds``: cap on one replay (None: none). ``memory_limit_bytes``: cap on a worker's resident
    memory (0: the machine's default share, None: none). ``env``: added to the workers' environment only.
    ``log_dir``: the workers write what they print to ``worker-N.log`` there (default: nowhere).
    """

    def __init__(
        self,
        jobs: int,
        *,
        max_eval_seconds: float | None = 600.0,
        memory_limit_bytes: int | None = 0,
        env: Mapping[str, str] | None = None,
        log_dir: Path | None = None,
    ) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {jobs}")
        cap = default_memory_limit(jobs) if memory_limit_bytes == 0 else memory_limit_bytes
        self.jobs = jobs
        self._limits = Limits(max_eval_seconds, cap)
        self._options = ReplayOptions(limits=self._limits)
        self._tables: str | None = None
        self._workers = [
            WorkerProcess(env or {}, None if log_dir is None else log_dir / f"worker-{n}.log", n)
            for n in range(jobs)
        ]
        self._free: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._turns = _Turns()
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="spica-eval")
        for worker in self._workers:
            self._threads.submit(self._boot, worker)

    def prepare_tables(self, request: TablesRequest, cache_dir: Path | None = None) -> Future[SlimTables]:
        """Make the cut-down performance tables in a worker, in the background, and use them from then on for
        the worker shapes they are proven for (``evaluate/slim_tables.py``).

        ``cache_dir``: where copies are kept between runs (default: the user's cache folder). The future says
        what came of it; without a copy replays go on with the installed tables.
        """
        folder = cache_dir or Path(platformdirs.user_cache_dir("spica")) / "tables"
        return self._threads.submit(self._make_tables, TablesTask(request, folder))

    def submit(self, plan: ReplayPlan) -> Future[TrialResult]:
        """Measure ``plan``; an impossible one is refused at once, without a worker."""
        refused = refusal(plan, self._limits)
        if refused is not None:
            done: Future[TrialResult] = Future()
            done.set_result(refused)
            return done
        return self._threads.submit(self._measure, Task(plan, self._options, self._tables))

    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of the workers that run."""
        return tuple(pid for pid in (worker.pid for worker in self._workers) if pid is not None)

    def close(self, *, kill: bool = False) -> None:
        """Stop all workers; with ``kill`` without waiting for running trials. May be called again."""
        if kill:
            self._closing.set()
            for worker in self._workers:
                worker.retire()
        self._threads.shutdown(wait=True, cancel_futures=kill)
        self._closing.set()
        for worker in self._workers:
            worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(kill=error is not None)

    def _make_tables(self, task: TablesTask) -> SlimTables:
        worker = self._free.get()
        try:
            if self._closing.is_set():
                raise CancelledError
            made = worker.make_tables(task)
        except StackError as error:
            made = SlimTables(None, str(error))
        finally:
            self._free.put(worker)
        self._tables = made.folder
        return made

    def _boot(self, worker: WorkerProcess) -> None:
        try:
            if not self._closing.is_set():
                worker.ensure_ready()
        except StackError:
            # Met again, and reported, by the first trial that needs the worker.
            pass
        finally:
            self._free.put(worker)

    def _measure(self, task: Task) -> TrialResult:
        worker = self._free.get()
        try:
            if self._closing.is_set():
                raise CancelledError
            result = self._measure_with(worker, task)
            result = replace(result, worker=worker.number, pid=worker.last_pid)
        except StackError as error:
            result = TrialResult(Outcome.FAILED, f"{STACK_PREFIX}: {error}")
        finally:
            self._free.put(worker)
        if self._closing.is_set() and result.outcome is Outcome.FAILED:
            raise CancelledError
        return result

    def _measure_with(self, worker: WorkerProcess, task: Task) -> TrialResult:
        with self._turns.shared():
            result = worker.run(task, self._limits)
        if not is_lost(result) or task.warm or self._closing.is_set():
            return result
        memory = perhaps_memory(result.reason)
        with self._turns.alone() if memory else self._turns.shared():
            if self._closing.is_set():
                return result
            worker.stop()
            again = worker.run(task, self._limits)
        if not is_lost(again):
            return again
        how = "and with no other replay running" if memory else "as in the one before"
        return replace(again, reason=f"{again.reason}; in a fresh worker {how}")


def default_jobs() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
