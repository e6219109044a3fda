"""Writing a trace as the mooncake JSON lines that the replay reads."""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from spica.errors import unwritable
from spica.traffic.collect import MAX_HASH
from spica.traffic.model import MOONCAKE_BLOCK, Request, Trace, TraceNote, block_count

#: The name of the file a replay is fed with.
REPLAY_FILE: Final = "trace.jsonl"


def _blocks(hashes: tuple[int, ...], tokens: int, old: int, new: int) -> Iterator[tuple[int, ...]]:
    """For each new block of a prompt, the old ids that cover it."""
    for start in range(0, tokens, new):
        end = min(start + new, tokens)
        yield hashes[start // old : block_count(end, old)]


def regroup_blocks(trace: Trace, block_size: int = MOONCAKE_BLOCK) -> Trace:
    """The same trace with hash ids for blocks of ``block_size`` tokens.

    Two new blocks get the same id exactly when their prompts agree on every old block up to the end of
    them, so nothing is shared that was not before; what is shared beyond the last whole new block is lost.
    New ids count from 0. Rows without ids stay so. A trace of that block size is returned as it is.
    """
    if trace.block_size == block_size or not trace.has_prefixes:
        return trace if trace.block_size == block_size else replace(trace, block_size=block_size)
    ids: dict[tuple[int, tuple[int, ...]], int] = {}
    rows: list[Request] = []
    for row in trace.requests:
        if row.hash_ids is None:
            rows.append(row)
            continue
        chain: list[int] = []
        for part in _blocks(row.hash_ids, row.input_length, trace.block_size, block_size):
            chain.append(ids.setdefault((chain[-1] if chain else -1, part), len(ids)))
        rows.append(replace(row, hash_ids=tuple(chain)))
    message = f"hash ids for blocks of {trace.block_size} tokens became ids for blocks of {block_size}"
    note = TraceNote("regrouped", len(rows), message)
    return replace(trace, requests=tuple(rows), block_size=block_size, notes=(*trace.notes, note))


def _fresh_ids(trace: Trace) -> Iterator[int]:
    """Unsigned 64-bit ids that no row uses."""
    used = {h for row in trace.requests for h in row.hash_ids or ()}
    free = max(used, default=-1) + 1
    if free + sum(block_count(r.input_length, trace.block_size) for r in trace.requests) > MAX_HASH:
        free = 0
    while True:
        if free not in used:
            yield free
        free += 1


def fill_hash_ids(trace: Trace) -> Trace:
    """Gives rows without hash ids unique ones: the replay wants ids in every row, and these share nothing."""
    bare = sum(row.hash_ids is None for row in trace.requests)
    if not bare:
        return trace
    fresh = _fresh_ids(trace)
    rows = tuple(
        row
        if row.hash_ids is not None
        else replace(
            row,
            hash_ids=tuple(next(fresh) for _ in range(block_count(row.input_length, trace.block_size))),
        )
        for row in trace.requests
    )
    message = f"{bare} rows without prefix information count as sharing nothing"
    return trace.with_requests(rows, TraceNote("filled", bare, message))


def _row(request: Request, closed: bool, first_turn: bool) -> dict[str, object]:
    arrival = request.arrival_ms
    row: dict[str, object] = {
        "timestamp": int(arrival) if arrival == int(arrival) else arrival,
        "input_length": request.input_length,
        "output_length": request.output_length,
    }
    if request.hash_ids is not None:
        row["hash_ids"] = list(request.hash_ids)
    if closed and request.session is not None:
        row["session_id"] = request.session
        if request.delay_ms is not None and not first_turn:
            row["delay"] = request.delay_ms
    return row


@contextmanager
def replacing(path: Path) -> Iterator[io.TextIOWrapper]:
    """A text file that takes ``path``'s place only when all of it was written; gzip for a name in ``.gz``.

    InputError when it cannot be written (no permission, no such folder), StackError for a full disk.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as raw:
            # A fixed time and no name in the gzip header: the same trace gives the same bytes.
            packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.suffix == ".gz" else raw
            with io.TextIOWrapper(packed, "utf-8", newline="\n") as text:
                yield text
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def write_mooncake(trace: Trace, path: str | Path, *, block_size: int | None = None) -> Path:
    """Write ``trace`` as mooncake JSON lines (gzip when the name ends in ``.gz``) and return the path.

    Timestamps are in ms: whole numbers where they are whole, else as they stand. ``block_size`` is the
    number of tokens per hash id in the file (default: the trace's own). Session ids and delays are written
    only for closed sessions, because the replay holds a turn back until the answer to the one before it.
    Rows without hash ids are written without; :func:`fill_hash_ids` first makes a file the replay takes.
    InputError or StackError when the file cannot be written.
    """
    path = Path(path)
    if block_size is not None:
        trace = regroup_blocks(trace, block_size)
    seen: set[str] = set()
    with replacing(path) as text:
        for request in trace.requests:
            first = request.session not in seen
            if request.session is not None:
                seen.add(request.session)
            row = _row(request, trace.closed_sessions, first)
            text.write(json.dumps(row, separators=(", ", ": "), allow_nan=False) + "\n")
    return path


def prepare_replay_file(trace: Trace, out_dir: str | Path, *, block_size: int = MOONCAKE_BLOCK) -> Path:
    """Write the file a replay is fed with (``trace_format="mooncake"``, ``trace_block_size=block_size``).

    It holds exactly the requests of ``trace`` in order, with hash ids in every row. For a clean mooncake
    source the replay's result is the one the source itself gives. Pass ``block_size=trace.block_size`` to
    keep finer blocks (Dynamo traces) as they were recorded. The folder is made if need be.
    """
    out_dir = Path(out_dir)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(out_dir, error) from None
    return write_mooncake(fill_hash_ids(regroup_blocks(trace, block_size)), out_dir / REPLAY_FILE)
