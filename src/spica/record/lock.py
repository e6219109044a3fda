"""One process per run folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from spica.errors import LedgerError
from spica.record.faults import explain_os

LOCK_FILE = "run.lock"


def _in_use(folder: Path, fd: int) -> LedgerError:
    owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
    return LedgerError(
        f"{folder} is in use by process {owner}",
        remedy="wait until it ends, or stop it (Ctrl-C, or kill it) and try again",
    )


def refuse_in_use(folder: Path) -> None:
    """Raise LedgerError when a process holds the lock of ``folder``; changes nothing there."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(folder, fd) from None
    finally:
        os.close(fd)


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
                error = _in_use(folder, fd)
                os.close(fd)
                raise error from None
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
