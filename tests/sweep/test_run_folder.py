"""The run folder is one process's from before its first file; a start that failed leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spica.errors import InputError, LedgerError
from spica.record import LOCK_FILE, Ledger, RunIdentity, RunLock
from spica.record.runfolder import new_folder

IDENTITY = RunIdentity("", "{}", 1, {})
_HOLDER = """
import sys
from pathlib import Path
from spica.record.runfolder import new_folder
try:
    with new_folder(Path(sys.argv[1])) as owned:
        (owned.path / "trace.jsonl").write_text("mine")
        print("ready", flush=True)
        if input() == "fail":
            raise RuntimeError
except RuntimeError:
    pass
"""


class Holder:
    """Another process that begins a run in ``folder`` and has not recorded anything yet."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def end(self, how: str) -> None:
        if how == "kill":
            self.process.kill()
        self.process.communicate("fail\n" if how == "fail" else None)


def test_a_second_start_is_refused_before_the_first_has_a_record(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = Holder(run)
    before = sorted((p.name, p.stat().st_mtime_ns) for p in run.iterdir())
    with (
        pytest.raises(LedgerError, match=f"in use by process {first.process.pid}") as refused,
        new_folder(run),
    ):
        pytest.fail("two processes in one folder")
    assert refused.value.exit_code == 2
    assert sorted((p.name, p.stat().st_mtime_ns) for p in run.iterdir()) == before
    first.end("fail")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_that_is_taken_meanwhile(tmp_path: Path) -> None:
    """Both saw an empty folder; the one that is late for the lock goes without touching anything."""
    lock = RunLock(tmp_path)
    with pytest.raises(LedgerError, match="in use"), new_folder(tmp_path):
        pytest.fail("two in one folder")
    lock.release()
    with new_folder(tmp_path) as owned:
        assert owned.path == tmp_path


def test_what_a_killed_start_left_counts_as_empty(tmp_path: Path) -> None:
    run = tmp_path / "run"
    Holder(run).end("kill")
    assert {p.name for p in run.iterdir()} == {LOCK_FILE, "trace.jsonl"}
    with (
        new_folder(run) as owned,
        Ledger.create(run, IDENTITY, lock=owned.lock),
        pytest.raises(LedgerError, match=f"in use by process {os.getpid()}"),
    ):
        Ledger.resume(run)
    with Ledger.resume(run):
        pass


def test_a_trace_of_the_users_own_is_not_taken_for_a_leftover(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").write_text("mine")
    with pytest.raises(InputError, match="not empty"), new_folder(tmp_path):
        pytest.fail("it holds the user's file")
    assert (tmp_path / "trace.jsonl").read_text() == "mine"


def test_a_failed_start_removes_the_folders_it_made_and_only_those(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()

    def fail() -> None:
        with new_folder(tmp_path / "kept" / "a" / "b") as owned:
            (owned.path / "half").mkdir()
            (owned.path / "half" / "written").write_text("")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]
    assert list((tmp_path / "kept").iterdir()) == []


def test_default_folders_of_one_second_are_numbered(tmp_path: Path) -> None:
    wanted = tmp_path / "runs" / "x"
    with (
        new_folder(wanted, numbered=True) as first,
        new_folder(wanted, numbered=True) as second,
        new_folder(wanted, numbered=True) as third,
    ):
        assert [f.path.name for f in (first, second, third)] == ["x", "x-2", "x-3"]


def test_a_lock_file_that_was_removed_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process opens the lock file, its owner removes it and goes: a new file must be locked."""
    path = tmp_path / LOCK_FILE
    real = RunLock._open
    opened: list[int] = []

    def open_then_remove(self: RunLock) -> int:
        opened.append(real(self))
        if len(opened) == 1:
            path.unlink()
        return opened[-1]

    monkeypatch.setattr(RunLock, "_open", open_then_remove)
    lock = RunLock(tmp_path)
    monkeypatch.undo()
    assert len(opened) == 2
    with pytest.raises(LedgerError, match="in use"):
        RunLock(tmp_path)
    lock.release()


def test_many_starts_at_once_have_one_winner(tmp_path: Path) -> None:
    run, gate = tmp_path / "run", threading.Barrier(8)
    won: list[int] = []
    refused: list[LedgerError] = []

    def start(number: int) -> None:
        gate.wait()
        try:
            with new_folder(run) as owned, Ledger.create(run, IDENTITY, lock=owned.lock):
                won.append(number)
        except LedgerError as error:
            refused.append(error)

    threads = [threading.Thread(target=start, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(refused)) == (1, 7)
    with Ledger.resume(run) as ledger:
        assert ledger.identity() == IDENTITY
