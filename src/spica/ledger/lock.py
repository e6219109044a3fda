"""One process per run folder."""

from __future__ import annotations

import contextlib
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
        self._fd: int | None = None
        while self._fd is None:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
                os.close(fd)
                raise LedgerError(
                    f"{folder} is in use by process {owner}",
                    remedy="wait until it ends, or stop it (Ctrl-C, or kill it) and try again",
                ) from None
            if self._is_current(fd):
                self._fd = fd
            else:
                # Its last owner has removed it since it was opened: a lock that nobody else would meet.
                os.close(fd)
        self._write_pid()

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise explain_os(error, self.path) from error

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False

    def _write_pid(self) -> None:
        """Only for people: a disk that is full shows itself where something depends on it."""
        assert self._fd is not None
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
