"""A trace in several files: the folder of shards that Dynamo's request tracing leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from spica.errors import Problem, TraceError
from spica.traffic.collect import Gathered
from spica.traffic.model import Request, TraceFormat, TraceNote
from spica.traffic.readers import Reader, Rows
from spica.traffic.source import numbered_lines

SUFFIXES: Final = (".jsonl", ".jsonl.gz")
#: The one format that is written in shards.
SHARDED: Final[TraceFormat] = "dynamo"


def trace_files(path: Path) -> tuple[Path, ...]:
    """The files of a trace: itself, or the shards of a folder, sorted by name.

    Raises TraceError for a folder without any, or one that cannot be listed.
    """
    if not path.is_dir():
        return (path,)
    try:
        found = sorted(p for p in path.iterdir() if p.name.endswith(SUFFIXES) and not p.name.startswith("."))
    except OSError as error:
        raise TraceError(Problem(f"cannot be listed: {error.strerror or error}", where=str(path))) from None
    if not found:
        message = f"is a directory without shards of a {SHARDED} trace"
        remedy = "name one trace file, or a folder of shards"
        raise TraceError(Problem(message, where=str(path), allowed=" or ".join(SUFFIXES), remedy=remedy))
    return tuple(found)


def refuse_folder(path: Path, given: str) -> TraceError:
    """The error for a folder whose trace is of a format that is never written in shards."""
    return TraceError(
        Problem(
            f"is a directory, and {'an' if given == 'azure' else 'a'} {given} trace is one file",
            where=str(path),
            allowed=f"a folder of shards for {SHARDED} only",
            remedy="name the file",
        )
    )


def read_shards(path: Path, shards: tuple[Path, ...], reader: Reader, gathered: Gathered, block: int) -> Rows:
    """The rows of all shards, merged by arrival; ties by shard, then by line.

    Shards without a line are counted in a note. Problems go to ``gathered`` under the shard's name.
    """
    requests: list[Request] = []
    notes: dict[tuple[str, str], TraceNote] = {}
    sizes: dict[int, Path] = {}
    empty = 0
    for shard in shards:
        if is_empty(shard):
            empty += 1
            continue
        gathered.source = str(shard)
        rows = reader(shard, gathered, block)
        requests += [replace(row, source=str(shard)) for row in rows.requests]
        if rows.requests:
            sizes.setdefault(rows.block_size, shard)
        for note in rows.notes:
            _add(notes, note)
    gathered.source = str(path)
    if len(sizes) > 1:
        told = ", ".join(f"{size} ({shard.name})" for size, shard in sizes.items())
        gathered.add(0, f"blocks of several sizes: {told}", key="request.replay.trace_block_size")
    merged = TraceNote("merged", len(shards), f"{len(shards)} shards were merged by arrival")
    found = [merged, *notes.values()]
    if empty:
        found.append(TraceNote("ignored", empty, f"{empty} of the shards are empty"))
    requests.sort(key=lambda row: row.arrival_ms)
    return Rows(requests, tuple(found), next(iter(sizes), block))


def is_empty(shard: Path) -> bool:
    """Whether a shard holds no row at all: tracing stopped right after it was begun."""
    if shard.is_file() and shard.stat().st_size == 0:
        return True
    return not any(text.strip() for _, text in numbered_lines(shard))


def _add(notes: dict[tuple[str, str], TraceNote], note: TraceNote) -> None:
    """One note for what happened in several shards: the messages of this format start with their count."""
    rest = note.message.removeprefix(f"{note.count} ")
    before = notes.get((note.kind, rest))
    total = note.count + (before.count if before else 0)
    notes[note.kind, rest] = TraceNote(note.kind, total, f"{total} {rest}")
