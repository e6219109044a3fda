"""Mooncake JSON lines: ``timestamp`` (ms), ``input_length``, ``output_length``, optional ``hash_ids``.

Rows of one session may carry ``session_id`` and, instead of or beside a timestamp, ``delay``: the think time
in ms between the previous turn's answer and this request.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from spica.traffic.collect import Gathered, read_hashes, read_number, read_session, read_tokens
from spica.traffic.model import Request, TraceNote
from spica.traffic.readers import Rows
from spica.traffic.source import json_rows

_KNOWN = frozenset(
    {"timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay", "request_id"}
)


def read_mooncake(path: Path, gathered: Gathered, block_size: int) -> Rows:
    """All rows of a mooncake file. A row without a timestamp arrives ``delay`` after its session's last."""
    requests: list[Request] = []
    last: dict[str, float] = {}
    unknown: Counter[str] = Counter()
    for line, row in json_rows(path, gathered):
        unknown.update(k for k in row if k not in _KNOWN)
        tokens = read_tokens(gathered, line, row, "input_length")
        output = read_tokens(gathered, line, row, "output_length")
        hashes = read_hashes(gathered, line, row.get("hash_ids"), "hash_ids", tokens, block_size)
        session = read_session(gathered, line, row.get("session_id"), "session_id")
        delay = None
        if row.get("delay") is not None:
            delay = read_number(gathered, line, row, "delay")
            if session not in last:
                gathered.add(line, "a delay needs an earlier row with the same session_id", key="delay")
        if delay is not None and session in last and "timestamp" not in row:
            arrival: float | None = last[session] + delay
        else:
            arrival = read_number(gathered, line, row, "timestamp")
        if tokens is None or output is None or arrival is None:
            continue
        if session is not None:
            last[session] = arrival
        requests.append(Request(arrival, tokens, output, hashes, session, delay, line))
    notes = [
        TraceNote("ignored", count, f"field {name!r} of {count} rows is not used by the replay's format")
        for name, count in sorted(unknown.items())
    ]
    return Rows(requests, tuple(notes), block_size, closed_sessions=bool(last), relative=True)
