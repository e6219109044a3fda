"""The folder of a run: where it is, whether it may be used, and what is written into it beside the ledger."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from spica.branches import BranchPlan
from spica.config import SmartSearchConfig
from spica.config.load import dump_yaml
from spica.errors import InputError, LedgerError, Problem, StackError
from spica.ledger import DISK_ERRORS, LEDGER_FILE, LOCK_FILE, Ledger
from spica.report.collect import SPACE_FILE, SUMMARY_FILE
from spica.report.space import space_json
from spica.results import SweepResult
from spica.versions import all_versions

CONFIG_FILE: Final = "config.yaml"
VERSIONS_FILE: Final = "versions.json"
#: What a process that was killed before its run began may have left; such a folder counts as empty.
_BEGINNING: Final = re.compile(rf"{re.escape(LOCK_FILE)}|{re.escape(LEDGER_FILE)}(-wal|-shm|-journal)?")


def default_folder(name: str) -> Path:
    """``runs/<name>-<time>`` in the current folder, with a number when that is taken."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "sweep"
    base = Path("runs") / f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, n = base, 2
    while folder.exists():
        folder, n = base.with_name(f"{base.name}-{n}"), n + 1
    return folder


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Make ``folder``, or take it when it is empty; on an error inside, leave things as they were.

    Raises InputError when it is a file, holds something, or cannot be written; LedgerError when it holds a
    run.
    """
    existed = _usable(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.errno in DISK_ERRORS - {errno.EROFS}:
            remedy = "free some space, or give a folder on another disk (--out DIR), and start again"
            raise StackError(f"{folder}: {error.strerror or error}", remedy=remedy) from None
        raise InputError(
            Problem(
                f"{folder}: cannot be written: {error.strerror or error}",
                key="--out",
                remedy="give a folder that you may write to (--out DIR)",
            )
        ) from None
    done = False
    try:
        yield folder
        done = True
    finally:
        if not done and not Ledger.begun(folder):
            _empty(folder, keep=existed)


def _usable(folder: Path) -> bool:
    """Whether it exists already; raises when it cannot be a new run's."""
    remedy = "give a new or an empty folder (--out DIR)"
    try:
        if Ledger.begun(folder):
            raise LedgerError(
                f"{folder} already holds a run",
                remedy=f"continue it with --resume {folder}, or give another folder (--out DIR)",
            )
        if folder.is_dir() and any(not _BEGINNING.fullmatch(item.name) for item in folder.iterdir()):
            raise InputError(Problem(f"{folder} is not empty", key="--out", remedy=remedy))
        if folder.exists() and not folder.is_dir():
            raise InputError(Problem(f"{folder} is a file", key="--out", remedy=remedy))
        return folder.exists()
    except OSError as error:
        message = f"{folder}: {error.strerror or error}"
        raise InputError(Problem(message, key="--out", remedy=remedy)) from None


def _empty(folder: Path, *, keep: bool) -> None:
    """Remove what this run put there; the folder itself unless it was there before."""
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for item in folder.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """``write_bytes`` of UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` in one step, so that nobody ever reads half of it, also after a power cut."""
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sweep_temporaries(folder: Path) -> None:
    """Remove what processes that were killed while writing have left."""
    for item in folder.glob(".tmp-*-*"):
        pid = item.name.split("-")[1]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            item.unlink(missing_ok=True)


def write_beginning(folder: Path, config: SmartSearchConfig, plan: BranchPlan) -> None:
    """What is known before the search: the resolved configuration, the versions, the search space."""
    _sweep_temporaries(folder)
    write_text(folder / CONFIG_FILE, dump_yaml(config))
    write_text(folder / VERSIONS_FILE, json.dumps(all_versions(), indent=1) + "\n")
    write_text(folder / SPACE_FILE, json.dumps(space_json(plan), indent=1) + "\n")


def write_summary(folder: Path, result: SweepResult) -> None:
    """How the sweep went, as far as the ledger does not hold it."""
    timings = result.timings
    document = {
        "stop": result.stop,
        "timings": {
            "suggesting": timings.suggesting,
            "waiting": timings.waiting,
            "evaluating": timings.evaluating,
            "wall": timings.wall,
        },
        "branch_ends": {b.name: b.stopped for b in result.branches},
        "saved": [[s.reason, s.count] for s in result.saved],
        "hypervolumes": [[v.replays, v.hypervolume] for v in result.hypervolumes],
        "comparisons": [c.statement for c in result.comparisons],
        "warnings": list(result.warnings),
    }
    write_text(folder / SUMMARY_FILE, json.dumps(document, indent=1) + "\n")
