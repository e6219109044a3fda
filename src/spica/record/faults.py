"""What SQLite's and the operating system's errors mean to a user."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spica.errors import DISK_ERRORS, LedgerError, SpicaError, StackError

_DISK_FULL_REMEDY = (
    "free some space (or move the run folder to a larger disk) and continue with "
    "'spica sweep --resume {folder}'; everything measured so far is kept"
)


def explain(error: sqlite3.Error, path: Path) -> SpicaError:
    """The error to raise for SQLite's ``error`` on the ledger at ``path``."""
    name = getattr(error, "sqlite_errorname", "") or ""
    folder = path.parent
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StackError(
            f"{path}: cannot be written: {error} ({name})", remedy=_DISK_FULL_REMEDY.format(folder=folder)
        )
    # SQLITE_ERROR itself is what a table without the columns asked for gives.
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")) or name == "SQLITE_ERROR":
        return corrupted(path, str(error))
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return LedgerError(
            f"{path}: cannot be opened for writing: {error}",
            remedy="check that the folder exists and is yours to write in",
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LedgerError(f"{path}: another program holds it: {error}", remedy="close that program first")
    return LedgerError(f"{path}: {error}")


@contextmanager
def writing_in(folder: Path) -> Iterator[None]:
    """Turns an OSError of writing files beside the ledger into the error it means to a user."""
    try:
        yield
    except OSError as error:
        raise explain_os(error, folder) from error


def explain_os(error: OSError, path: Path) -> SpicaError:
    """The error to raise for an operating system's ``error`` on something in the run folder."""
    if error.errno in DISK_ERRORS:
        folder = path if path.is_dir() else path.parent
        return StackError(f"{path}: {error.strerror}", remedy=_DISK_FULL_REMEDY.format(folder=folder))
    return LedgerError(
        f"{path}: {error.strerror or error}", remedy="give a folder that is yours to write in (--out DIR)"
    )


def corrupted(path: Path, detail: str, *, intact: bool = False) -> LedgerError:
    """The error for a damaged record. ``intact``: the rest of it can still be reported."""
    rest = f"; what is intact is shown by 'spica report {path.parent} --intact'" if intact else ""
    return LedgerError(
        f"{path}: the run's record is damaged or not a record of a run: {detail}",
        remedy=f"restore the folder from a copy, or start a new run in another folder (--out DIR){rest}",
    )
