"""Finding a trace's format, reading it, and putting it in order; every problem is reported at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from spica.errors import Problem, TraceError
from spica.traffic.collect import Gathered, shown
from spica.traffic.model import (
    MOONCAKE_BLOCK,
    TRACE_FORMATS,
    Request,
    Trace,
    TraceFormat,
    TraceNote,
    resolve_format,
)
from spica.traffic.readers import Reader, Rows
from spica.traffic.readers.dynamo import SCHEMA, read_dynamo
from spica.traffic.readers.lists import MS_KEYS, OUTPUT_KEYS, PROMPT_KEYS, SECONDS_KEYS, read_lists
from spica.traffic.readers.mooncake import read_mooncake
from spica.traffic.readers.tables import AZURE_COLUMNS, BURSTGPT_COLUMNS, read_azure, read_burstgpt
from spica.traffic.shards import SHARDED, is_empty, read_shards, refuse_folder, trace_files
from spica.traffic.source import DECODER, numbered_lines

ZeroOutput = Literal["drop", "clamp"]

READERS: Final[dict[TraceFormat, Reader]] = {
    "mooncake": read_mooncake,
    "azure": read_azure,
    "burstgpt": read_burstgpt,
    "requests": read_lists,
    "dynamo": read_dynamo,
}

_MOONCAKE_KEYS: Final = ("timestamp", "input_length", "output_length")

#: A mooncake arrival beyond this is an epoch time (11 September 2001 in ms), not an offset of 31 years.
EPOCH_MS: Final = 1e12


def _scores(first: str) -> dict[TraceFormat, float]:
    """How much of each format's signature the first line shows, 0 to 1."""
    text = first.strip()
    if not text.startswith(("{", "[")):
        header = {cell.strip().strip('"') for cell in text.split(",")}
        return {
            "azure": sum(c in header for c in AZURE_COLUMNS) / len(AZURE_COLUMNS),
            "burstgpt": sum(c in header for c in BURSTGPT_COLUMNS) / len(BURSTGPT_COLUMNS),
        }
    if text.startswith("["):
        return {"requests": 1.0}
    try:
        row = DECODER.decode(text)
    except (ValueError, RecursionError):
        # Not a row by itself: one object over several lines, or damaged; the key names tell.
        keys = {k for k in ("schema", *_MOONCAKE_KEYS, "input_lens", *PROMPT_KEYS) if f'"{k}"' in text}
        row = dict.fromkeys(keys) if keys else {}
        if not keys:
            return {"requests": 0.5} if text == "{" else {}
    return _row_scores(row) if isinstance(row, dict) else {}


def _row_scores(row: dict[str, object]) -> dict[TraceFormat, float]:
    event = row.get("event", row)
    if isinstance(event, dict) and (event.get("schema") == SCHEMA or "event_type" in event):
        return {"dynamo": 1.0}
    mooncake = sum(k in row for k in _MOONCAKE_KEYS) / len(_MOONCAKE_KEYS)
    groups = (PROMPT_KEYS, OUTPUT_KEYS, (*SECONDS_KEYS, *MS_KEYS))
    listed = sum(any(k in row for k in names) for names in groups) / len(groups)
    if any(k in row for k in ("conversations", "input_lens")):
        listed = 1.0
    # A mooncake row also reads as a list of requests; its own names decide.
    return {"mooncake": mooncake, "requests": listed - 0.01}


def detect_format(path: Path) -> TraceFormat:
    """The format of a trace file, told from its first line that is not blank.

    TraceError when it is none of them, naming the closest and what is missing for it.
    """
    first = next(((n, t) for n, t in numbered_lines(path) if t.strip()), None)
    if first is None:
        raise TraceError(Problem("holds nothing but blank lines", where=str(path)))
    scores = _scores(first[1])
    best = max(scores, key=lambda name: scores[name], default=None)
    if best is not None and scores[best] > 0.5:
        return best
    near = best if best is not None and scores[best] > 0 else ""
    raise TraceError(
        Problem(
            f"not a trace format known here; the line reads {shown(first[1].strip(), 80)}",
            where=f"{path}:{first[0]}",
            allowed="; ".join(f"{name}: {what}" for name, what in TRACE_FORMATS.items()),
            remedy=f"closest is {near}: {TRACE_FORMATS[near]}" if near else "",
        )
    )


def _format_of(path: Path, given: TraceFormat | None) -> TraceFormat:
    """The format to read with; TraceError when the file plainly is another than the one given."""
    if given is None:
        return detect_format(path)
    first = next((t for _, t in numbered_lines(path) if t.strip()), "")
    scores = _scores(first)
    for name, score in scores.items():
        if score >= 0.99 and name != given and scores.get(given, 0.0) < 0.5:
            problem = Problem(
                f"is not {'an' if given == 'azure' else 'a'} {given} trace: it looks like {name}",
                where=str(path),
                key="trace_format",
                suggestion=name,
                allowed=f"{given}: {TRACE_FORMATS[given]}",
            )
            raise TraceError(problem)
    return given


