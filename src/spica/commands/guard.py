"""The one place where errors become messages and exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import TracebackType

from spica.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_STACK, SpicaError
from spica.signals import interrupts
from spica.text import printable


class Guard:
    """Turns whatever ends a command into a message on stderr and ``code``.

    A SpicaError prints itself. A missing package, a full disk and the like are named as what they are.
    Anything else is a fault of Spica: the traceback goes to a file (to the screen with ``debug``) and its
    path is shown. SystemExit passes through.
    """

    def __init__(self, *, debug: bool = False) -> None:
        self.debug = debug
        self.code = EXIT_OK

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        if error is None:
            return False
        if isinstance(error, SystemExit):
            return False
        if self.debug:
            traceback.print_exception(error)
        self.code = self._report(error)
        return True

    def _report(self, error: BaseException) -> int:
        if isinstance(error, SpicaError):
            _say(f"error: {error}")
            return error.exit_code
        if isinstance(error, KeyboardInterrupt):
            _say("interrupted")
            return EXIT_INTERRUPTED
        if isinstance(error, BrokenPipeError):
            # Nobody reads on; point stdout elsewhere so that the interpreter's last flush does not fail too.
            sys.stdout = sys.__stdout__ or sys.stdout  # not a library's wrapper
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_OK
        if isinstance(error, ImportError):
            _say(f"error: a component cannot be imported: {error}")
            _say("    install the locked requirements again: make setup")
            return EXIT_STACK
        if isinstance(error, OSError):
            name = f" ({error.filename})" if error.filename else ""
            _say(f"error: the system refused: {error.strerror or error}{name}")
            return EXIT_STACK
        _say(f"error: unexpected {type(error).__name__}: {error}")
        if not self.debug:
            _say(f"    this is a fault of spica; the details are in {_crash_log(error)}")
        return EXIT_STACK


def underlying(error: BaseException, *kinds: type[BaseException]) -> BaseException | None:
    """The first of ``kinds`` in whose handling ``error`` was raised. Libraries turn an interrupt, or a reader
    that has gone, into a SystemExit of their own."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, kinds):
        at = at.__cause__ or at.__context__
    return at


def leave(code: object) -> None:
    """End the process with ``code`` if threads are still at work; else return, for an ordinary exit.

    A thread may be inside the compiler of the optimizer's model, for seconds or minutes. It can be neither
    stopped nor is it worth waiting for, and the interpreter must not be taken down under it. All files are
    written and synced by now, and the workers are gone, so that nothing is lost by not unwinding.

    An interrupt from here on ends the process without a word: all is done, and Python's would be a traceback.
    """
    for number in interrupts():
        signal.signal(number, lambda signum, frame: os._exit(EXIT_INTERRUPTED))
    if threading.active_count() == 1 or not (code is None or isinstance(code, int)):
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code or EXIT_OK)


def _crash_log(error: BaseException) -> Path:
    """A new file with the traceback."""
    handle, name = tempfile.mkstemp(prefix="spica-crash-", suffix=".log")
    os.close(handle)
    path = Path(name)
    path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return path


def _say(text: str) -> None:
    print(printable(text, lines=True), file=sys.stderr)
