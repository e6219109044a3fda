"""The two CSV formats: Azure LLM inference (2023) and BurstGPT (v1 and v3 columns)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from spica.errors import nearest
from spica.traffic.collect import Gathered, read_number, read_session, read_tokens, shown
from spica.traffic.model import Request
from spica.traffic.readers import Rows
from spica.traffic.source import numbered_lines

AZURE_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURSTGPT_COLUMNS: Final = ("Timestamp", "Request tokens", "Response tokens")

_WHEN = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017  (one name for 3.11 and 3.12)


def _table(path: Path, gathered: Gathered, columns: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Rows by column name, after checking the header and every row's width."""
    numbers: list[int] = []

    def lines() -> Iterator[str]:
        for number, text in numbered_lines(path):
            numbers.append(number)
            yield text

    reader = csv.reader(lines(), strict=True)
    header: list[str] | None = None
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            gathered.add(numbers[-1], f"not a CSV row: {error}")
            return
        line = numbers[-1]
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = [cell.strip() for cell in cells]
            if not _header_ok(gathered, line, header, columns):
                return
        elif len(cells) != len(header):
            gathered.add(line, f"{len(cells)} cells where the header has {len(header)}")
        else:
            yield line, dict(zip(header, cells, strict=True))


def _header_ok(gathered: Gathered, line: int, header: Sequence[str], columns: Sequence[str]) -> bool:
    found = gathered.count
    for column in columns:
        if header.count(column) > 1:
            gathered.add(line, "the column stands there twice", key=column)
        elif column not in header:
            near = nearest(column, [h for h in header if h and h not in columns]) or ""
            got = shown(",".join(header))
            gathered.add(line, f"column missing from the header {got}", key=column, suggestion=near)
    return gathered.count == found


def ticks(text: str) -> int | None:
    """A date and time as nanoseconds since 1970 (UTC unless it says otherwise), exact; None if it is none."""
    match = _WHEN.fullmatch(text.strip())
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    try:
        whole = datetime.fromisoformat(f"{day}T{clock}+00:00")
    except ValueError:
        return None
    shift = timedelta()
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "")
        shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        shift = -shift if zone[0] == "-" else shift
    seconds = (whole - _EPOCH - shift) // timedelta(seconds=1)
    return seconds * 10**9 + int((fraction or "").ljust(9, "0"))


def read_azure(path: Path, gathered: Gathered, block_size: int) -> Rows:
    """Azure LLM inference traces. Arrivals count from the first row's time, exact to the nanosecond."""
    requests: list[Request] = []
    first: int | None = None
    for line, row in _table(path, gathered, AZURE_COLUMNS):
        when = ticks(row["TIMESTAMP"])
        if when is None:
            allowed = "such as 2023-11-16 18:15:46.6805900"
            gathered.add(
                line, f"{shown(row['TIMESTAMP'])} is no date and time", key="TIMESTAMP", allowed=allowed
            )
        tokens = read_tokens(gathered, line, row, "ContextTokens")
        output = read_tokens(gathered, line, row, "GeneratedTokens")
        if when is None or tokens is None or output is None:
            continue
        first = when if first is None else first
        requests.append(Request((when - first) / 1e6, tokens, output, line=line))
    return Rows(requests, block_size=block_size)


def read_burstgpt(path: Path, gathered: Gathered, block_size: int) -> Rows:
    """BurstGPT, v1 or v3 columns; seconds become ms. Session ids are kept as a label, arrivals stay open."""
    requests: list[Request] = []
    for line, row in _table(path, gathered, BURSTGPT_COLUMNS):
        seconds = read_number(gathered, line, row, "Timestamp")
        tokens = read_tokens(gathered, line, row, "Request tokens")
        output = read_tokens(gathered, line, row, "Response tokens")
        session = read_session(gathered, line, row.get("Session ID"), "Session ID")
        if seconds is not None and tokens is not None and output is not None:
            requests.append(Request(round(seconds * 1000, 6), tokens, output, session=session, line=line))
    return Rows(requests, block_size=block_size)
