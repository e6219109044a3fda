"""Digests that make a changed record show itself.

Every row of a ledger has a seal: the SHA-256 of its values. The seals are kept in the order of writing, and
each carries the SHA-256 of itself and of the one before, so that neither a row nor a seal can be changed,
dropped, added or moved by accident without being noticed. They are no signature: who rewrites the rows and
all of their seals goes unnoticed, as in any file without a key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

Row = tuple[object, ...]

#: What the first seal follows.
START: Final = hashlib.sha256(b"spica ledger").hexdigest()
#: The digest in the seal of a row that was taken out on purpose.
GONE: Final = ""

SEALS_SCHEMA: Final = (
    "CREATE TABLE seals (seq INTEGER PRIMARY KEY AUTOINCREMENT, part TEXT NOT NULL, row TEXT NOT NULL, "
    "digest TEXT NOT NULL, chain TEXT NOT NULL) STRICT"
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the ledger: its columns in the order of their digest, the ones that name a row, and those
    that hold real numbers (an integer given for one comes back as a float)."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    reals: frozenset[str] = frozenset({"at", "seconds"})

    def stored(self, row: Sequence[object]) -> Row:
        """``row`` as SQLite gives it back."""
        return tuple(
            float(value) if name in self.reals and isinstance(value, int) else value
            for name, value in zip(self.columns, row, strict=True)
        )

    def name_of(self, row: Row) -> str:
        """What names a row, as JSON text."""
        return json.dumps(
            [row[self.columns.index(name)] for name in self.key], separators=(",", ":"), default=repr
        )

    def words_of(self, row_name: str) -> str:
        """The same for people: ``trials row key=..., repeat=0``."""
        try:
            values = json.loads(row_name)
            named = ", ".join(f"{k}={v}" for k, v in zip(self.key, values, strict=True))
        except (ValueError, TypeError):
            named = row_name
        return f"{self.name} row {named}"


TABLES: Final = {
    table.name: table
    for table in (
        Table("run", ("name", "value"), ("name",)),
        Table(
            "asks",
            (
                "branch",
                "ask",
                "round",
                "suggestion",
                "point",
                "key",
                "config",
                "projection",
                "infeasible",
                "at",
            ),
            ("branch", "suggestion"),
        ),
        Table(
            "trials",
            (
                "key",
                "repeat",
                "outcome",
                "reason",
                "traceback",
                "metrics",
                "seconds",
                "at",
                "worker",
                "pid",
            ),
            ("key", "repeat"),
        ),
        Table("tells", ("branch", "suggestion", "labels", "cache_hit", "at"), ("branch", "suggestion")),
        Table("events", ("seq", "kind", "detail", "at"), ("seq",)),
    )
}


@dataclass(frozen=True, slots=True)
class Seal:
    """``row`` is the row's name, ``digest`` that of its values, ``chain`` of this seal and the one before."""

    part: str
    row: str
    digest: str
    chain: str


def digest(table: Table, row: Row) -> str:
    """The SHA-256 of a row's values, exact for every float."""
    # What only damage can put there (bytes, say) has no JSON, and must not match.
    text = json.dumps([table.name, *row], separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def seals_for(table: Table, rows: Iterable[Row], after: str, *, gone: bool = False) -> list[Seal]:
    """The seals of rows that are written (or, ``gone``, taken out) now, following the chain ``after``."""
    made = []
    for row in rows:
        name, value = table.name_of(row), GONE if gone else digest(table, row)
        after = link(after, table.name, name, value)
        made.append(Seal(table.name, name, value, after))
    return made


def link(before: str, part: str, row: str, value: str) -> str:
    """The chain's next value."""
    return hashlib.sha256("\n".join((before, part, row, value)).encode()).hexdigest()


def broken_links(seals: Sequence[Seal]) -> list[str]:
    """One line for the first seal that does not follow the one before it; nothing when all do."""
    before = START
    for number, seal in enumerate(seals, start=1):
        if link(before, seal.part, seal.row, seal.digest) != seal.chain:
            return [f"seal {number} of {len(seals)} does not follow the one before it"]
        before = seal.chain
    return []


@dataclass(frozen=True, slots=True)
class Checked:
    """The rows of a table that are as they were written, and one line for each one that is not."""

    rows: tuple[Row, ...]
    damage: tuple[str, ...]


def check(table: Table, rows: Sequence[Row], seals: Sequence[Seal]) -> Checked:
    """Hold rows, in their order in the table, against the seals, in the order of writing."""
    last = {seal.row: (number, seal.digest) for number, seal in enumerate(seals) if seal.part == table.name}
    sound: list[Row] = []
    damage: list[str] = []
    seen: set[str] = set()
    latest = -1
    for row in rows:
        name = table.name_of(row)
        words = table.words_of(name)
        number, value = last.get(name, (-1, GONE))
        if value == GONE or name in seen:
            damage.append(f"{words}: it was not written by a sweep")
        elif value != digest(table, row):
            damage.append(f"{words}: it is not what was written")
        elif number < latest:
            damage.append(f"{words}: it is not in its place")
        else:
            sound.append(row)
        seen.add(name)
        latest = max(latest, number)
    missing = [name for name, (_, value) in last.items() if value != GONE and name not in seen]
    damage += [f"{table.words_of(name)}: it is missing" for name in missing]
    return Checked(tuple(sound), tuple(damage))
