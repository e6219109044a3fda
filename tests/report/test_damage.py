"""Damage of every kind to a run folder: an error or the same answer, never another one."""

from __future__ import annotations

import csv
import io
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from made_run import small_run
from rich.console import Console

from spica.errors import SpicaError
from spica.record import LEDGER_FILE
from spica.report.again import report_run
from spica.report.collect import collect
from spica.report.tables import candidates_json, to_csv
from spica.report.terminal import result_view

FLIPS, CUTS, SWAPS = 100, 40, 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    small_run(folder)
    return folder


def answer(folder: Path) -> str:
    """All that is said of a run, or that it is damaged."""
    try:
        return str(candidates_json(collect(folder)))
    except SpicaError as error:
        return "refused" if error.remedy else "refused without a remedy"


def flipped(data: bytes, rng: random.Random) -> bytes:
    at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def digit(data: bytes, rng: random.Random) -> bytes:
    """One digit of the text in it becomes another one."""
    places = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    at = rng.choice(places)
    other = rng.choice([byte for byte in range(48, 58) if byte != data[at]])
    return data[:at] + bytes([other]) + data[at + 1 :]


@pytest.mark.parametrize(("change", "times"), [(flipped, FLIPS), (cut, CUTS), (digit, SWAPS)])
def test_a_damaged_ledger_is_refused_or_says_the_same(
    whole: Path, tmp_path: Path, change: object, times: int
) -> None:
    assert callable(change)
    said, data = answer(whole), (whole / LEDGER_FILE).read_bytes()
    assert said != "refused"
    refused = 0
    for seed in range(times):
        folder = tmp_path / str(seed) / "run"
        shutil.copytree(whole, folder)
        (folder / LEDGER_FILE).write_bytes(change(data, random.Random(seed)))
        found = answer(folder)
        assert found in (said, "refused"), seed
        refused += found == "refused"
    assert refused > times / 8  # the check can fail; much of a file is empty


@pytest.mark.parametrize("name", ["summary.json", "space.json"])
def test_a_damaged_side_file_changes_no_answer(whole: Path, tmp_path: Path, name: str) -> None:
    leaders = candidates_json(collect(whole))["candidates"]
    contents = [b"", b"{", b"[]", b'{"stop": 3}', b'{"timings": [1]}', b'{"saved": [["x", -1]]}', b"\xff\xfe"]
    for seed, content in enumerate(contents):
        folder = tmp_path / str(seed)
        shutil.copytree(whole, folder)
        (folder / name).write_bytes(content)
        assert candidates_json(collect(folder))["candidates"] == leaders
    folder = tmp_path / "pipe"
    shutil.copytree(whole, folder)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert candidates_json(collect(folder))["candidates"] == leaders


def test_what_is_intact_is_reported_with_what_is_not(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    best = collect(folder).leaders[0]
    with closing(sqlite3.connect(folder / LEDGER_FILE)) as db:
        db.execute("UPDATE trials SET metrics = replace(metrics, '1', '7') WHERE key = ?", (best.key,))
        db.commit()
    assert answer(folder) == "refused"
    report, kept = report_run(folder, intact=True)
    assert kept == ""
    assert [leader.key for leader in report.leaders] == [x.key for x in collect(whole).leaders[1:]]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(result_view(report))
    assert f"trials row key={best.key}, repeat=0" in console.export_text()
    assert f"trials row key={best.key}, repeat=0" in (folder / "report.html").read_text()


@pytest.mark.parametrize("name", ["candidates.json", "trials.csv", "report.html", "deploy", "summary.json"])
def test_reports_write_nothing_outside_the_folder(whole: Path, tmp_path: Path, name: str) -> None:
    folder, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(whole, folder)
    outside.mkdir()
    (outside / "file").write_text("mine")
    target = outside if name == "deploy" else outside / "file"
    for link in (name, f".tmp-{os.getpid()}-{name}", f".{name}.new"):
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(target)
    report_run(folder)
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "mine"
    if name != "summary.json":  # reports read it and leave it
        assert not (folder / name).is_symlink()


def test_a_read_only_folder_is_reported_and_left_alone(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    before = sorted(path.name for path in folder.iterdir())

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spica.record.runfolder.os.open", refuse)  # root may write anywhere
    report, kept = report_run(folder)
    assert report.best is not None
    assert kept == f"{folder} is read-only: its reports stay as they are"
    assert sorted(path.name for path in folder.iterdir()) == before


def test_text_in_a_table_is_no_formula(tmp_path: Path) -> None:
    text = to_csv([{"a": "=1+1", "b": -1.5, "c": "@x", "d": "plain", "e": None}])
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[1] == ["'=1+1", "-1.5", "'@x", "plain", ""]
