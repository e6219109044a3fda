"""A folder of Dynamo request-trace shards reads as the one file it could have been."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from spica.api import _digest
from spica.errors import TraceError
from spica.traffic.load import load_for_replay
from spica.traffic.model import Request
from spica.traffic.read import read_trace

START = 1_700_000_000_000


def event(at_ms: int, tokens: int, output: int = 5, block: int = 64, kind: str = "request_end") -> str:
    blocks = -(-tokens // block)
    replay = {
        "trace_block_size": block,
        "input_length": tokens,
        "input_sequence_hashes": list(range(tokens, tokens + blocks)),
    }
    request = {"request_received_ms": START + at_ms, "output_tokens": output, "replay": replay}
    row = {"schema": "dynamo.request.trace.v1", "event_type": kind, "request": request}
    return json.dumps(row) + "\n"


def shards(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        if name.endswith("_gz"):
            (folder / f"{name[:-3]}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"{name}.jsonl").write_text(text)
    return folder


def test_shards_are_merged_by_arrival_ties_in_the_order_of_the_names(tmp_path: Path) -> None:
    folder = shards(
        tmp_path / "t",
        b_gz=event(20, 100) + event(40, 130),
        a=event(0, 64) + event(40, 65) + event(30, 66),
        c="",
    )
    (folder / "README.txt").write_text("not a shard")
    (folder / ".a.jsonl.part").write_text("not a shard either")
    trace = read_trace(folder)
    assert [(r.arrival_ms, r.input_length) for r in trace.requests] == [
        (0, 64), (20, 100), (30, 66), (40, 65), (40, 130),
    ]  # fmt: skip
    assert trace.requests[1] == Request(20.0, 100, 5, (100, 101))
    assert [(Path(r.source).name, r.line) for r in trace.requests] == [
        ("a.jsonl", 1), ("b.jsonl.gz", 1), ("a.jsonl", 3), ("a.jsonl", 2), ("b.jsonl.gz", 2),
    ]  # fmt: skip
    assert (trace.format, trace.block_size, trace.source) == ("dynamo", 64, str(folder))
    notes = [str(n) for n in trace.notes]
    assert "3 shards were merged by arrival" in notes
    assert "1 of the shards are empty" in notes


def test_a_folder_equals_its_shards_in_one_file(tmp_path: Path) -> None:
    one, two = event(5, 70) + event(9, 80), event(7, 90, kind="request_start") + event(8, 90)
    folder = shards(tmp_path / "t", one=one, two=two + event(11, 5, kind="request_start"))
    whole = tmp_path / "whole.jsonl"
    whole.write_text(one + two + event(11, 5, kind="request_start"))
    merged, single = read_trace(folder, "dynamo.request.trace.v1"), read_trace(whole)
    assert merged.requests == single.requests
    kinds = {n.kind: n.count for n in merged.notes}
    assert kinds["ignored"] == {n.kind: n.count for n in single.notes}["ignored"] == 2


def test_problems_name_the_shard_and_the_line_of_each(tmp_path: Path) -> None:
    folder = shards(tmp_path / "t", a=event(0, 64) + "{\n", b=event(1, -5) + event(2, 7))
    with pytest.raises(TraceError) as caught:
        read_trace(folder)
    assert {p.where for p in caught.value.problems} >= {f"{folder}/a.jsonl:2", f"{folder}/b.jsonl:1"}


def test_a_request_beyond_the_context_names_its_shard(tmp_path: Path) -> None:
    folder = shards(tmp_path / "t", a=event(0, 64), b=event(1, 64) + event(2, 900))
    with pytest.raises(TraceError) as caught:
        load_for_replay(folder, "dynamo", context_length=500)
    assert [p.where for p in caught.value.problems] == [f"{folder}/b.jsonl:2"]


def test_shards_of_different_block_sizes_are_refused(tmp_path: Path) -> None:
    folder = shards(tmp_path / "t", a=event(0, 64, block=16), b=event(1, 64))
    with pytest.raises(TraceError, match=r"several sizes: 16 \(a\.jsonl\), 64 \(b\.jsonl\)"):
        read_trace(folder)


MOONCAKE = '{"timestamp": 0, "input_length": 5, "output_length": 2}\n'


@pytest.mark.parametrize(
    ("fmt", "content", "expected"),
    [
        ("mooncake", MOONCAKE, "is a directory, and a mooncake trace is one file"),
        ("auto", MOONCAKE, "is a directory, and a mooncake trace is one file"),
        ("dynamo", MOONCAKE, "is not a dynamo trace: it looks like mooncake"),
        ("azure", event(0, 5), "is a directory, and a azure trace is one file"),
        ("auto", "", "holds no request"),
    ],
)
def test_folders_of_other_things_are_refused(tmp_path: Path, fmt: str, content: str, expected: str) -> None:
    folder = shards(tmp_path / "t", a=content)
    with pytest.raises(TraceError) as caught:
        read_trace(folder, fmt)
    assert expected.replace("a azure", "an azure") in str(caught.value)


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="directory without shards"):
        read_trace(tmp_path)


def test_the_identity_of_a_folder_is_its_shards(tmp_path: Path) -> None:
    first, second = shards(tmp_path / "a", x=event(0, 5)), shards(tmp_path / "b", x=event(0, 5))
    assert _digest(first) == _digest(second)
    shards(second, y=event(1, 5))
    assert _digest(first) != _digest(second)
    (second / "y.jsonl").unlink()
    (second / "x.jsonl").rename(second / "z.jsonl")
    assert _digest(first) != _digest(second)
