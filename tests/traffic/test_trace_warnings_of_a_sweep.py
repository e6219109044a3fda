"""What ``spica check`` and a sweep are told about their trace before anything is replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spica.config.load import config_from_mapping
from spica.sweep.prepare import prepare

pytestmark = pytest.mark.real

SPACE = {
    "model_name": "Qwen/Qwen3-32B",
    "hardware_sku": "h200_sxm",
    "gpu_budget": 2,
    "deployment_mode": ["agg"],
    "backend": ["vllm"],
    "planner_scaling_policy": ["disabled"],
}


def warnings(trace: Path, router_mode: list[str], **workload: object) -> str:
    config = config_from_mapping(
        {
            "search_space": SPACE | {"router_mode": router_mode},
            "workload": {"trace_path": str(trace), **workload},
        }
    )
    return "\n".join(prepare(config).warnings)


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """A request of 10 tokens every 10 s: never two at a time. No prefixes."""
    path = tmp_path / "slow.jsonl"
    row = '{"timestamp": %d, "input_length": 900, "output_length": 10}\n'
    path.write_text("".join(row % (10_000 * i) for i in range(50)))
    return path


def test_a_load_so_low_that_all_candidates_tie(slow: Path) -> None:
    assert "load is very low" in warnings(slow, ["round_robin"])
    # At 2000 prompt and 20 output tokens/s a request takes 0.45 + 0.5 s, every 10 s: 0.095 in flight.
    assert "load is very low" in warnings(slow, ["round_robin"], arrival_speedup_ratio=10)
    assert "load is very low" not in warnings(slow, ["round_robin"], arrival_speedup_ratio=11)
    assert "load is very low" not in warnings(slow, ["round_robin"], replay_concurrency=8)


def test_router_knobs_without_prefix_information(slow: Path) -> None:
    assert "no prefix information" in warnings(slow, ["kv_router", "round_robin"])
    assert "no prefix information" not in warnings(slow, ["round_robin"])
