"""Vizier's loss as a compiled program that outlives the process.

Importing Vizier and tracing its model takes more than two seconds of processor time, on the cores on which
replays run. So the traced program is exported once per machine, size and version of what it is made of, and
a later process loads it with nothing but JAX. The first process, too, runs what it has exported: so both
compute the same to the last bit.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray

from spica.optimize import jax_environment
from spica.optimize.parameters import Layout
from spica.storage.remembered import keep_whole
from spica.versions import stack_versions, versions_of

Array = NDArray[np.float64]

# Two threads that import parts of Vizier can wait for each other, and two that need a program both compile
# it; so a suggestion waits for a warm-up instead of doing the same work beside it.
_LOCK = threading.RLock()
# What decides a program beside the stack.
_MADE_WITH = ("jaxlib", "equinox", "tfp-nightly")


@dataclass(frozen=True, slots=True)
class Exported:
    """A program of one size in JAX's serialized form, and the bounds of its parameters, shape ``(size,)``."""

    program: bytes
    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class LossProgram:
    """``run`` takes what ``vizier_gp.loss_and_gradient`` takes. ``low`` and ``high`` are the parameters'
    bounds, in the order of ``layout``."""

    layout: Layout
    low: Array
    high: Array
    run: Any


def loss_program(rows: int, layout: Layout) -> LossProgram:
    """The loss of ``rows`` observations; from the cache of the user, or made by Vizier (seconds)."""
    with _LOCK:
        return _loss_program(rows, layout)


@lru_cache(maxsize=64)
def _loss_program(rows: int, layout: Layout) -> LossProgram:
    jax_environment.prepare()
    file = default_folder() / f"{_digest(rows, layout)}.npz"
    exported = load(file)
    if exported is None:
        exported = _export(rows, layout)
        _keep(file, exported)
    return LossProgram(layout, exported.low, exported.high, _callable(exported.program))


def default_folder() -> Path:
    return Path(platformdirs.user_cache_dir("spica")) / "programs"


def _digest(rows: int, layout: Layout) -> str:
    """Of the size, and of everything that a program is made from."""
    made_by = Path(__file__).with_name("vizier_gp.py").read_text()
    text = json.dumps(
        [rows, layout.continuous, layout.categorical, made_by, versions_of(_MADE_WITH), stack_versions()]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _export(rows: int, layout: Layout) -> Exported:
    import jax
    from jax import export

    from spica.optimize import vizier_gp

    def array(shape: tuple[int, ...], dtype: str = "float64") -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, np.dtype(dtype))

    exported = export.export(jax.jit(vizier_gp.loss_and_gradient))(
        array((layout.size,)),
        array((rows, layout.continuous)),
        array((rows, layout.categorical), "int32"),
        array((rows,)),
        array((3,), "int64"),
    )
    return Exported(bytes(exported.serialize()), *vizier_gp.bounds(layout))


def _callable(program: bytes) -> Any:
    import jax
    from jax import export

    # An exported program calls LAPACK without setting it up; lowering any factorisation does.
    jax.jit(jax.lax.linalg.cholesky).lower(np.eye(1))
    return jax.jit(export.deserialize(bytearray(program)).call)


def load(file: Path) -> Exported | None:
    """What was kept in ``file``; None when there is nothing, or it is damaged."""
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as parts:
            exported = Exported(parts["program"].tobytes(), parts["low"], parts["high"])
            return exported if str(parts["sum"]) == _sum(exported) else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError):
        return None


def _sum(exported: Exported) -> str:
    """By which a program that is not what was kept is none: what JAX does with one is anything."""
    parts = (exported.program, exported.low.tobytes(), exported.high.tobytes())
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _keep(file: Path, exported: Exported) -> None:
    parts = io.BytesIO()
    program = np.frombuffer(exported.program, dtype=np.uint8)
    np.savez(parts, program=program, low=exported.low, high=exported.high, sum=_sum(exported))
    keep_whole(file, parts.getvalue())
