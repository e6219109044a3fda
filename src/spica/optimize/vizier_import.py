"""The one way to Vizier: imported late, and used by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.RLock()


@contextmanager
def vizier() -> Iterator[None]:
    """Inside, ``spica.optimize.vizier_gp`` can be imported at once; a process's first block takes seconds.

    Two threads that import parts of Vizier can wait for each other, and two that need a program both compile
    it; so a suggestion waits for a warm-up instead of doing the same work beside it.
    """
    with _LOCK:
        from spica.optimize import jax_environment

        jax_environment.prepare()
        import spica.optimize.vizier_gp  # noqa: F401

        yield
