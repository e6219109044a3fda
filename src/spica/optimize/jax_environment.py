"""How JAX is set up before its first import: double precision, one thread, compilations kept on disk."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path

import platformdirs

_CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"


def cache_directory() -> Path:
    """Where compiled programs are kept between processes: JAX's own variable, else the user's cache."""
    given = os.environ.get(_CACHE_VARIABLE)
    return Path(given) if given else Path(platformdirs.user_cache_dir("spica")) / "jax"


def _usable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)


def prepare() -> None:
    """Set JAX up. Call before importing anything that imports JAX; calling again changes nothing.

    One thread: the matrices are small, so a thread pool costs more than it gains (a fit took 4.2 s with
    OpenBLAS's default of all cores, 0.3 s with one), and evaluations want the cores.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    # Deprecations inside the pinned versions, raised on import; nothing a user could act on.
    for module in ("equinox", "jaxopt"):
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=rf"{module}(\.|$)")
    # Vizier and JAX report every fit and every compilation at INFO, and Vizier a harmless note at WARNING.
    for name in ("absl", "jax", "jax._src", "jaxlib", "vizier"):
        logging.getLogger(name).setLevel(logging.ERROR)

    import jax

    jax.config.update("jax_enable_x64", True)
    directory = cache_directory()
    if _usable(directory):
        jax.config.update("jax_compilation_cache_dir", str(directory))
        # Store small programs too: there are dozens, and together they are most of a cold start.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
