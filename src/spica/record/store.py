"""The ledger itself: WAL, every commit synced to the disk, one writer per run folder."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from spica.errors import LedgerError, StackError
from spica.record.faults import corrupted, explain, explain_os
from spica.record.lock import RunLock
from spica.record.records import (
    AskRecord,
    RunIdentity,
    SuggestionRecord,
    TellRecord,
    TrialRecord,
    metrics_to_json,
    to_json,
    trial_from_row,
)

LEDGER_FILE: Final = "run.sqlite"
NOT_BEGUN_REMEDY: Final = "free some space, or give a folder on another disk (--out DIR), and start again"
SCHEMA_VERSION: Final = 2
#: The format before: its trials do not say which worker had them. It is read, and brought up to date when the
#: run is continued.
_BEFORE_WORKERS: Final = 1

# Times are seconds since the epoch. A trial may exist without a tell (it was committed first), never the
# reverse.
_SCHEMA: Final = """
CREATE TABLE run (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE asks (
    branch TEXT NOT NULL, ask INTEGER NOT NULL, round INTEGER NOT NULL, suggestion INTEGER NOT NULL,
    point TEXT NOT NULL, key TEXT NOT NULL, config TEXT NOT NULL, projection TEXT NOT NULL,
    infeasible TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (branch, suggestion)
) STRICT;
CREATE TABLE trials (
    key TEXT NOT NULL, repeat INTEGER NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL,
    traceback TEXT NOT NULL, metrics TEXT, seconds REAL NOT NULL, at REAL NOT NULL,
    worker INTEGER, pid INTEGER,
    PRIMARY KEY (key, repeat)
) STRICT;
CREATE TABLE tells (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, branch TEXT NOT NULL, suggestion INTEGER NOT NULL,
    labels TEXT, cache_hit INTEGER NOT NULL, at REAL NOT NULL,
    UNIQUE (branch, suggestion)
) STRICT;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, detail TEXT NOT NULL, at REAL NOT NULL
) STRICT;
"""


class Ledger:
    """A run's record. Safe to call from several threads; each ``record_*`` is one synced transaction.

    Every method that touches the file raises StackError when the disk is full or fails, and LedgerError
    when the file is damaged or not writable; what was committed before stays.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: RunLock | None) -> None:
        """Use ``create``, ``resume`` or ``read``."""
        self.path = path
        self._db = connection
        self._lock = lock
        self._mutex = threading.RLock()
        self._format = SCHEMA_VERSION

    @classmethod
    def create(cls, folder: Path, identity: RunIdentity, *, lock: RunLock | None = None) -> Self:
        """Start a run in ``folder`` (made when missing). LedgerError when it holds one already or is in use.

        ``lock``: the caller's lock on the folder, which the caller releases; without one it is taken here.
        """
        own = None
        if lock is None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise explain_os(error, folder) from error
            own = RunLock(folder)
        path = folder / LEDGER_FILE
        try:
            ledger = cls(path, _connect(path), own)
            ledger._initialise(identity)
        except BaseException as error:
            if isinstance(error, StackError):
                # Nothing was recorded: leave nothing that looks like a run.
                for leftover in folder.glob(f"{LEDGER_FILE}*"):
                    leftover.unlink(missing_ok=True)
            if own is not None:
                own.release()
            if isinstance(error, StackError):
                raise StackError(error.message, remedy=NOT_BEGUN_REMEDY) from error
            raise
        return ledger

    @classmethod
    def begun(cls, folder: Path) -> bool:
        """Whether ``folder`` holds a run; False for what a process killed while making one may leave."""
        path = folder / LEDGER_FILE
        if not path.is_file():
            return path.exists()  # a pipe or the like, which must not be opened
        try:
            with closing(_connect_readonly(path)) as db:
                return db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
        except (sqlite3.Error, LedgerError, StackError):
            return True

    @classmethod
    def resume(cls, folder: Path) -> Self:
        """Open the run in ``folder`` to continue it. LedgerError when there is none, or it is in use."""
        path = folder / LEDGER_FILE
        _require(path)
        lock = RunLock(folder)
        try:
            ledger = cls(path, _connect(path), lock)
            ledger._check()
            ledger._bring_up_to_date()
        except BaseException:
            lock.release()
            raise
        return ledger

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Open the run in ``folder`` for reading, also while another process is writing it."""
        path = folder / LEDGER_FILE
        _require(path)
        ledger = cls(path, _connect_readonly(path), None)
        ledger._check()
        return ledger

    @property
    def folder(self) -> Path:
        return self.path.parent

    def close(self) -> None:
        with self._mutex:
            self._db.close()
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the run ------------------------------------------------------------------------------------------

    def identity(self) -> RunIdentity:
        values = dict(self._rows("SELECT name, value FROM run"))
        with self._decoding():
            return RunIdentity(
                values["config_text"],
                values["config_json"],
                int(values["seed"]),
                json.loads(values["versions"]),
            )

    def admit(self, now: RunIdentity, *, force: bool = False) -> tuple[str, ...]:
        """Check that a resumed run is the recorded one.

        Returns what will be mixed (empty when nothing differs). LedgerError listing the differences unless
        ``force``; even then when model, SKU, workload or goal differ: such results cannot be ranked together.
        """
        differences = self.identity().differences(now)
        if force and (decisive := self.identity().incomparable(now)):
            raise LedgerError(
                f"{self.folder} was made for something else, which --force cannot mix:\n    "
                + "\n    ".join(decisive),
                remedy="start a new run",
            )
        if differences and not force:
            raise LedgerError(
                f"{self.folder} was made with other settings or versions:\n    " + "\n    ".join(differences),
                remedy="resume with the recorded ones, start a new run, or mix the results with --force",
            )
        self.record_event("resumed", "; ".join(differences))
        return differences

    # -- writing ------------------------------------------------------------------------------------------

    def record_ask(self, ask: AskRecord) -> None:
        at = time.time()
        rows = [
            (ask.branch, ask.index, ask.round, s.id, to_json(s.values), s.key, s.config, s.projection)
            for s in ask.suggestions
        ]
        rest = [(s.infeasible, at) for s in ask.suggestions]
        both = [(*a, *b) for a, b in zip(rows, rest, strict=True)]
        self._write("INSERT OR REPLACE INTO asks VALUES (?,?,?,?,?,?,?,?,?,?)", both)

    def forget_asks(self, branch: str, first_index: int) -> None:
        """Drop a branch's asks from the ``first_index``-th on (a forced resume that departs from the
        record)."""
        self._write("DELETE FROM asks WHERE branch = ? AND ask >= ?", [(branch, first_index)])

    def record_trial(self, trial: TrialRecord) -> None:
        """Commit one finished measurement; durable when this returns. LedgerError when it is there
        already."""
        r = trial.result
        row = (trial.key, trial.repeat, r.outcome.value, r.reason, r.traceback, metrics_to_json(r.metrics))
        rest = (r.seconds, time.time(), r.worker, r.pid)
        self._write("INSERT INTO trials VALUES (?,?,?,?,?,?,?,?,?,?)", [(*row, *rest)])

    def record_tells(self, tells: Sequence[TellRecord]) -> None:
        at = time.time()
        rows = [
            (t.branch, t.suggestion, None if t.labels is None else to_json(t.labels), int(t.cache_hit), at)
            for t in tells
        ]
        sql = "INSERT OR REPLACE INTO tells (branch, suggestion, labels, cache_hit, at) VALUES (?,?,?,?,?)"
        self._write(sql, rows)

    def record_event(self, kind: str, detail: str = "") -> None:
        """Note something of the run's life (started, resumed, interrupted, finished)."""
        self._write("INSERT INTO events (kind, detail, at) VALUES (?,?,?)", [(kind, detail, time.time())])

    # -- reading ------------------------------------------------------------------------------------------

    def asks(self) -> tuple[AskRecord, ...]:
        """Every ask, branch by branch, in the order of asking."""
        grouped: dict[tuple[str, int, int], list[SuggestionRecord]] = {}
        rows = self._rows(
            "SELECT branch, ask, round, suggestion, point, key, config, projection, infeasible FROM asks "
            "ORDER BY branch, ask, suggestion"
        )
        with self._decoding():
            for branch, ask, round_, number, point, *rest in rows:
                record = SuggestionRecord(number, json.loads(point), *rest)
                grouped.setdefault((branch, ask, round_), []).append(record)
        return tuple(AskRecord(b, i, r, tuple(found)) for (b, i, r), found in grouped.items())

    def trials(self) -> tuple[TrialRecord, ...]:
        """Every finished measurement, in the order of finishing."""
        who = "NULL, NULL" if self._format == _BEFORE_WORKERS else "worker, pid"
        columns = f"key, repeat, outcome, reason, traceback, metrics, seconds, {who}"
        rows = self._rows(f"SELECT {columns} FROM trials ORDER BY rowid")
        with self._decoding():
            return tuple(trial_from_row(row) for row in rows)

    def tells(self) -> tuple[TellRecord, ...]:
        """Everything the studies were told, in that order."""
        rows = self._rows("SELECT branch, suggestion, labels, cache_hit FROM tells ORDER BY seq")
        with self._decoding():
            return tuple(
                TellRecord(b, s, None if labels is None else tuple(json.loads(labels)), bool(hit))
                for b, s, labels, hit in rows
            )

    def events(self) -> tuple[tuple[str, str, float], ...]:
        """(kind, detail, time) of the run's life."""
        return tuple(self._rows("SELECT kind, detail, at FROM events ORDER BY seq"))

    # -- inside -------------------------------------------------------------------------------------------

    def _initialise(self, identity: RunIdentity) -> None:
        if self._rows("SELECT 1 FROM sqlite_master WHERE name = 'run'"):
            self.close()
            raise LedgerError(
                f"{self.folder} already holds a run",
                remedy=f"continue it with --resume {self.folder}, or give another folder (--out DIR)",
            )
        values = {
            "schema_version": str(SCHEMA_VERSION),
            "created": str(time.time()),
            "config_text": identity.config_text,
            "config_json": identity.config_json,
            "seed": str(identity.seed),
            "versions": to_json(dict(identity.versions)),
        }
        with self._transaction():
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.executemany("INSERT INTO run VALUES (?, ?)", list(values.items()))

    def _check(self) -> None:
        """Raise LedgerError unless this is an undamaged ledger of this version."""
        try:
            problems = self._rows("PRAGMA quick_check(1)")
            if not problems or problems[0][0] != "ok":
                raise corrupted(self.path, str(problems[0][0]) if problems else "empty")
            tables = {row[0] for row in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
            missing = {"run", "asks", "trials", "tells", "events"} - tables
            if missing:
                raise corrupted(self.path, f"no table {', '.join(sorted(missing))}")
            found = dict(self._rows("SELECT name, value FROM run")).get("schema_version")
        except LedgerError:
            self.close()
            raise
        readable = {str(number): number for number in (_BEFORE_WORKERS, SCHEMA_VERSION)}
        if found not in readable:
            self.close()
            formats = " and ".join(readable)
            raise LedgerError(
                f"{self.path}: written in format {found}; this version reads formats {formats}",
                remedy="use the version of Spica that made it, or start a new run",
            )
        self._format = readable[found]

    def _bring_up_to_date(self) -> None:
        """Add what the format before did not have; its trials keep it empty."""
        if self._format == SCHEMA_VERSION:
            return
        with self._transaction():
            self._db.execute("ALTER TABLE trials ADD COLUMN worker INTEGER")
            self._db.execute("ALTER TABLE trials ADD COLUMN pid INTEGER")
            self._db.execute(f"UPDATE run SET value = '{SCHEMA_VERSION}' WHERE name = 'schema_version'")
        self._format = SCHEMA_VERSION

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._mutex:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                self._roll_back()
                raise explain(error, self.path) from error
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error:  # SQLite rolls back by itself when the file is opened again
                return

    def _write(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        with self._transaction():
            self._db.executemany(sql, rows)

    def _rows(self, sql: str) -> list[tuple]:  # type: ignore[type-arg]
        with self._mutex:
            try:
                return self._db.execute(sql).fetchall()
            except sqlite3.Error as error:
                raise explain(error, self.path) from error

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            raise corrupted(self.path, f"{type(error).__name__}: {error}") from error


def _require(path: Path) -> None:
    try:
        if path.is_file():
            return
    except OSError as error:
        raise explain_os(error, path) from error
    raise LedgerError(
        f"{path.parent} holds no run (there is no {path.name} in it)",
        remedy="give the folder that a sweep wrote (--out DIR)",
    )


def _connect(path: Path) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error:
            db.close()
            raise
    except sqlite3.Error as error:
        raise explain(error, path) from error
    return db


def _connect_readonly(path: Path) -> sqlite3.Connection:
    """A read-only connection; in a folder that cannot be written, of a run that was closed properly."""
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
    return db
