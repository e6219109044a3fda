"""Every bad input there is a file or an entry for, through the command line: message, exit code, no
traceback, nothing on stdout, nothing left behind, no hang.

``configs/*.yaml`` declare what is expected in their first lines; ``catalogue.yaml`` holds the rest.
"""

from __future__ import annotations

import gzip
import os
import re
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import yaml

from spica.cli import main
from spica.record import LEDGER_FILE, LOCK_FILE, Ledger, RunIdentity

HERE = Path(__file__).parent
GOOD_CONFIG = """\
search_space: {model_name: Qwen/Qwen3-32B, hardware_sku: h200_sxm}
workload: {isl: 300, osl: 30, concurrency: 4, num_request_ratio: 1}
"""
#: What an attempt to open a damaged run may leave: the lock, and SQLite's own side files.
OF_THE_LEDGER = {LOCK_FILE, f"{LEDGER_FILE}-wal", f"{LEDGER_FILE}-shm"}


@dataclass(frozen=True)
class Case:
    """``run``: the arguments, with ``{dir}`` for the folder of the ``files`` and of what was ``made``."""

    name: str
    run: tuple[str, ...]
    exit: int
    expect: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    needs: str = ""


def declared(path: Path, name: str) -> tuple[str, ...]:
    """The values of the ``# name: value`` lines at the head of a file of any encoding."""
    text = path.read_bytes().decode("latin-1")
    return tuple(re.findall(rf"^# {name}: (.*)$", text, flags=re.MULTILINE))


def cases() -> list[Case]:
    found = [
        Case(
            f"config {path.stem}",
            ("sweep", str(path), "--out", "{dir}/new/run"),
            int(declared(path, "exit")[0]),
            declared(path, "expect"),
        )
        for path in sorted((HERE / "configs").glob("*.yaml"))
    ]
    for name, entry in (yaml.safe_load((HERE / "catalogue.yaml").read_text()) or {}).items():
        found.append(
            Case(
                name,
                tuple(map(str, entry["run"])),
                entry["exit"],
                tuple(entry["expect"]),
                entry.get("files", {}),
                entry.get("made", {}),
                entry.get("needs", ""),
            )
        )
    return found


CASES = cases()


def _ledger(folder: Path, change: Callable[[Path], None]) -> None:
    with Ledger.create(folder, RunIdentity("", "{}", 1, {"spica": "0"})):
        pass
    change(folder / LEDGER_FILE)


def _execute(sql: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db:
            db.executescript(sql)

    return change


def _other_database(path: Path) -> None:
    path.parent.mkdir()
    _execute("CREATE TABLE notes (x); INSERT INTO notes VALUES (1);")(path)


def _noise(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = Random(5).randbytes(len(data) - 4096)
    path.write_bytes(data)


def _cut(share: float) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * share))

    return change


def _folder_for_lock(path: Path) -> None:
    path.with_name(LOCK_FILE).unlink()
    path.with_name(LOCK_FILE).mkdir()


def _folder_with(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        folder.mkdir()
        make(folder / LEDGER_FILE)

    return build


#: Things that are no ordinary files with text.
MAKERS: dict[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "fifo": os.mkfifo,
    "link to nothing": lambda p: p.symlink_to(p.parent / "gone"),
    "link to itself": lambda p: p.symlink_to(p),
    "link to /dev/zero": lambda p: p.symlink_to("/dev/zero"),
    "link to a folder": lambda p: p.symlink_to(p.parent),
    "nul bytes": lambda p: p.write_bytes(bytes(5000)),
    "random bytes": lambda p: p.write_bytes(Random(1).randbytes(5000)),
    "latin-1": lambda p: p.write_bytes("größe: 1\n".encode("latin-1")),
    "a hundred megabytes": lambda p: _sparse(p, 100 * 2**20),
    "a bomb of gzip": lambda p: p.write_bytes(gzip.compress(bytes(64 * 2**20))),
    "locked folder": lambda p: p.mkdir(mode=0o500),
    "run": lambda p: _ledger(p, lambda _: None),
    "run cut in half": lambda p: _ledger(p, _cut(0.5)),
    "run cut in its header": lambda p: _ledger(p, _cut(0.0005)),
    "run of no bytes": lambda p: _ledger(p, _cut(0)),
    "run of random bytes": _folder_with(lambda p: p.write_bytes(Random(2).randbytes(20_000))),
    "run with random pages": lambda p: _ledger(p, _noise),
    "run of another database": lambda p: _other_database(p / LEDGER_FILE),
    "run of format 99": lambda p: _ledger(
        p, _execute("UPDATE run SET value = '99' WHERE name = 'schema_version'")
    ),
    "run without a format": lambda p: _ledger(p, _execute("DELETE FROM run WHERE name = 'schema_version'")),
    "run without trials": lambda p: _ledger(p, _execute("DROP TABLE trials")),
    "run without a seed": lambda p: _ledger(p, _execute("DELETE FROM run WHERE name = 'seed'")),
    "run with a text seed": lambda p: _ledger(
        p, _execute("UPDATE run SET value = 'x' WHERE name = 'seed'")
    ),
    "run without columns": lambda p: _ledger(
        p, _execute("DROP TABLE asks; CREATE TABLE asks (a INTEGER); INSERT INTO asks VALUES (1)")
    ),
    "run with a bad config": lambda p: _ledger(
        p, _execute("UPDATE run SET value = '{' WHERE name = 'config_json'")
    ),
    "run that is a folder": _folder_with(Path.mkdir),
    "run that is a fifo": _folder_with(os.mkfifo),
    "run that links to nothing": _folder_with(lambda p: p.symlink_to("gone")),
    "run that links to /dev/zero": _folder_with(lambda p: p.symlink_to("/dev/zero")),
    "run with a lock folder": lambda p: _ledger(p, _folder_for_lock),
}  # fmt: skip


def _sparse(path: Path, size: int) -> None:
    path.touch()
    os.truncate(path, size)


def build(case: Case, folder: Path) -> None:
    folder.mkdir()
    (folder / "good.yaml").write_text(GOOD_CONFIG)
    for name, text in case.files.items():
        (folder / name).write_text(text)
    for name, kind in case.made.items():
        MAKERS[kind](folder / name)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """What is there, without following links or opening anything but plain files."""
    found = {}
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        plain = stat.S_ISREG(mode) and path.stat().st_size < 10 * 2**20
        if path.name not in OF_THE_LEDGER:
            found[str(path)] = (mode, path.read_bytes() if plain else b"")
    return found


def test_the_catalogue_is_large_and_its_names_are_distinct() -> None:
    assert len(CASES) >= 240
    assert len({case.name for case in CASES}) == len(CASES)
    assert {kind for case in CASES for kind in case.made.values()} == set(MAKERS), "every kind is used"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_input_is_refused_in_words(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "w"
    build(case, folder)
    if case.needs == "permissions" and os.access(folder / "locked", os.W_OK):
        pytest.skip("this user may write anything")
    before = snapshot(folder)
    try:
        code = main([argument.replace("{dir}", str(folder)) for argument in case.run])
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    shown = capsys.readouterr()
    assert code == case.exit, shown.err
    for fragment in case.expect:
        assert fragment.replace("{dir}", str(folder)) in shown.err
    assert case.expect, "a case declares its message"
    assert shown.out == ""
    for never in ("Traceback", "error: unexpected", "pydantic", "\x1b"):
        assert never not in shown.err
    assert len(shown.err) < 20_000
    assert snapshot(folder) == before
