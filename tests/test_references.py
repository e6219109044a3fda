"""Replays beside numbers measured on real GPUs: the right size, and the right direction.

The measured numbers are a few of the public silicon references of the performance database (Apache-2.0).
``bench/references_silicon.py`` compares all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from spica.config.load import config_from_mapping
from spica.evaluate.pool import LocalEvaluator
from spica.evaluate.protocol import ReplayPlan
from spica.sweep.prepare import prepare
from spica.trial import Metrics

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class Reference:
    """A deployment of one worker, 1024 tokens in and out, and the mean time per output token in ms."""

    model: str
    sku: str
    backend: str
    shape: tuple[tuple[str, int], ...]
    concurrency: int
    tpot_ms: float


TP8 = (("tp", 8), ("moe_tp", 8))
TEP4 = (("tp", 4), ("moe_ep", 4))
REFERENCES = (
    Reference("Qwen/Qwen3-32B", "h100_sxm", "vllm", (("tp", 2),), 32, 20.06),
    Reference("deepseek-ai/DeepSeek-R1", "b200_sxm", "sglang", TP8, 16, 11.71),
    Reference("deepseek-ai/DeepSeek-V3", "h200_sxm", "trtllm", TP8, 16, 20.39),
    Reference("MiniMaxAI/MiniMax-M2.5", "h100_sxm", "vllm", TEP4, 16, 15.54),
)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(2, max_eval_seconds=120, log_dir=None) as pool:
        yield pool


def plan(reference: Reference, concurrency: int) -> ReplayPlan:
    config = config_from_mapping(
        {
            "search_space": {
                "model_name": reference.model,
                "hardware_sku": reference.sku,
                "gpu_budget": dict(reference.shape)["tp"],
                "context_length": 4096,
                "deployment_mode": ["agg"],
                "backend": [reference.backend],
                "parallel_configs": [dict(reference.shape)],
                "agg_max_num_batched_tokens": [8192],
                "agg_max_num_seqs": [256],
                "router_mode": ["round_robin"],
                "planner_scaling_policy": ["disabled"],
            },
            "workload": {"isl": 1024, "osl": 1024, "concurrency": concurrency, "num_request_ratio": 3},
        }
    )
    (branch,) = prepare(config).plan.branches
    decoded = branch.decode({})
    assert decoded.feasible
    return ReplayPlan(decoded.sample, branch.traffic(decoded.sample), "throughput")


def replayed(evaluator: LocalEvaluator, *plans: ReplayPlan) -> list[Metrics]:
    results = [future.result() for future in [evaluator.submit(one) for one in plans]]
    for result in results:
        assert result.metrics is not None, result.reason
    return [result.metrics for result in results if result.metrics is not None]


def test_the_time_per_token_is_within_a_half_of_the_measured_one(evaluator: LocalEvaluator) -> None:
    found = replayed(evaluator, *(plan(reference, reference.concurrency) for reference in REFERENCES))
    for reference, metrics in zip(REFERENCES, found, strict=True):
        assert 1 / 1.5 < metrics.summary["mean_tpot_ms"] / reference.tpot_ms < 1.5, reference


def test_more_in_flight_is_slower_for_each_and_faster_for_all(evaluator: LocalEvaluator) -> None:
    loads = (1, 8, 64)
    found = [m.summary for m in replayed(evaluator, *(plan(REFERENCES[0], load) for load in loads))]
    for name, grows in (
        ("mean_tpot_ms", True),
        ("mean_ttft_ms", True),
        ("mean_output_token_throughput_per_user", False),
        ("output_throughput_tok_s", True),
    ):
        values = [summary[name] for summary in found]
        assert values == sorted(values, reverse=not grows), name
        assert len(set(values)) == len(loads)
