"""Scratch folders: gone at the end, and swept away after a kill; a live one is left alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spica.storage.scratch import OWNER_FILE, PREFIX, scratch_folder

_OWNER = """
from spica.storage.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "file").write_text("x")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_killed_owners_folder_is_removed_and_a_live_ones_is_not(temporary: Path) -> None:
    command = [sys.executable, "-c", _OWNER]
    owners = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    folders = []
    for owner in owners:
        assert owner.stdout is not None
        folders.append(Path(owner.stdout.readline().strip()))
    dead, alive = owners
    dead.kill()
    dead.communicate()
    assert all((folder / "file").is_file() for folder in folders)
    with scratch_folder() as own:
        assert set(temporary.iterdir()) == {own, folders[1]}
        assert (folders[1] / "file").read_text() == "x"
    alive.communicate("\n")
    assert list(temporary.iterdir()) == []


def test_what_is_not_proven_to_be_abandoned_stays(temporary: Path) -> None:
    unlocked = temporary / f"{PREFIX}young"
    unlocked.mkdir()
    target = temporary / "elsewhere"
    target.mkdir()
    (target / OWNER_FILE).write_text("")
    link = temporary / f"{PREFIX}link"
    link.symlink_to(target)
    other = temporary / "spica-notes"
    other.mkdir()
    (other / OWNER_FILE).write_text("")
    with scratch_folder():
        pass
    assert set(temporary.iterdir()) == {unlocked, target, link, other}
    assert (target / OWNER_FILE).exists()


def test_in_a_folder_of_the_callers_choice(tmp_path: Path) -> None:
    parent = tmp_path / "cache"
    parent.mkdir()
    abandoned = parent / f"{PREFIX}old"
    abandoned.mkdir()
    (abandoned / OWNER_FILE).write_text("")
    with scratch_folder(parent) as folder:
        assert folder.parent == parent
        assert list(parent.iterdir()) == [folder]
    assert list(parent.iterdir()) == []
