"""Opening the SQLite file of a ledger, for writing or for reading alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from spica.errors import LedgerError
from spica.record.faults import explain, explain_os


def require(path: Path) -> None:
    try:
        if path.is_file():
            return
    except OSError as error:
        raise explain_os(error, path) from error
    raise LedgerError(
        f"{path.parent} holds no run (there is no {path.name} in it)",
        remedy="give the folder that a sweep wrote (--out DIR)",
    )


def _refuse_links(path: Path) -> None:
    """A run folder may come from anyone: what is written here must not end up elsewhere."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
        part = path.with_name(name)
        if part.is_symlink():
            raise LedgerError(f"{part} is a link", remedy="put the file itself there, or start a new run")


def connect(path: Path) -> sqlite3.Connection:
    _refuse_links(path)
    try:
        db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.text_factory = _text
        except sqlite3.Error:
            db.close()
            raise
    except sqlite3.Error as error:
        raise explain(error, path) from error
    return db


def connect_readonly(path: Path) -> sqlite3.Connection:
    """A read-only connection; in a folder that cannot be written, of a run that was closed properly."""
    _refuse_links(path)
    uri = path.resolve().as_uri()
    try:
        db = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=10.0, check_same_thread=False)
        try:
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.OperationalError:
            db.close()
            if path.with_name(path.name + "-wal").exists():
                raise
            db = sqlite3.connect(f"{uri}?immutable=1", uri=True, check_same_thread=False)
    except sqlite3.Error as error:
        raise explain(error, path) from error
    db.isolation_level = None
    db.text_factory = _text
    return db


def _text(data: bytes) -> str:
    """Damaged text is read as what it is not, and then does not fit its seal."""
    return data.decode(errors="replace")
