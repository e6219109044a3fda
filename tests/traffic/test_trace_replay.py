"""The file a replay is fed with, on the real replay: same results as the source, and the reuse expected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spica.traffic.load import load_for_replay
from spica.traffic.model import Request, Trace
from spica.traffic.read import read_trace
from spica.traffic.synth import SynthSpec, synthesize
from spica.traffic.write import prepare_replay_file, write_mooncake

pytestmark = pytest.mark.real

ENGINE = {
    "engine": {
        "backend": "vllm",
        "worker_type": "aggregated",
        "block_size": 64,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "enable_prefix_caching": True,
        "timing_model": {
            "type": "external",
            "provider": "ais",
            "config": {
                "model": "Qwen/Qwen3-32B",
                "system": "h200_sxm",
                "backend": "vllm",
                "worker_type": "aggregated",
                "tp": 2,
                "attention_dp": 1,
            },
        },
    },
    "dp_size": 1,
    "tensor_parallel_size": 2,
    "gpu_memory_utilization": 0.9,
}


def replay(
    path: Path, trace_format: str = "mooncake", block: int = 512, workers: int = 2
) -> dict[str, float]:
    """The replay's summary without what depends on the machine's own speed."""
    from dynamo.replay.api import run_trace_replay

    report = run_trace_replay(
        str(path),
        extra_engine_args=ENGINE,
        num_workers=workers,
        trace_block_size=block,
        trace_format=trace_format,
    )
    real_time = {"wall_time_ms", "processed_tokens_per_s", "processed_output_tokens_per_s"}
    return {k: v for k, v in report.summary.items() if k not in real_time}


@pytest.mark.parametrize("kind", ["shared_prefix", "sessions"])
def test_a_clean_mooncake_source_replays_the_same(tmp_path: Path, kind: str) -> None:
    spec = SynthSpec("sessions" if kind == "sessions" else "shared_prefix", rate=2.0, duration=60.0, isl=2000)
    source = write_mooncake(synthesize(spec), tmp_path / "source.jsonl")
    trace = load_for_replay(source, "mooncake", context_length=40960)
    prepared = prepare_replay_file(trace, tmp_path / "out")
    theirs, ours = replay(source), replay(prepared)
    assert ours == theirs
    assert theirs["completed_requests"] == len(trace)
    assert theirs["prefix_cache_reused_ratio"] > 0.1


def test_a_trace_without_hash_ids_replays_with_no_reuse(tmp_path: Path) -> None:
    source = tmp_path / "azure.csv"
    rows = "".join(f"2023-11-16 18:15:{s:02d}.5000001,{900 + s},{10 + s}\r\n" for s in range(20))
    source.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + rows)
    summary = replay(prepare_replay_file(read_trace(source), tmp_path))
    assert summary["completed_requests"] == 20
    assert summary["total_input_tokens"] == sum(900 + s for s in range(20))
    assert summary["total_output_tokens"] == sum(10 + s for s in range(20))
    assert summary["prefix_cache_reused_ratio"] == 0.0


def test_a_dynamo_trace_replays_as_the_runtime_reads_it(tmp_path: Path) -> None:
    rows = []
    for i in range(20):
        tokens = 1000 + 64 * (i % 5)
        replayed = {
            "trace_block_size": 64,
            "input_length": tokens,
            "input_sequence_hashes": [2**63 + (i % 2) * 10**6 + j for j in range(-(-tokens // 64))],
        }
        request = {"request_id": f"r{i}", "output_tokens": 20, "total_time_ms": 50 * i, "replay": replayed}
        if i % 3:
            request["request_received_ms"] = 1_700_000_000_000 + 700 * i
        ended = 1_700_000_000_000 + 750 * i
        event = {
            "schema": "dynamo.request.trace.v1",
            "event_type": "request_end",
            "event_time_unix_ms": ended,
        }
        rows.append(json.dumps(event | {"request": request}))
    source = tmp_path / "dynamo.jsonl"
    source.write_text("\n".join(rows))
    trace = load_for_replay(source, "dynamo", context_length=40960)
    theirs = replay(source, "dynamo", 64)
    assert replay(prepare_replay_file(trace, tmp_path, block_size=trace.block_size), block=64) == theirs
    # Regrouped into blocks of 512 nothing is lost but reuse: the same requests, fewer tokens shared.
    coarse = replay(prepare_replay_file(trace, tmp_path))
    for key in ("completed_requests", "total_input_tokens", "total_output_tokens"):
        assert coarse[key] == theirs[key]
    assert 0 < coarse["prefix_cache_reused_ratio"] <= theirs["prefix_cache_reused_ratio"]


def test_reuse_at_an_infinite_cache_is_what_a_large_cache_reuses(tmp_path: Path) -> None:
    from spica.traffic.info import trace_info

    # One worker, one request at a time, and a private last block, so that no full prompt is ever cached.
    rows = tuple(
        Request(5000.0 * i, 2048, 5, (*((0, 1) if i % 2 else (10, 11)), 20 + i % 4, 1000 + i))
        for i in range(12)
    )
    trace = Trace(rows, "made")
    summary = replay(prepare_replay_file(trace, tmp_path), workers=1)
    assert summary["prefix_cache_reused_ratio"] == pytest.approx(trace_info(trace).reuse_ratio)