def _zero_lengths(requests: Iterable[Request], policy: ZeroOutput) -> tuple[list[Request], list[TraceNote]]:
    """Rows that ask for nothing: no prompt is dropped; no output is dropped or taken as one token."""
    kept: list[Request] = []
    no_input = no_output = 0
    for request in requests:
        if request.input_length == 0:
            no_input += 1
        elif request.output_length == 0:
            no_output += 1
            if policy == "clamp":
                kept.append(replace(request, output_length=1))
        else:
            kept.append(request)
    notes: list[TraceNote] = []
    if no_input:
        notes.append(TraceNote("dropped", no_input, f"dropped {no_input} row(s) with an empty prompt"))
    if no_output and policy == "drop":
        message = f"dropped {no_output} row(s) without output (failed or cancelled requests)"
        notes.append(TraceNote("dropped", no_output, message))
    elif no_output:
        notes.append(TraceNote("clamped", no_output, f"{no_output} row(s) without output count as 1 token"))
    return kept, notes


def _order(requests: list[Request], relative: bool) -> tuple[list[Request], list[TraceNote]]:
    """By arrival (ties stay in file order), counting from the first arrival unless already relative."""
    notes: list[TraceNote] = []
    late = sum(b.arrival_ms < a.arrival_ms for a, b in pairwise(requests))
    if late:
        requests = sorted(requests, key=lambda r: r.arrival_ms)
        notes.append(
            TraceNote("sorted", late, f"rows were not in arrival order ({late} step(s) back): sorted")
        )
    origin = requests[0].arrival_ms if requests else 0.0
    if origin and (not relative or origin >= EPOCH_MS):
        requests = [replace(r, arrival_ms=round(r.arrival_ms - origin, 6)) for r in requests]
        message = f"arrivals count from the first request ({origin:.0f} ms was taken off)"
        notes.append(TraceNote("rebased", len(requests), message))
    return requests, notes


def _nothing_left(requests: Sequence[Request], path: Path) -> Problem:
    """Why a trace has no row to replay, with the first that cannot be."""
    if not requests:
        return Problem("holds no request", where=str(path))
    first = min(requests, key=lambda r: (r.source, r.line))
    ends = f"{first.input_length} prompt and {first.output_length} output tokens"
    what = "its only row has" if len(requests) == 1 else f"all its {len(requests)} rows have"
    clamp = "rows without output alone: spica trace convert --zero-output clamp counts them as 1 token"
    return Problem(
        f"{what} zero lengths, this one {ends}",
        where=f"{first.source or path}:{first.line}",
        allowed="prompt and output of at least 1 token",
        remedy=clamp if any(r.input_length for r in requests) else "",
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # what cannot be looked up is refused when it is opened
        return False


def _read_folder(
    path: Path, given: TraceFormat | None, gathered: Gathered, block_size: int
) -> tuple[TraceFormat, Rows]:
    """The merged shards of a folder; TraceError when it holds another format."""
    if given not in (None, SHARDED):
        raise refuse_folder(path, given)
    shards = trace_files(path)
    for shard in shards:
        if not is_empty(shard) and (found := _format_of(shard, given)) != SHARDED:
            raise refuse_folder(path, found)
    return SHARDED, read_shards(path, shards, READERS[SHARDED], gathered, block_size)


def read_trace(
    path: str | Path,
    trace_format: str = "auto",
    *,
    zero_output: ZeroOutput = "drop",
    block_size: int = MOONCAKE_BLOCK,
) -> Trace:
    """Read and check a trace file (plain or gzip) of any format, or a folder of Dynamo's shards.

    ``trace_format`` is one of TRACE_FORMATS, an alias, or ``auto``. ``zero_output`` says what becomes of rows
    without output tokens (rows without prompt tokens are always dropped; the replay refuses them).
    ``block_size`` is the number of tokens per hash id of a mooncake file. All that was changed is in the
    notes of the trace; TraceError names all that cannot be read, by line.
    """
    path = Path(path)
    given = resolve_format(trace_format)
    gathered = Gathered(str(path))
    if _is_folder(path):
        name, rows = _read_folder(path, given, gathered, block_size)
    else:
        name = _format_of(path, given)
        rows = READERS[name](path, gathered, block_size)
    gathered.raise_if_any()
    kept, zero_notes = _zero_lengths(rows.requests, zero_output)
    if not kept:
        raise TraceError(_nothing_left(rows.requests, path))
    ordered, order_notes = _order(kept, rows.relative)
    notes = (*rows.notes, *zero_notes, *order_notes)
    return Trace(tuple(ordered), name, notes, rows.block_size, rows.closed_sessions, str(path))
