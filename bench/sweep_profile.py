"""Where the time and the memory of a sweep go: the first replay, the optimizer's share, resident memory.

Run: ``python bench/sweep_profile.py [--long]``; writes ``bench/results/sweep_profile.json``. Each sweep is a
whole process. ``cold`` has no compiled programs and no cut-down tables from earlier runs, ``warm`` has both.
``--long`` adds a sweep of 500 candidates, whose memory is read along the way.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

BENCH = Path(__file__).parent
JOBS = 2
# Seconds between two readings of memory.
_EVERY = 0.5


@dataclass
class Memory:
    """Peak resident MiB of the main process and of any worker; ``main_at`` by candidates measured."""

    main: int = 0
    worker: int = 0
    main_at: dict[int, int] = field(default_factory=dict)

    def read(self, pid: int, done: int) -> None:
        now = _status(pid, "VmRSS")
        self.main = max(self.main, _status(pid, "VmHWM"))
        if now:
            self.main_at[done // 100 * 100] = now
        for child in _children(pid):
            self.worker = max(self.worker, _status(child, "VmHWM"))


@dataclass(frozen=True)
class Profile:
    """Seconds of one sweep. ``first_replay``: from the start of the process to that of the study's first
    replay; ``suggesting``: all the time in which a suggestion was being computed, whether or not replays were
    running meanwhile; ``share``: its part of the wall time; ``busy``: the part of the workers' time, from the
    first replay to the last, in which they replayed."""

    name: str
    wall: float
    first_replay: float
    suggesting: float
    share: float
    busy: float
    candidates: int
    memory: Memory

    @property
    def line(self) -> str:
        return (
            f"{self.name:12} {self.wall:6.1f} s  {self.candidates:4d} candidates "
            f"({self.wall / self.candidates:.2f} s each)  first replay at {self.first_replay:.1f} s  "
            f"suggesting {self.suggesting:.1f} s ({self.share:.1%})  workers busy {self.busy:.0%}  "
            f"main {self.memory.main} MiB  worker {self.memory.worker} MiB"
        )


def _status(pid: int, key: str) -> int:
    """MiB, 0 for a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) // 1024 if found else 0


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        more = [p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(word) for word in " ".join([text, *more]).split()]


def _rows(ledger: Path) -> list[tuple[float, float]]:
    """End and seconds of each trial so far."""
    if not ledger.is_file():
        return []
    try:
        with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=5) as connection:
            return list(connection.execute("SELECT at, seconds FROM trials"))
    except sqlite3.OperationalError:
        return []  # not made yet


def profile(name: str, config: Path, folder: Path, cache: Path) -> Profile:
    out = folder / f"run-{name}"
    command = [sys.executable, "-m", "spica", "sweep", str(config), "--out", str(out)]
    env = dict(os.environ) | {"XDG_CACHE_HOME": str(cache)}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    memory, began, start = Memory(), time.time(), time.monotonic()
    process = subprocess.Popen([*command, "--jobs", str(JOBS), "--json"], env=env, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        memory.read(process.pid, len(_rows(out / "run.sqlite")))
        time.sleep(_EVERY)
    wall = time.monotonic() - start
    if process.returncode:
        raise SystemExit(f"{name}: exit code {process.returncode}")
    rows = _rows(out / "run.sqlite")
    first = min(at - seconds for at, seconds in rows) - began
    suggesting = json.loads((out / "summary.json").read_text())["timings"]["suggesting"]
    span = max(at for at, _ in rows) - began - first
    busy = sum(seconds for _, seconds in rows) / (JOBS * span)
    return Profile(name, wall, first, suggesting, suggesting / wall, busy, len(rows), memory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="add a sweep of 500 candidates (minutes)")
    options = parser.parse_args()
    problem = BENCH / "peers" / "spica-qwen3-32b-both.yaml"
    found = []
    with tempfile.TemporaryDirectory(prefix="spica-bench-") as name:
        folder = Path(name)
        for label in ("cold", "warm"):
            found.append(profile(label, problem, folder, folder / "cache"))
            print(found[-1].line, flush=True)
        if options.long:
            found.append(profile("long", BENCH / "peers" / "spica-long.yaml", folder, folder / "cache"))
            print(found[-1].line, found[-1].memory.main_at, flush=True)
    (BENCH / "results" / "sweep_profile.json").write_text(
        json.dumps([asdict(p) for p in found], indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
