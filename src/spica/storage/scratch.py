"""Short-lived folders, and what killed processes left of them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "spica-scratch-"
#: Locked by the folder's owner for as long as it lives; the kernel releases it, however the owner ends.
OWNER_FILE: Final = "owner.lock"


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder of its own in ``parent`` (default: the system's temporary folder), removed at the end.

    Folders that killed processes of this user have left there are removed first.
    """
    parent = parent or Path(tempfile.gettempdir())
    remove_stale(parent)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    owner = -1
    try:
        owner = _own(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if owner >= 0:
            os.close(owner)


def _own(folder: Path) -> int:
    """The descriptor that holds the lock. The file gets its name when it is locked, so that nobody finds it
    and take it for an abandoned one."""
    nameless = folder / ".owner"
    owner = os.open(nameless, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(owner, fcntl.LOCK_EX)
    nameless.rename(folder / OWNER_FILE)
    return owner


def remove_stale(parent: Path) -> None:
    """Remove the scratch folders in ``parent`` that are this user's and whose owners are proven dead."""
    with suppress(OSError):
        for folder in list(parent.glob(f"{PREFIX}*")):
            with suppress(OSError):
                _remove_if_stale(folder)


def _remove_if_stale(folder: Path) -> None:
    if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
        return
    # Raises OSError when there is none: nothing is known of the owner, so the folder stays.
    descriptor = os.open(folder / OWNER_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError when the owner lives
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
