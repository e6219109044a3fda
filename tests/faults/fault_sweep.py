"""A real sweep as a process of its own, ways to spoil it, and what must be true of its record afterwards."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

# Round robin, so that replays repeat themselves bit for bit; 32 requests of 128 and 16 tokens.
CONFIG = """\
search_space:
  model_name: Qwen/Qwen3-32B
  hardware_sku: h200_sxm
  gpu_budget: 8
  deployment_mode: {modes}
  backend: [vllm]
  router_mode: [round_robin]
  planner_scaling_policy: [disabled]
workload: {{isl: 128, osl: 16, num_request_ratio: 4, concurrency: 8}}
goal: {{target: throughput}}
sweep: {{max_rounds: {rounds}, candidates_per_round: {per_round}}}
"""
_PROGRAM = "import sys; from spica.cli import main; sys.exit(main())"
PATIENCE = 240.0


@dataclass
class Sweep:
    """``spica sweep`` running in another process. ``file_limit``: bytes no file of it may grow beyond."""

    arguments: tuple[str, ...]
    file_limit: int | None = None
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-c",
            _PROGRAM,
            "sweep",
            *self.arguments,
            "--json",
            "--jobs",
            "2",
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        if self.file_limit is not None:
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (self.file_limit, self.file_limit))
        self._output: list[str] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=self.errors.extend, args=(self.process.stderr,)),
            threading.Thread(target=self._output.extend, args=(self.process.stdout,)),
        ]
        for reader in self._readers:
            reader.start()
        self.family: set[psutil.Process] = set()

    def workers(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
            self.family.update(children)
            return children
        return []

    def alive(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> int:
        """The exit code, once all output is there. A sweep that hangs is made to print its stacks."""
        deadline = time.monotonic() + PATIENCE
        while self.alive():
            self.workers()
            time.sleep(0.05)
            if time.monotonic() > deadline:
                self.process.send_signal(signal.SIGABRT)
                deadline = math.inf
        for reader in self._readers:
            reader.join()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode

    def signal(self, number: int) -> None:
        self.workers()
        self.process.send_signal(number)

    @property
    def out(self) -> str:
        return "".join(self._output)

    @property
    def err(self) -> str:
        return "".join(self.errors)

    def orphans(self, seconds: float = 10.0) -> list[psutil.Process]:
        """Workers that are still there so long after the end of the sweep."""
        _, left = psutil.wait_procs([p for p in self.family if not _ended(p)], timeout=seconds)
        return [p for p in left if not _ended(p)]


def _ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def rows(run: Path, sql: str) -> list[tuple]:  # type: ignore[type-arg]
    """Read with SQLite itself, not with the ledger's own code."""
    with contextlib.closing(sqlite3.connect(f"{(run / 'run.sqlite').as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(sql).fetchall()


def trial_count(run: Path) -> int:
    with contextlib.suppress(sqlite3.Error):
        return int(rows(run, "SELECT count(*) FROM trials")[0][0])
    return 0


def has_begun(run: Path) -> bool:
    with contextlib.suppress(sqlite3.Error):
        return bool(rows(run, "SELECT 1 FROM run"))
    return False


@dataclass
class Witness:
    """Remembers the finished trials of a run: none may ever vanish or change."""

    run: Path
    seen: dict[tuple[str, int], tuple[object, ...]] = field(default_factory=dict)

    def check(self) -> None:
        """The invariants of the record."""
        assert rows(self.run, "PRAGMA integrity_check") == [("ok",)]
        trials = rows(self.run, "SELECT key, repeat, outcome, reason, metrics, at FROM trials")
        now = {(key, repeat): tuple(rest) for key, repeat, *rest in trials}
        assert len(now) == len(trials), "one trial per candidate"
        assert {k: now.get(k) for k in self.seen} == self.seen, "finished trials stay as they were"
        self.seen = now
        final = {"feasible", "infeasible", "failed", "timed_out", "unsupported"}
        assert {outcome for _, _, outcome, *_ in trials} <= final, "no trial is left running"
        asked = {key for (key,) in rows(self.run, "SELECT key FROM asks")}
        assert {key for key, _ in now} <= asked, "no trial that was not asked for"
        told = "SELECT a.key, a.infeasible FROM tells t JOIN asks a USING (branch, suggestion)"
        tells = rows(self.run, told)
        assert len(tells) == rows(self.run, "SELECT count(*) FROM tells")[0][0], "no tell without its ask"
        assert all(infeasible or (key, 0) in now for key, infeasible in tells), "committed before told"
        self._check_asks()

    def _check_asks(self) -> None:
        for (branch,) in rows(self.run, "SELECT DISTINCT branch FROM asks"):
            sql = f"SELECT suggestion, ask, round FROM asks WHERE branch = '{branch}' ORDER BY suggestion"
            found = rows(self.run, sql)
            assert [number for number, *_ in found] == list(range(len(found))), "suggestions have no gaps"
            assert [ask for _, ask, _ in found] == sorted(ask for _, ask, _ in found)
            assert [round_ for *_, round_ in found] == sorted(round_ for *_, round_ in found)


def answer(run: Path) -> dict[str, object]:
    """``candidates.json`` without what depends on the clock and the folder's name."""
    document = json.loads((run / "candidates.json").read_text())
    return {k: _timeless(v) for k, v in document.items() if k not in ("run", "folder")}


def _timeless(value: object) -> object:
    if isinstance(value, Mapping):
        return {k: _timeless(v) for k, v in value.items() if k not in CLOCKED}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


#: Keys of ``candidates.json`` that hold times of the machine, not of the simulation.
CLOCKED = frozenset({"seconds", "timings", "wall_s", "wall_time_s", "replay_seconds"})


@contextlib.contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[bool]:
    """A tmpfs at ``at``; False when this user may not mount one."""
    at.mkdir()
    size = f"size={megabytes}m"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(at)], capture_output=True)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", str(at)], check=True)


def fill(disk: Path) -> Path:
    """A file that leaves no room on the disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        os.kill(process.pid, signal.SIGKILL)
