"""Traffic of each load shape."""

from __future__ import annotations

import pytest
from branch_fakes import config

from spica.branches.traffic import num_requests, traffic_for
from spica.traffic.model import Request, Trace
from spica.traffic.replayed import PreparedTrace, SyntheticTraffic, TraceTraffic, prepared_trace


@pytest.mark.parametrize(
    ("ratio", "load", "expected"),
    [(4, 64, 256), (0.001, 64, 1), (2.5, 3, 8), (0.5, 1, 1), (1.5, 5, 8), (10, 0.26, 3)],
)
def test_number_of_requests(ratio: float, load: float, expected: int) -> None:
    assert num_requests(ratio, load) == expected


def test_closed_loop() -> None:
    extra = {
        "shared_prefix_ratio": 0.25,
        "num_prefix_groups": 3,
        "turns_per_session": 2,
        "inter_turn_delay_ms": 5,
    }
    workload = config(workload={"concurrency": 10, **extra}).workload
    assert traffic_for(workload, None) == SyntheticTraffic(
        1000, 100, 40, concurrency=10, shared_prefix_ratio=0.25, num_prefix_groups=3, turns_per_session=2,
        inter_turn_delay_ms=5.0,
    )  # fmt: skip


def test_open_loop_counts_requests_by_rate() -> None:
    traffic = traffic_for(config(workload={"request_rate": 2.5}).workload, None)
    assert traffic == SyntheticTraffic(1000, 100, 10, request_rate=2.5)


def test_a_candidates_own_concurrency_decides() -> None:
    traffic = traffic_for(config(workload={"kv_load_ratio": 0.5}).workload, 7)
    assert traffic == SyntheticTraffic(1000, 100, 28, concurrency=7)


def test_trace() -> None:
    rows = (Request(0.0, 100, 20), Request(5.0, 50, 7))
    prepared = prepared_trace(Trace(rows, "mooncake"), "t.jsonl")
    assert prepared == PreparedTrace("t.jsonl", 2, 177, has_prefixes=False)
    fields = {"trace_path": "t.jsonl", "arrival_speedup_ratio": 2.0, "replay_concurrency": 9}
    workload = config(workload=fields).workload
    assert traffic_for(workload, 9, prepared) == TraceTraffic("t.jsonl", 2, 177, 2.0, 9)
    with pytest.raises(ValueError, match="prepared trace"):
        traffic_for(workload, None)


def test_a_load_is_needed() -> None:
    with pytest.raises(ValueError, match="a load"):
        traffic_for(config(workload={"kv_load_ratio": 0.5}).workload, None)
