"""One reader per trace format, and what they all hand back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spica.traffic.collect import Gathered
from spica.traffic.model import MOONCAKE_BLOCK, Request, TraceNote


@dataclass(frozen=True, slots=True)
class Rows:
    """What a reader found: rows in file order, before sorting, rebasing and the zero-length policy.

    ``relative`` says that arrivals already count from the start of the trace (and are left as they stand).
    """

    requests: list[Request]
    notes: tuple[TraceNote, ...] = ()
    block_size: int = MOONCAKE_BLOCK
    closed_sessions: bool = False
    relative: bool = False


#: Reads a file; problems are gathered rather than raised. ``block_size`` is that of the file's hash ids.
Reader = Callable[[Path, Gathered, int], Rows]
