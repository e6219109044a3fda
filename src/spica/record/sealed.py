"""A file of tables whose every row is sealed: written with its seal, read against it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spica.errors import LedgerError
from spica.record.faults import corrupted, explain
from spica.record.seal import SEALS_SCHEMA, START, TABLES, Row, Seal, Table, broken_links, check, seals_for
from spica.text import printable

SCHEMA_VERSION: Final = 3
#: The formats before: trials that do not say which worker had them, and rows without seals. They are read,
#: and brought up to date when the run is continued.
_BEFORE_WORKERS: Final = 1
_BEFORE_SEALS: Final = 2


class SealedFile:
    """The tables of ``seal.TABLES`` in one SQLite file. Safe to use from several threads.

    ``intact``: leave out what is damaged, and tell it in ``damage``, where otherwise LedgerError is raised.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, intact: bool = False) -> None:
        self.path = path
        #: One line for each thing that is not as it was written; only when what is intact was asked for.
        self.damage: tuple[str, ...] = ()
        self._db = connection
        self._mutex = threading.RLock()
        self._format = SCHEMA_VERSION
        self._sealed = True
        self._intact = intact

    def close(self) -> None:
        with self._mutex:
            self._db.close()

    def _check(self) -> None:
        """Raise LedgerError unless this is an undamaged ledger of a version that can be read."""
        try:
            self._check_file()
            self._check_format()
            for line in broken_links(self._seals()):
                self._note(line)
            for table in TABLES.values():
                self._table(table)
        except LedgerError:
            self.close()
            raise

    def _check_file(self) -> None:
        try:
            problems = self._rows("PRAGMA integrity_check(1)")
        except LedgerError as error:
            if not self._intact:
                raise
            problems = [(error.message,)]
        if not problems or problems[0][0] != "ok":
            self._note(str(problems[0][0]) if problems else "empty")
        tables = {row[0] for row in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        missing = set(TABLES) - tables
        if missing:
            raise corrupted(self.path, f"no table {', '.join(sorted(missing))}")
        self._sealed = "seals" in tables

    def _check_format(self) -> None:
        rows = self._rows("SELECT value FROM run WHERE name = 'schema_version'")
        found = rows[0][0] if len(rows) == 1 else None
        readable = {str(number): number for number in (_BEFORE_WORKERS, _BEFORE_SEALS, SCHEMA_VERSION)}
        if not isinstance(found, str) or found not in readable:
            formats = ", ".join(readable)
            raise LedgerError(
                f"{self.path}: written in format {found!r}; this version reads formats {formats}",
                remedy="use the version of Spica that made it, or start a new run",
            )
        self._format = readable[found]
        if self._sealed != (self._format == SCHEMA_VERSION):
            self._note(f"format {found} {'with' if self._sealed else 'without'} seals")

    def _bring_up_to_date(self) -> None:
        """Add what the formats before did not have; their trials keep it empty."""
        if self._format == SCHEMA_VERSION:
            return
        with self._transaction():
            if self._format == _BEFORE_WORKERS:
                self._db.execute("ALTER TABLE trials ADD COLUMN worker INTEGER")
                self._db.execute("ALTER TABLE trials ADD COLUMN pid INTEGER")
            self._db.execute(f"UPDATE run SET value = '{SCHEMA_VERSION}' WHERE name = 'schema_version'")
            self._db.execute(SEALS_SCHEMA)
            for table in TABLES.values():
                columns = ", ".join(table.columns)
                rows = self._db.execute(f"SELECT {columns} FROM {table.name} ORDER BY rowid").fetchall()
                self._seal(table, rows)
        self._format, self._sealed = SCHEMA_VERSION, True

    def _note(self, what: str) -> None:
        """Damage: raised, or kept when only what is intact was asked for."""
        if not self._intact:
            raise corrupted(self.path, what, intact=True)
        self.damage = tuple(dict.fromkeys((*self.damage, printable(what))))

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

    def _write(self, table: str, rows: Sequence[Row], *, replace: bool = False) -> None:
        with self._transaction():
            self._put(table, rows, replace=replace)

    def _put(self, name: str, rows: Sequence[Row], *, replace: bool = False) -> None:
        """Insert rows and their seals, inside a transaction."""
        table = TABLES[name]
        stored = [table.stored(row) for row in rows]
        verb = "INSERT OR REPLACE" if replace else "INSERT"
        places = ", ".join("?" * len(table.columns))
        columns = ", ".join(table.columns)
        self._db.executemany(f"{verb} INTO {name} ({columns}) VALUES ({places})", stored)
        self._seal(table, stored)

    def _seal(self, table: Table, rows: Sequence[Row], *, gone: bool = False) -> None:
        head = self._db.execute("SELECT chain FROM seals ORDER BY seq DESC LIMIT 1").fetchone()
        seals = seals_for(table, rows, head[0] if head else START, gone=gone)
        values = [(seal.part, seal.row, seal.digest, seal.chain) for seal in seals]
        self._db.executemany("INSERT INTO seals (part, row, digest, chain) VALUES (?,?,?,?)", values)

    def _seals(self) -> tuple[Seal, ...]:
        if not self._sealed:
            return ()
        rows = self._readable("SELECT part, row, digest, chain FROM seals ORDER BY seq")
        return tuple(Seal(*(str(value) for value in row)) for row in rows)

    def _table(self, table: Table) -> tuple[Row, ...]:
        """The rows of a table as they were written, in that order.

        LedgerError for one that is not, or without it when only what is intact was asked for.
        """
        lacking = ("worker", "pid") if self._format == _BEFORE_WORKERS else ()
        columns = ", ".join("NULL" if name in lacking else name for name in table.columns)
        with self._mutex, self._snapshot():
            rows = self._readable(f"SELECT {columns} FROM {table.name} ORDER BY rowid")
            if not self._sealed:
                return tuple(rows)
            seals = self._seals()
        checked = check(table, rows, seals)
        for line in checked.damage:
            self._note(line)
        return checked.rows

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """What is read inside belongs together, also while another process writes."""
        try:
            self._db.execute("BEGIN")
        except sqlite3.Error as error:
            raise explain(error, self.path) from error
        try:
            yield
        finally:
            self._roll_back()

    def _readable(self, sql: str) -> list[Row]:
        """The rows up to the first that cannot be read."""
        found: list[Row] = []
        try:
            for row in self._db.execute(sql):
                found.append(row)
        except sqlite3.Error as error:
            if not self._intact:
                raise explain(error, self.path) from error
            self._note(str(error))
        return found

    def _rows(self, sql: str) -> list[Row]:
        with self._mutex:
            try:
                return self._db.execute(sql).fetchall()
            except sqlite3.Error as error:
                raise explain(error, self.path) from error

    @contextmanager
    def _decoding(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            self._note(f"{what}: {error}")
