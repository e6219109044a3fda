"""Ctrl-C: once to stop in order, twice to stop at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from spica.errors import EXIT_INTERRUPTED, SweepInterrupted
from spica.record.results import SweepResult
from spica.signals import interrupts, let_go_of_lost_terminal

#: The most that killing the workers may delay the end after a second interrupt.
KILL_SECONDS: Final = 2.0
#: Interrupts before the search after which nothing is undone any more.
PATIENCE: Final = 3
_SHOW_CURSOR: Final = "\x1b[?25h"


class StopFlag:
    """Set once; the sweep looks at it several times a second."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def request(self) -> None:
        self._event.set()

    @property
    def requested(self) -> bool:
        return self._event.is_set()


@contextmanager
def stop_on_interrupt(
    stop: StopFlag, *, kill_workers: Callable[[], None], farewell: str = ""
) -> Iterator[None]:
    """While inside, the first interrupt (``spica.signals``) asks the sweep to stop; the second kills the
    workers and ends the process with exit code 130, without unwinding; ``farewell`` is then the last word on
    stderr.

    Only in the main thread; elsewhere (a notebook's worker thread) it does nothing, since signals cannot be
    handled there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        let_go_of_lost_terminal()
        if stop.requested:
            # In a thread: the main one may be anywhere, also inside a lock that killing needs.
            killer = threading.Thread(target=kill_workers, daemon=True)
            killer.start()
            killer.join(KILL_SECONDS)
            _say_at_once(farewell)
            os._exit(EXIT_INTERRUPTED)
        stop.request()

    before = {s: signal.signal(s, handle) for s in interrupts()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_at_once(text: str) -> None:
    """Write to stderr past Python's buffers, whose locks the interrupted code may hold. A live display stays
    as it is, but for the cursor that it had hidden."""
    if text:
        shown = f"\n{_SHOW_CURSOR}{text}\n" if os.isatty(2) else f"{text}\n"
        with suppress(OSError):
            os.write(2, shown.encode())


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """While inside, the first interrupt raises KeyboardInterrupt, so that what has been begun is
    undone; the second one does not disturb that, the third ends the process at once. Only in the main thread,
    as above."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    struck = 0

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal struck
        let_go_of_lost_terminal()
        struck += 1
        if struck == 1:
            raise KeyboardInterrupt
        if struck == PATIENCE:
            os._exit(EXIT_INTERRUPTED)

    before = {s: signal.signal(s, handle) for s in interrupts()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def how_to_continue(folder: str) -> str:
    """The command that goes on with the run in ``folder``."""
    return f"continue with: spica sweep --resume {folder}"


def raise_if_interrupted(result: SweepResult, folder: str) -> None:
    """Raise SweepInterrupted, saying how to go on, when the sweep was stopped by the user.

    For after the results so far have been written.
    """
    if result.stop == "interrupted":
        found = len(result.candidates)
        what = f"interrupted; {found} measured candidate{'s' * (found != 1)} in {folder}"
        raise SweepInterrupted(
            what if found else f"interrupted before any candidate was measured; the run is in {folder}",
            remedy=how_to_continue(folder),
        )
