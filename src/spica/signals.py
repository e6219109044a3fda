"""Which signals are an interrupt, and what one does while a command loads. Imports next to nothing."""

from __future__ import annotations

import os
import signal
from stat import S_ISCHR

TYPE_CHECKING = False  # as in typing, which takes as long to import as all the rest here
if TYPE_CHECKING:
    from types import FrameType, TracebackType


def interrupts() -> tuple[signal.Signals, ...]:
    """Ctrl-C, a request to end, and a terminal that is lost, unless that is to be outlived (``nohup``)."""
    found = [signal.SIGINT, signal.SIGTERM]
    hang_up = getattr(signal, "SIGHUP", None)  # not on every system
    if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:
        found.append(hang_up)
    return tuple(found)


def as_interrupts() -> None:
    """From here on each of them raises KeyboardInterrupt, as Ctrl-C does. For a program's main thread."""
    for number in interrupts():
        signal.signal(number, _interrupt)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    let_go_of_lost_terminal()
    raise KeyboardInterrupt


def let_go_of_lost_terminal() -> None:
    """Let what would be written to a terminal that has hung up go nowhere.

    Writing to it is an error, and would end what still has results to write. For the handler of a signal;
    does nothing while there is a terminal.
    """
    for descriptor in (1, 2):
        try:
            device = os.fstat(descriptor)
            nowhere = os.stat(os.devnull)  # noqa: PTH116 - pathlib takes long to import
            # Of a terminal that has hung up nothing can be asked any more.
            if S_ISCHR(device.st_mode) and device.st_rdev != nowhere.st_rdev and not os.isatty(descriptor):
                opened = os.open(os.devnull, os.O_WRONLY)
                os.dup2(opened, descriptor)
                os.close(opened)
        except OSError:
            continue


class Loading:
    """While inside, an interrupt ends the process with ``told``: interrupted imports raise all sorts of
    things, and there is nothing to undo yet. In other threads than the main one it does nothing."""

    def __init__(self, told: str) -> None:
        self._told = told
        self._before: dict[signal.Signals, object] = {}

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        let_go_of_lost_terminal()
        os.write(2, f"{self._told}\n".encode())
        os._exit(130)

    def __enter__(self) -> None:
        try:
            for number in interrupts():
                self._before[number] = signal.signal(number, self._handle)
        except ValueError:  # not the main thread
            return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]
