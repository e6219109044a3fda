"""Request lists as vLLM- and ShareGPT-style tools keep them: JSON list, JSON lines, or an object of columns.

There is no single convention, so each field is looked for under the names below, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from spica.traffic.collect import Gathered, read_number, read_session, read_tokens, shown
from spica.traffic.model import Request, TraceNote
from spica.traffic.readers import Rows
from spica.traffic.readers.tables import ticks
from spica.traffic.source import json_document, json_rows, numbered_lines

PROMPT_KEYS: Final = (
    *("prompt_len", "input_len", "num_prompt_tokens", "prompt_tokens", "input_length"),
    *("input_tokens", "num_input_tokens", "prompt_length", "isl"),
)
OUTPUT_KEYS: Final = (
    *("output_len", "num_output_tokens", "completion_tokens", "output_tokens", "expected_output_len"),
    *("output_length", "num_generated_tokens", "generated_tokens", "osl"),
)
#: Arrival in seconds (or a date and time as text).
SECONDS_KEYS: Final = ("arrival_time", "arrived_at", "timestamp", "request_time", "start_time", "arrival")
#: Arrival in milliseconds.
MS_KEYS: Final = ("arrival_time_ms", "arrival_ms", "timestamp_ms")
SESSION_KEYS: Final = ("session_id", "conversation_id")
#: The columns of one object holding lists, as a detailed benchmark result has them.
COLUMN_KEYS: Final = (
    ("input_lens", "prompt_len"),
    ("output_lens", "output_len"),
    ("start_times", "arrival_time"),
)

#: Numbers under a seconds key beyond this (the year 5138) are taken for epoch milliseconds.
_MS_FROM: Final = 1e11


def _key(row: Mapping[str, object], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if row.get(name) is not None), None)


def _rows(path: Path, gathered: Gathered) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Rows of whichever of the three layouts the file has."""
    filled = (text.strip() for _, text in numbered_lines(path) if text.strip())
    first, second = next(filled, ""), next(filled, "")
    filled.close()
    if first.startswith("[") or (first.startswith("{") and not (first.endswith("}") and second)):
        for line, row in json_document(path, gathered):
            if any(isinstance(row.get(name), list) for name, _ in COLUMN_KEYS):
                yield from _columns(line, row, gathered)
            else:
                yield line, row
    else:
        yield from json_rows(path, gathered)


def _columns(
    line: int, row: Mapping[str, object], gathered: Gathered
) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The rows of an object that holds one list per field. All rows stand on the object's line."""
    lists: list[list[object]] = []
    for name, _ in COLUMN_KEYS:
        value = row.get(name)
        if not isinstance(value, list):
            gathered.add(line, "a list of numbers is needed here", key=name)
            return
        lists.append(value)
    if len({len(one) for one in lists}) != 1:
        sizes = ", ".join(f"{name}: {len(one)}" for (name, _), one in zip(COLUMN_KEYS, lists, strict=True))
        gathered.add(line, f"the lists differ in length ({sizes})")
        return
    for cells in zip(*lists, strict=True):
        yield line, {key: cell for (_, key), cell in zip(COLUMN_KEYS, cells, strict=True)}


def _tokens(gathered: Gathered, line: int, row: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    """The length under the first name present; several names that disagree are a problem."""
    key = _key(row, names)
    if key is None:
        text = (
            " (the text has to be tokenized first)"
            if {"conversations", "prompt", "messages"} & set(row)
            else ""
        )
        gathered.add(line, f"no length given{text}", key=names[0], allowed="one of " + ", ".join(names))
        return None
    others = [k for k in names if k != key and row.get(k) is not None and row[k] != row[key]]
    if others:
        gathered.add(line, f"{shown(row[key])}, but {others[0]} says {shown(row[others[0]])}", key=key)
        return None
    return read_tokens(gathered, line, row, key)


def _arrival(gathered: Gathered, line: int, row: Mapping[str, object]) -> tuple[float, bool] | None:
    """Arrival in ms, and whether a number under a seconds key was taken for epoch milliseconds."""
    key = _key(row, MS_KEYS)
    if key is not None:
        number = read_number(gathered, line, row, key)
        return None if number is None else (number, False)
    key = _key(row, SECONDS_KEYS)
    if key is None:
        allowed = f"seconds under {', '.join(SECONDS_KEYS)}; milliseconds under {', '.join(MS_KEYS)}"
        gathered.add(line, "no arrival time given", key=SECONDS_KEYS[0], allowed=allowed)
        return None
    value = row[key]
    if isinstance(value, str) and (when := ticks(value)) is not None:
        return when / 1e6, False
    number = read_number(gathered, line, row, key)
    if number is None:
        return None
    return (number, True) if number > _MS_FROM else (round(number * 1000, 6), False)


def read_lists(path: Path, gathered: Gathered, block_size: int) -> Rows:
    """All requests of a list. Session ids are kept as a label, arrivals stay open."""
    requests: list[Request] = []
    epoch_ms = 0
    for line, row in _rows(path, gathered):
        tokens = _tokens(gathered, line, row, PROMPT_KEYS)
        output = _tokens(gathered, line, row, OUTPUT_KEYS)
        arrival = _arrival(gathered, line, row)
        key = _key(row, SESSION_KEYS)
        session = read_session(gathered, line, row[key], key) if key else None
        if tokens is None or output is None or arrival is None:
            continue
        epoch_ms += arrival[1]
        requests.append(Request(arrival[0], tokens, output, session=session, line=line))
    notes: tuple[TraceNote, ...] = ()
    if epoch_ms:
        if epoch_ms != len(requests):
            gathered.add(0, f"{epoch_ms} arrival times look like epoch milliseconds, the others like seconds")
        message = f"{epoch_ms} arrival times were read as epoch milliseconds, being too large for seconds"
        notes = (TraceNote("rebased", epoch_ms, message),)
    return Rows(requests, notes, block_size)
