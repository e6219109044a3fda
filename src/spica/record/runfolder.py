"""The folder of a run: where it is, whether it may be used, and what is written into it beside the ledger."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from spica.branches import BranchPlan
from spica.branches.space import space_json
from spica.config import SmartSearchConfig
from spica.config.load import dump_yaml
from spica.errors import DISK_ERRORS, InputError, LedgerError, Problem, StackError
from spica.record import LEDGER_FILE, LOCK_FILE, NOT_BEGUN_REMEDY, Ledger, RunLock, refuse_in_use
from spica.record.results import SweepResult
from spica.traffic.write import REPLAY_FILE
from spica.versions import all_versions

CONFIG_FILE: Final = "config.yaml"
VERSIONS_FILE: Final = "versions.json"
SPACE_FILE: Final = "space.json"
SUMMARY_FILE: Final = "summary.json"
#: What a process that was killed before its run began may have left; such a folder counts as empty.
_BEGINNING: Final = re.compile(rf"{re.escape(LOCK_FILE)}|{re.escape(LEDGER_FILE)}(-wal|-shm|-journal)?")
#: The same, where the lock file shows that it is not the user's.
_PREPARED: Final = re.compile(rf"{re.escape(REPLAY_FILE)}|\.{re.escape(REPLAY_FILE)}\..*\.part|\.tmp-\d+-.*")
_PROBE_BYTES: Final = 4096
_OUT_REMEDY: Final = "give a new or an empty folder (--out DIR)"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that is this process's alone; ``lock`` is None when the ledger holds it."""

    path: Path
    lock: RunLock | None = None


def default_folder(name: str) -> Path:
    """``runs/<name>-<time>`` in the current folder."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "sweep"
    return Path("runs") / f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"


@contextmanager
def new_folder(folder: Path, *, numbered: bool = False) -> Iterator[RunFolder]:
    """Make ``folder``, or take it when it is empty, and lock it before anything is written in it; on an error
    inside, leave things as they were.

    ``numbered``: when it exists, ``<folder>-2`` and so on is made instead. Raises InputError when it is a
    file, holds something, or cannot be written; LedgerError when it holds a run or is in use by another
    process, whose files are not touched.
    """
    if not numbered:
        _refuse_unusable(folder)
    folder, made = _made(folder, numbered)
    lock = RunLock(folder)
    begun = False
    try:
        # Again, now that nobody else can start a run here.
        _refuse_unusable(folder, locked=True)
        begun = True
        _try_disk(folder)
        yield RunFolder(folder, lock)
        begun = False
    finally:
        if begun and not Ledger.begun(folder):
            _empty(folder, made)
        lock.release()


def _made(folder: Path, numbered: bool) -> tuple[Path, tuple[Path, ...]]:
    """The folder, and which folders were made for it, the innermost first. InputError, StackError."""
    base, n = folder, 2
    while True:
        missing: tuple[Path, ...] = ()
        try:
            missing = tuple(p for p in (folder, *folder.parents) if not p.exists())
            folder.mkdir(parents=True, exist_ok=not numbered)
            # Leaves no trace, so another process's folder may be tried as well.
            with tempfile.TemporaryFile(dir=folder):
                return folder, missing
        except FileExistsError:
            if not numbered:
                raise _unwritable(folder, "File exists") from None
            folder, n = base.with_name(f"{base.name}-{n}"), n + 1
        except OSError as error:
            _remove_empty(missing)
            if error.errno in DISK_ERRORS - {errno.EROFS}:
                raise StackError(f"{folder}: {error.strerror or error}", remedy=NOT_BEGUN_REMEDY) from None
            raise _unwritable(folder, error.strerror or str(error)) from None


def _unwritable(folder: Path, why: str) -> InputError:
    remedy = "give a folder that you may write to (--out DIR)"
    return InputError(Problem(f"{folder}: cannot be written: {why}", key="--out", remedy=remedy))


def _try_disk(folder: Path) -> None:
    """StackError when a few bytes find no room: better now than after minutes of work."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise StackError(f"{folder}: {error.strerror or error}", remedy=NOT_BEGUN_REMEDY) from None


def _refuse_unusable(folder: Path, *, locked: bool = False) -> None:
    """Raise when it cannot be a new run's. Whoever is still beginning one there is named by the lock."""
    try:
        if not locked:
            refuse_in_use(folder)
        if Ledger.begun(folder):
            raise LedgerError(
                f"{folder} already holds a run",
                remedy=f"continue it with --resume {folder}, or give another folder (--out DIR)",
            )
        if folder.is_dir() and _holds_something(folder):
            raise InputError(Problem(f"{folder} is not empty", key="--out", remedy=_OUT_REMEDY))
        if folder.exists() and not folder.is_dir():
            raise InputError(Problem(f"{folder} is a file", key="--out", remedy=_OUT_REMEDY))
    except OSError as error:
        message = f"{folder}: {error.strerror or error}"
        raise InputError(Problem(message, key="--out", remedy=_OUT_REMEDY)) from None


def _holds_something(folder: Path) -> bool:
    names = {item.name for item in folder.iterdir()}
    left = {name for name in names if not _BEGINNING.fullmatch(name)}
    if LOCK_FILE in names:
        left = {name for name in left if not _PREPARED.fullmatch(name)}
    return bool(left)


def _empty(folder: Path, made: Sequence[Path]) -> None:
    """Remove what this run put there, and the folders that were ``made`` for it.

    The lock file goes last: who opens a new one afterwards finds nothing of this run any more.
    """
    for item in folder.iterdir():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item, ignore_errors=True)
        elif item.name != LOCK_FILE:
            item.unlink(missing_ok=True)
    (folder / LOCK_FILE).unlink(missing_ok=True)
    _remove_empty(made)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove them, the innermost first, up to the first that holds something."""
    with suppress(OSError):
        for folder in folders:
            if folder.exists():
                folder.rmdir()


def write_text(path: Path, text: str) -> None:
    """``write_bytes`` of UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` in one step, so that nobody ever reads half of it, also after a power cut. A link that
    stands there is replaced, not followed."""
    temporary = _temporary(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def temporary_folder(path: Path) -> Path:
    """A new folder beside ``path``, to take its place."""
    folder = _temporary(path)
    folder.mkdir()
    return folder


def _temporary(path: Path) -> Path:
    """A name beside ``path`` that tells whose it is and that nobody can have foreseen."""
    return path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(8)}-{path.name}")


def _sweep_temporaries(folder: Path) -> None:
    """Remove what processes that were killed while writing have left."""
    for item in folder.glob(".tmp-*-*"):
        pid = item.name.split("-")[1]
        if not pid.isdigit() or psutil.pid_exists(int(pid)):
            continue
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item, ignore_errors=True)
        else:
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
