"""Errors to messages and exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spica.commands.guard import Guard
from spica.errors import LedgerError, NothingFeasible, StackError, SweepInterrupted


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (LedgerError("no run", remedy="name one"), 2, "error: no run\n    name one\n"),
        (NothingFeasible("nothing"), 1, "error: nothing\n"),
        (StackError("disk full"), 3, "error: disk full\n"),
        (SweepInterrupted("stopped"), 130, "error: stopped\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (OSError(28, "No space left on device", "/x/y"), 3, "No space left on device (/x/y)"),
        (ImportError("No module named 'vizier'"), 3, "make setup"),
    ],
)
def test_known_errors(error: BaseException, code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Guard() as guard:
        raise error
    assert guard.code == code
    assert told in capsys.readouterr().err


def test_a_fault_goes_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with Guard() as guard:
        raise ZeroDivisionError("by zero")
    shown = capsys.readouterr().err
    assert guard.code == 3
    assert "Traceback" not in shown
    found = re.search(r"details are in (\S+)", shown)
    assert found is not None
    log = Path(found.group(1))
    assert "ZeroDivisionError: by zero" in log.read_text()
    log.unlink()


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with Guard(debug=True):
        raise ZeroDivisionError("by zero")
    assert "Traceback" in capsys.readouterr().err


def test_system_exit_passes() -> None:
    with pytest.raises(SystemExit), Guard():
        raise SystemExit(2)


@pytest.mark.real
def test_a_reader_that_leaves_early_is_no_error() -> None:
    code = f"{sys.executable} -m spica models | head -1"
    done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
