"""The one way to import Vizier: late, and in one thread at a time."""

from __future__ import annotations

import threading

_LOCK = threading.Lock()


def import_vizier() -> None:
    """Make ``spica.optimize.vizier_gp`` importable at once; the first call of a process takes seconds.

    Two threads that import parts of Vizier at the same time can wait for each other.
    """
    with _LOCK:
        from spica.optimize import jax_environment

        jax_environment.prepare()
        import spica.optimize.vizier_gp  # noqa: F401
