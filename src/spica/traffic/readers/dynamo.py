"""Dynamo request traces, schema ``dynamo.request.trace.v1``: one event per line, bare or under ``event``.

Only ``request_end`` events are requests; they carry ``request.request_received_ms``,
``request.output_tokens`` and ``request.replay`` with ``trace_block_size``, ``input_length`` and
``input_sequence_hashes``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spica.traffic.collect import Gathered, read_hashes, read_number, read_session, read_tokens, shown
from spica.traffic.model import Request, TraceNote
from spica.traffic.readers import Rows
from spica.traffic.source import json_rows

SCHEMA: Final = "dynamo.request.trace.v1"


def read_dynamo(path: Path, gathered: Gathered, block_size: int) -> Rows:
    """All requests of a trace. The hash ids keep the block size that the trace records."""
    requests: list[Request] = []
    other: Counter[str] = Counter()
    blocks: dict[int, int] = {}
    for line, outer in json_rows(path, gathered):
        event = outer.get("event", outer)
        if not isinstance(event, dict):
            gathered.add(line, f"{shown(event)} is not an object", key="event")
            continue
        kind = event.get("event_type")
        if isinstance(kind, str) and kind != "request_end":
            other[kind] += 1
        elif event.get("schema") != SCHEMA:
            gathered.add(line, f"{shown(event.get('schema'))} is not {SCHEMA}", key="schema")
        elif kind is None:
            gathered.add(line, "missing", key="event_type", allowed="request_end for a request")
        elif (read := _request(gathered, line, event)) is not None:
            requests.append(read[0])
            blocks.setdefault(read[1], line)
    if len(blocks) > 1:
        sizes = ", ".join(f"{size} (line {line})" for size, line in blocks.items())
        gathered.add(0, f"blocks of several sizes: {sizes}", key="request.replay.trace_block_size")
    notes = [
        TraceNote("ignored", count, f"{count} events of type {kind!r} are no requests")
        for kind, count in sorted(other.items())
    ]
    labelled = sum(r.session is not None for r in requests)
    if labelled:
        message = (
            f"{labelled} requests of agent sessions keep their recorded arrival, whatever they waited for"
        )
        notes.append(TraceNote("flattened", labelled, message))
    return Rows(requests, tuple(notes), next(iter(blocks), block_size))


def _object(
    gathered: Gathered, line: int, row: Mapping[str, object], name: str, at: str
) -> Mapping[str, object] | None:
    value = row.get(name)
    if isinstance(value, dict):
        return value
    gathered.add(line, "missing" if value is None else f"{shown(value)} is not an object", key=at)
    return None


def _arrival(
    gathered: Gathered, line: int, event: Mapping[str, object], request: Mapping[str, object]
) -> float | None:
    """When the request was received; else, as the replay has it, its end less the time it took."""
    if request.get("request_received_ms") is not None:
        return read_number(gathered, line, request, "request_received_ms")
    ended = read_number(gathered, line, event, "event_time_unix_ms")
    if ended is None or request.get("total_time_ms") is None:
        return ended
    took = read_number(gathered, line, request, "total_time_ms")
    return None if took is None else ended - took


def _request(gathered: Gathered, line: int, event: Mapping[str, object]) -> tuple[Request, int] | None:
    """One ``request_end`` event and the block size it names."""
    request = _object(gathered, line, event, "request", "request")
    replay = None if request is None else _object(gathered, line, request, "replay", "request.replay")
    if request is None or replay is None:
        return None
    arrival = _arrival(gathered, line, event, request)
    output = read_tokens(gathered, line, request, "output_tokens")
    tokens = read_tokens(gathered, line, replay, "input_length")
    size = replay.get("trace_block_size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        gathered.add(
            line, f"{shown(size)} is not a block size", key="trace_block_size", allowed="tokens, >= 1"
        )
        return None
    hashes = read_hashes(
        gathered, line, replay.get("input_sequence_hashes"), "input_sequence_hashes", tokens, size
    )
    context = event.get("agent_context")
    label = context.get("session_id") if isinstance(context, dict) else None
    session = read_session(gathered, line, label, "agent_context.session_id")
    if arrival is None or output is None or tokens is None:
        return None
    return Request(arrival, tokens, output, hashes, session, None, line), size
