"""One process per run folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from spica.errors import LedgerError
from spica.ledger.faults import explain_os

LOCK_FILE = "run.lock"


class RunLock:
    """An exclusive lock on a run folder, held until ``release`` or the end of the process, however it ends.

    The kernel drops it with the process, so there are no stale locks; the file holds the owner's pid.
    """

    def __init__(self, folder: Path) -> None:
        """Raises LedgerError when another process (or this one) holds it, naming its pid."""
        self.path = folder / LOCK_FILE
        try:
            self._fd: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise explain_os(error, self.path) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            self.release()
            raise LedgerError(
                f"{folder} is in use by process {owner}",
                remedy="wait until it ends, or stop it (Ctrl-C, or kill it) and try again",
            ) from None
        self._write_pid()

    def _write_pid(self) -> None:
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self.release()
            raise explain_os(error, self.path) from error

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
