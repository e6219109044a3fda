"""Each format read from rows written by hand, with the values worked out by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from spica.errors import TraceError
from spica.traffic.model import Request, resolve_format
from spica.traffic.read import detect_format, read_trace


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def event(
    received: int | None, tokens: int, output: int, hashes: list[int], block: int = 64
) -> dict[str, object]:
    """A request_end event that ended at 1,700,000,010,000 ms after 4,000 ms."""
    request: dict[str, object] = {
        "request_id": "r",
        "output_tokens": output,
        "total_time_ms": 4000,
        "replay": {"trace_block_size": block, "input_length": tokens, "input_sequence_hashes": hashes},
    }
    if received is not None:
        request["request_received_ms"] = received
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": 1_700_000_010_000,
        "request": request,
    }


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_mooncake_with_and_without_hash_ids_keeps_every_bit(tmp_path: Path) -> None:
    big = 2**64 - 1
    text = lines(
        {"timestamp": 0, "input_length": 513, "output_length": 7, "hash_ids": [big, 2**53 + 1]},
        {"timestamp": 12.5, "input_length": 512, "output_length": 1},
    )
    trace = read_trace(put(tmp_path, "t.jsonl", text))
    assert trace.format == "mooncake"
    assert trace.requests == (Request(0.0, 513, 7, (big, 2**53 + 1)), Request(12.5, 512, 1))
    assert [r.line for r in trace.requests] == [1, 2]
    assert trace.notes == ()
    assert not trace.closed_sessions


def test_mooncake_sessions_take_their_arrival_from_the_delay(tmp_path: Path) -> None:
    text = lines(
        {"session_id": "a", "timestamp": 100, "input_length": 10, "output_length": 1},
        {"session_id": "a", "delay": 30, "input_length": 20, "output_length": 1},
    )
    trace = read_trace(put(tmp_path, "t.jsonl", text), "mooncake")
    assert trace.closed_sessions
    assert trace.requests[1] == Request(130.0, 20, 1, session="a", delay_ms=30.0)


def test_azure_is_exact_to_a_tenth_of_a_microsecond(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 23:59:59.9999999,374,44\r\n"
        "2023-11-17 00:00:00.0000001,396,109\r\n"
        "2023-11-17 00:00:01.5000000,5,6"
    )
    trace = read_trace(put(tmp_path, "a.csv", text))
    assert trace.format == "azure"
    assert [r.arrival_ms for r in trace.requests] == [0.0, 0.0002, 1500.0001]
    assert [(r.input_length, r.output_length) for r in trace.requests] == [(374, 44), (396, 109), (5, 6)]


def test_azure_times_with_a_zone_are_compared_in_utc(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.25+00:00,1,1\n"
        "2024-05-10 02:00:01.25+02:00,2,2\n"
    )
    assert read_trace(put(tmp_path, "a.csv", text)).requests[1].arrival_ms == 1000.0


def test_burstgpt_v1_drops_zero_rows_and_keeps_ties_in_order(tmp_path: Path) -> None:
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
        "45,GPT-4,0,0,0,Conversation log\n"
        "45,ChatGPT,1087,230,1317,Conversation log\n"
        "45,ChatGPT,3,4,7,Conversation log\n"
    )
    trace = read_trace(put(tmp_path, "b.csv", text))
    assert trace.format == "burstgpt"
    assert trace.requests == (Request(0.0, 472, 18), Request(40000.0, 1087, 230), Request(40000.0, 3, 4))
    assert [(n.kind, n.count) for n in trace.notes] == [("dropped", 1), ("rebased", 3)]


def test_burstgpt_v3_has_sessions_some_blank(tmp_path: Path) -> None:
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "19440110.0,ab-1,43,GPT-4,906,446,1352,Conversation log\n"
        "19440110.5,,21,GPT-4,264,171,435,API log\n"
    )
    trace = read_trace(put(tmp_path, "b.csv", text))
    assert [(r.arrival_ms, r.session) for r in trace.requests] == [(0.0, "ab-1"), (500.0, None)]
    assert not trace.closed_sessions


@pytest.mark.parametrize(
    ("text", "arrivals"),
    [
        (lines({"prompt_len": 9, "output_len": 8, "arrival_time": 1.5}), [1.5]),
        (
            '[{"input_len": 9, "output_tokens": 8, "timestamp": 2},\n {"isl": 1, "osl": 1, "arrival": 3}]',
            [2, 3],
        ),
        (lines({"num_prompt_tokens": 9, "num_output_tokens": 8, "arrival_time_ms": 1500}), [1.5]),
        ('{"input_lens": [9, 4], "output_lens": [8, 4],\n "start_times": [10, 10.25]}', [10, 10.25]),
        (
            lines({"prompt_tokens": 9, "completion_tokens": 8, "timestamp": 1_700_000_000_500}),
            [1_700_000_000.5],
        ),
    ],
)
def test_request_lists_in_their_layouts(tmp_path: Path, text: str, arrivals: list[float]) -> None:
    trace = read_trace(put(tmp_path, "r.json", text))
    assert trace.format == "requests"
    assert trace.requests[0].input_length == 9
    assert trace.requests[0].output_length == 8
    assert [r.arrival_ms for r in trace.requests] == [(a - arrivals[0]) * 1000 for a in arrivals]


def test_dynamo_reads_request_ends_only_and_keeps_the_block_size(tmp_path: Path) -> None:
    text = lines(
        {"event_type": "request_payload", "request_id": "x"},
        event(1_700_000_000_000, 130, 5, [2**63 + 1, 2, 3]),
        {"timestamp": 1, "event": event(1_700_000_000_250, 64, 6, [2**63 + 1])},
        event(None, 1, 1, [9]),
    )
    trace = read_trace(put(tmp_path, "d.jsonl", text))
    assert (trace.format, trace.block_size) == ("dynamo", 64)
    # The last has no received time: it ended at ...10,000 after 4,000 ms, so it came at ...6,000.
    assert trace.requests == (
        Request(0.0, 130, 5, (2**63 + 1, 2, 3)),
        Request(250.0, 64, 6, (2**63 + 1,)),
        Request(6000.0, 1, 1, (9,)),
    )
    assert [(n.kind, n.count) for n in trace.notes] == [("ignored", 1), ("rebased", 3)]


def test_gzip_is_told_from_its_content_not_its_name(tmp_path: Path) -> None:
    row = lines({"timestamp": 3, "input_length": 1, "output_length": 2})
    packed = read_trace(put(tmp_path, "t.bin", gzip.compress(row.encode())))
    assert packed.requests == read_trace(put(tmp_path, "t.jsonl", row)).requests == (Request(3.0, 1, 2),)


def test_unsorted_rows_are_sorted_and_epoch_times_rebased(tmp_path: Path) -> None:
    epoch = 1_700_000_000_000
    text = lines(
        {"timestamp": epoch + 20, "input_length": 2, "output_length": 1},
        {"timestamp": epoch, "input_length": 1, "output_length": 1},
    )
    trace = read_trace(put(tmp_path, "t.jsonl", text))
    assert [(r.arrival_ms, r.input_length, r.line) for r in trace.requests] == [(0.0, 1, 2), (20.0, 2, 1)]
    assert [(n.kind, n.count) for n in trace.notes] == [("sorted", 1), ("rebased", 2)]


@pytest.mark.parametrize(("policy", "outputs"), [("drop", [4]), ("clamp", [1, 4])])
def test_rows_without_output_follow_the_policy_and_are_counted(
    tmp_path: Path, policy: str, outputs: list[int]
) -> None:
    text = lines(
        {"timestamp": 0, "input_length": 5, "output_length": 0},
        {"timestamp": 1, "input_length": 5, "output_length": 4},
    )
    trace = read_trace(put(tmp_path, "t.jsonl", text), zero_output="clamp" if policy == "clamp" else "drop")
    assert [r.output_length for r in trace.requests] == outputs
    assert trace.notes[0].count == 1
    assert trace.notes[0].kind == {"drop": "dropped", "clamp": "clamped"}[policy]


def test_aliases_and_misspelt_formats() -> None:
    assert resolve_format("vllm") == resolve_format("sharegpt") == "requests"
    assert resolve_format("auto") is None
    with pytest.raises(TraceError, match="did you mean 'mooncake'"):
        resolve_format("moncake")


def test_a_file_of_another_format_than_the_one_named_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01 00:00:00,1,1\n")
    assert detect_format(path) == "azure"
    with pytest.raises(TraceError, match="is not a mooncake trace: it looks like azure"):
        read_trace(path, "mooncake")
