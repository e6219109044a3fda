"""Errors to messages and exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spica.cli import main
from spica.commands.guard import Guard
from spica.errors import LedgerError, NoViableParallelConfig, StackError, SweepInterrupted


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (LedgerError("no run", remedy="name one"), 2, "error: no run\n    name one\n"),
        (NoViableParallelConfig("nothing"), 1, "error: nothing\n"),
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


COMMANDS = (["models"], ["hardware", "--json"], ["--version"], ["--help"], ["trace", "synth", "--help"])


@pytest.mark.real
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_reader_that_has_left_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "spica", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupted_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spica.commands.listing.print_models", interrupted)
    assert main(["models"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("module", ["typing", "typer", "spica.commands.guard"])
def test_an_interrupt_from_the_first_moment_on_is_no_traceback(module: str) -> None:
    """Sent when the module is looked for, on the way to the command."""
    code = (
        "import os, signal, sys\n"
        "class Strike:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Strike())\n"
        "from spica.cli import main\n"
        "sys.exit(main(['models']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_while_modules_are_loaded_has_its_word() -> None:
    code = (
        "import os, signal\n"
        "from spica.signals import Loading\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with Loading('stopped early'):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped early\n")
