"""The ledger itself: WAL, every commit synced to the disk, one writer per run folder."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from spica.errors import LedgerError, StackError
from spica.record.connect import connect, connect_readonly, require
from spica.record.faults import explain_os
from spica.record.lock import RunLock
from spica.record.reading import identity_from_row, suggestion_from_row, tell_from_row, trial_from_row
from spica.record.records import (
    AskRecord,
    RunIdentity,
    SuggestionRecord,
    TellRecord,
    TrialRecord,
    metrics_to_json,
    to_json,
)
from spica.record.seal import SEALS_SCHEMA, TABLES, Row, Table
from spica.record.sealed import SCHEMA_VERSION, SealedFile
from spica.text import printable

LEDGER_FILE: Final = "run.sqlite"
NOT_BEGUN_REMEDY: Final = "free some space, or give a folder on another disk (--out DIR), and start again"
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


class Ledger(SealedFile):
    """A run's record. Safe to call from several threads; each ``record_*`` is one synced transaction.

    Every method that touches the file raises StackError when the disk is full or fails, and LedgerError
    when the file is damaged or not writable; what was committed before stays.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: RunLock | None, *, intact: bool = False
    ) -> None:
        """Use ``create``, ``resume`` or ``read``."""
        super().__init__(path, connection, intact=intact)
        self._lock = lock

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
            ledger = cls(path, connect(path), own)
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
            with closing(connect_readonly(path)) as db:
                return db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
        except (sqlite3.Error, LedgerError, StackError):
            return True

    @classmethod
    def resume(cls, folder: Path) -> Self:
        """Open the run in ``folder`` to continue it. LedgerError when there is none, or it is in use."""
        path = folder / LEDGER_FILE
        require(path)
        lock = RunLock(folder)
        try:
            ledger = cls(path, connect(path), lock)
            ledger._check()
            ledger._bring_up_to_date()
        except BaseException:
            lock.release()
            raise
        return ledger

    @classmethod
    def read(cls, folder: Path, *, intact: bool = False) -> Self:
        """Open the run in ``folder`` for reading, also while another process is writing it.

        ``intact``: leave out what is damaged and tell it in ``damage``, instead of raising LedgerError.
        """
        path = folder / LEDGER_FILE
        require(path)
        ledger = cls(path, connect_readonly(path), None, intact=intact)
        ledger._check()
        return ledger

    @property
    def folder(self) -> Path:
        return self.path.parent

    def close(self) -> None:
        super().close()
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
        values = {row[0]: row[1] for row in self._table(TABLES["run"])}
        with self._decoding("run"):
            return identity_from_row(values)

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
        rows: list[Row] = []
        for s in ask.suggestions:
            point = to_json(s.values)
            which: Row = (ask.branch, ask.index, ask.round, s.id, point)
            rows.append((*which, s.key, s.config, s.projection, s.infeasible, at))
        self._write("asks", rows, replace=True)

    def forget_asks(self, branch: str, first_index: int) -> None:
        """Drop a branch's asks from the ``first_index``-th on, and what was told of them (a resume that
        departs from the record)."""
        asks = "branch = ? AND ask >= ?"
        tells = f"branch = ? AND suggestion IN (SELECT suggestion FROM asks WHERE {asks})"
        with self._transaction():
            self._forget(TABLES["tells"], tells, (branch, branch, first_index))
            self._forget(TABLES["asks"], asks, (branch, first_index))

    def _forget(self, table: Table, which: str, chosen: tuple[object, ...]) -> None:
        """Take rows out for good, inside a transaction."""
        columns = ", ".join(table.columns)
        rows = self._db.execute(f"SELECT {columns} FROM {table.name} WHERE {which}", chosen).fetchall()
        self._db.execute(f"DELETE FROM {table.name} WHERE {which}", chosen)
        self._seal(table, rows, gone=True)

    def record_trial(self, trial: TrialRecord, *, again: bool = False) -> None:
        """Commit one finished measurement; durable when this returns. LedgerError when it is there already,
        unless it was made ``again``: it then takes the place of the one before."""
        r = trial.result
        row = (trial.key, trial.repeat, r.outcome.value, r.reason, r.traceback, metrics_to_json(r.metrics))
        rest = (r.seconds, time.time(), r.worker, r.pid)
        self._write("trials", [(*row, *rest)], replace=again)

    def record_tells(self, tells: Sequence[TellRecord]) -> None:
        at = time.time()
        rows = [
            (t.branch, t.suggestion, None if t.labels is None else to_json(t.labels), int(t.cache_hit), at)
            for t in tells
        ]
        self._write("tells", rows, replace=True)

    def record_event(self, kind: str, detail: str = "") -> None:
        """Note something of the run's life (started, resumed, interrupted, finished)."""
        with self._mutex:
            ((last,),) = self._rows("SELECT COALESCE(MAX(seq), 0) FROM events")
            self._write("events", [(int(str(last)) + 1, kind, printable(detail), time.time())])

    # -- reading ------------------------------------------------------------------------------------------

    def asks(self) -> tuple[AskRecord, ...]:
        """Every ask, branch by branch, in the order of asking."""
        grouped: dict[tuple[str, int, int], list[SuggestionRecord]] = {}
        for row in sorted(self._table(TABLES["asks"]), key=_place_of_ask):
            with self._decoding(TABLES["asks"].words_of(TABLES["asks"].name_of(row))):
                place, record = suggestion_from_row(row)
                grouped.setdefault(place, []).append(record)
        return tuple(AskRecord(b, i, r, tuple(found)) for (b, i, r), found in grouped.items())

    def trials(self) -> tuple[TrialRecord, ...]:
        """Every finished measurement, in the order of finishing."""
        found = []
        for row in self._table(TABLES["trials"]):
            with self._decoding(TABLES["trials"].words_of(TABLES["trials"].name_of(row))):
                found.append(trial_from_row(row))
        return tuple(found)

    def tells(self) -> tuple[TellRecord, ...]:
        """Everything the studies were told, in that order."""
        found = []
        for row in self._table(TABLES["tells"]):
            with self._decoding(TABLES["tells"].words_of(TABLES["tells"].name_of(row))):
                found.append(tell_from_row(row))
        return tuple(found)

    def events(self) -> tuple[tuple[str, str, float], ...]:
        """(kind, detail, time) of the run's life."""
        rows = self._table(TABLES["events"])
        return tuple((printable(str(k)), printable(str(d)), float(str(at))) for _, k, d, at in rows)

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
            for statement in (*_SCHEMA.split(";"), SEALS_SCHEMA):
                self._db.execute(statement)
            self._put("run", list(values.items()))


def _place_of_ask(row: Row) -> tuple[str, int, int]:
    branch, ask, _, suggestion, *_ = row
    return str(branch), int(str(ask)), int(str(suggestion))
