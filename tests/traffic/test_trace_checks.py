"""Broken traces: each is refused with the place and the reason, never with another exception."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from spica.errors import EXIT_BAD_INPUT, TraceError
from spica.traffic.collect import SHOWN
from spica.traffic.load import load_for_replay
from spica.traffic.read import read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def moon(**fields: object) -> str:
    return json.dumps({"timestamp": 0, "input_length": 1000, "output_length": 5} | fields) + "\n"


DYNAMO = (
    '{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1,'
    '"request":{"output_tokens":2,"replay":%s}}\n'
)

CASES = [
    (
        "missing",
        "mooncake",
        '{"timestamp": 0, "input_lenght": 3, "output_length": 5}\n',
        ":1: input_length: missing",
    ),
    (
        "near",
        "mooncake",
        '{"timestamp": 0, "input_lenght": 3, "output_length": 5}\n',
        "did you mean 'input_lenght'",
    ),
    (
        "second line",
        "mooncake",
        moon() + moon(output_length="five"),
        ":2: output_length: 'five' is not a whole",
    ),
    ("boolean", "mooncake", moon(input_length=True), ":1: input_length: True is not a whole number"),
    ("fraction", "mooncake", moon(input_length=10.5), "10.5 is not a whole number"),
    ("null", "mooncake", moon(input_length=None), "input_length: empty"),
    ("nan", "mooncake", moon(timestamp=float("nan")), ":1: timestamp: nan is not a finite"),
    ("infinite", "mooncake", moon(timestamp=float("inf")), "timestamp: inf is not a finite"),
    ("1e999", "mooncake", moon().replace("0,", "1e999,", 1), "timestamp: inf is not a finite"),
    ("boolean time", "mooncake", moon(timestamp=False), "timestamp: False is not a number"),
    ("text time", "mooncake", moon(timestamp="soon"), "timestamp: 'soon' is not a number"),
    ("negative time", "mooncake", moon(timestamp=-1), "timestamp: -1 is negative"),
    ("negative length", "mooncake", moon(input_length=-4), "input_length: -4 is negative"),
    ("huge length", "mooncake", moon(input_length=10**12), "no believable token count"),
    ("huge time", "mooncake", moon(timestamp=10**400), "is not a finite, believable time"),
    ("endless digits", "mooncake", moon().replace("0,", "1" * 5000 + ",", 1), "too many digits"),
    (
        "too few ids",
        "mooncake",
        moon(hash_ids=[1]),
        "1 ids for an input of 1000 tokens, which takes 2 blocks",
    ),
    ("other blocks", "mooncake", moon(hash_ids=list(range(16))), "the count fits blocks of 64 tokens"),
    ("no ids", "mooncake", moon(hash_ids=[]), "0 ids for an input of 1000"),
    (
        "wide id",
        "mooncake",
        moon(hash_ids=[1, 2**64]),
        "entry 1, 18446744073709551616, is not an unsigned 64-bit",
    ),
    ("negative id", "mooncake", moon(hash_ids=[-1, 2]), "entry 0, -1, is not an unsigned"),
    ("float id", "mooncake", moon(hash_ids=[1.0, 2]), "entry 0, 1.0, is not an unsigned"),
    ("ids no list", "mooncake", moon(hash_ids="12"), "'12' is not a list of ids"),
    ("first delay", "mooncake", moon(session_id="a", delay=3), "a delay needs an earlier row"),
    ("session type", "mooncake", moon(session_id=[1]), "session_id: [1] is not a session id"),
    (
        "duplicate key",
        "mooncake",
        '{"timestamp": 0, "timestamp": 1}\n',
        ":1: key 'timestamp' stands there twice",
    ),
    ("not json", "mooncake", moon() + "{oops\n", ":2: not JSON"),
    ("not an object", "mooncake", moon() + "[1]\n", ":2: not a JSON object"),
    ("deep", "mooncake", moon() + "[" * 100_000 + "\n", ":2: not a row: nested too deeply"),
    ("blank only", "auto", "\n  \n", "nothing but blank lines"),
    ("unknown csv", "auto", "a,b,c\n1,2,3\n", ":1: not a trace format known here"),
    ("near csv", "auto", "Timestamp,Tokens\n1,2\n", "closest is burstgpt"),
    ("unknown json", "auto", '{"a": 1}\n', "not a trace format known here"),
    ("empty", "auto", "", "is empty"),
    ("binary", "auto", b"\x00\x01\xff\n", "byte 3 of the line is not UTF-8"),
    ("latin-1", "mooncake", moon().encode() + b'{"caf\xe9": 1}\n', ":2: byte 6 of the line is not UTF-8"),
    ("cut gzip", "auto", gzip.compress(moon().encode() * 500)[:-12], "broken gzip"),
    ("false gzip", "auto", b"\x1f\x8bnot really", "broken gzip"),
    ("azure date", "azure", AZURE + "yesterday,1,2\n", ":2: TIMESTAMP: 'yesterday' is no date and time"),
    ("azure month", "azure", AZURE + "2023-13-01 00:00:00,1,2\n", "is no date and time"),
    ("azure cells", "azure", AZURE + "2023-11-16 18:15:46,1\n", ":2: 2 cells where the header has 3"),
    (
        "azure header",
        "azure",
        "TIMESTAMP,ContextToken,GeneratedTokens\n",
        ":1: ContextTokens: column missing",
    ),
    (
        "azure column",
        "azure",
        "TIMESTAMP,ContextTokens,ContextTokens,GeneratedTokens\n",
        "stands there twice",
    ),
    ("azure empty", "azure", AZURE, "holds no request"),
    ("burst text", "burstgpt", BURST + "5,m,many,1,2,l\n", ":2: Request tokens: 'many' is not a whole"),
    ("burst blank", "burstgpt", BURST + "5,m,,1,2,l\n", ":2: Request tokens: empty"),
    ("burst nan", "burstgpt", BURST + "nan,m,1,1,2,l\n", ":2: Timestamp: 'nan' is not a number"),
    ("burst negative", "burstgpt", BURST + "-5,m,1,1,2,l\n", ":2: Timestamp: -5.0 is negative"),
    ("burst zero", "burstgpt", BURST + "5,m,0,0,0,l\n", ":2: its only row has zero lengths"),
    (
        "moon zero",
        "mooncake",
        "\n" + moon(input_length=0) + moon(output_length=0),
        ":2: all its 2 rows have zero lengths, this one 0 prompt and",
    ),
    ("burst quote", "burstgpt", BURST + '5,"m,1,1,2,l\n', "not a CSV row"),
    (
        "list no time",
        "requests",
        '[{"prompt_len": 1, "output_len": 1}]',
        ":1: arrival_time: no arrival time given",
    ),
    ("list text", "requests", '[{"conversations": [], "arrival_time": 1}]', "the text has to be tokenized"),
    ("list disagree", "requests", '[{"isl": 1, "input_len": 2, "osl": 1, "arrival": 1}]', "but isl says 1"),
    ("list open", "requests", '[{"isl": 1, "osl": 2, "arrival": 1}', "the JSON list does not end properly"),
    (
        "list line",
        "requests",
        '[{"isl": 1, "osl": 2, "arrival": 1},\n\n{"isl": 1}]',
        ":3: output_len: no length given",
    ),
    ("list scalar", "requests", "[1]", "an entry of the list is not a JSON object"),
    (
        "columns",
        "requests",
        '{"input_lens": [1], "output_lens": [1, 2], "start_times": [0]}',
        "differ in length",
    ),
    ("dynamo replay", "dynamo", DYNAMO % "null", ":1: request.replay: missing"),
    ("dynamo block", "dynamo", DYNAMO % '{"trace_block_size":0}', "trace_block_size: 0 is not a block size"),
    (
        "dynamo count",
        "dynamo",
        DYNAMO % '{"trace_block_size":64,"input_length":65,"input_sequence_hashes":[1]}',
        "1 ids for an input of 65 tokens, which takes 2 blocks of 64",
    ),
    (
        "dynamo schema",
        "dynamo",
        '{"schema":"dynamo.request.trace.v2","event_type":"request_end"}\n',
        "trace.v2' is",
    ),
]


@pytest.mark.parametrize(("fmt", "content", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_broken_trace_names_the_place_and_the_reason(
    tmp_path: Path, fmt: str, content: str | bytes, expected: str
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TraceError) as caught:
        read_trace(path, fmt)
    assert expected in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == EXIT_BAD_INPUT


@pytest.mark.parametrize(
    ("name", "expected"),
    [(".", "is a directory"), ("none", "no such file"), ("a\0b", "cannot be opened: embedded null byte")],
)
def test_what_is_no_file(tmp_path: Path, name: str, expected: str) -> None:
    with pytest.raises(TraceError, match=expected):
        read_trace(tmp_path / name)


def test_mixed_dynamo_block_sizes_name_both(tmp_path: Path) -> None:
    one = '{"trace_block_size":%d,"input_length":1,"input_sequence_hashes":[1]}'
    path = tmp_path / "t"
    path.write_text(DYNAMO % (one % 16) + DYNAMO % (one % 64))
    with pytest.raises(TraceError, match=r"several sizes: 16 \(line 1\), 64 \(line 2\)"):
        read_trace(path)


def test_all_problems_at_once_the_first_in_full_the_rest_counted(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("".join(moon(input_length=-1 - i) for i in range(SHOWN + 7)))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    problems = caught.value.problems
    assert len(problems) == SHOWN + 1
    assert [p.where for p in problems[:SHOWN]] == [f"{path}:{i}" for i in range(1, SHOWN + 1)]
    assert "and 7 more problems" in str(problems[-1])


def test_requests_beyond_the_context_are_refused_or_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(moon() + moon(output_length=24) + moon(output_length=25) + moon(input_length=5000))
    with pytest.raises(TraceError) as caught:
        load_for_replay(path, "mooncake", context_length=1024)
    assert f"{path}:3: needs 1000 + 25 = 1025 tokens" in str(caught.value)
    assert "leave out these 2 of 4 requests (workload.over_context: drop)" in str(caught.value)
    kept = load_for_replay(path, "mooncake", context_length=1024, over_context="drop")
    assert [r.line for r in kept.requests] == [1, 2]
    assert (kept.notes[-1].kind, kept.notes[-1].count) == ("dropped", 2)
    assert len(load_for_replay(path, "mooncake", context_length=None)) == 4
    with pytest.raises(TraceError, match="no request of the trace fits: raise search_space"):
        load_for_replay(path, "mooncake", context_length=100, over_context="drop")
