"""What an interrupt does while a command loads. Imports next to nothing."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # as in typing, which takes as long to import as all the rest here
if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Loading:
    """While inside, Ctrl-C ends the process with ``told``: interrupted imports raise all sorts of things, and
    there is nothing to undo yet. In other threads than the main one it does nothing."""

    def __init__(self, told: str) -> None:
        self._told = told
        self._before: object = None

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        os.write(2, f"{self._told}\n".encode())
        os._exit(130)

    def __enter__(self) -> None:
        try:
            self._before = signal.signal(signal.SIGINT, self._handle)
        except ValueError:  # not the main thread
            self._before = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]
