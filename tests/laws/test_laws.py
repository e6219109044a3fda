"""Laws that every replay obeys, tried on random small cases."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluate"))

from evaluation_samples import ROUTER, Make

from spica.deployment.shapes import ParallelShape
from spica.evaluate import replay
from spica.evaluate.pool import LocalEvaluator
from spica.evaluate.replay import TRACE_BLOCK_SIZE
from spica.traffic.replayed import SyntheticTraffic, TraceTraffic, Traffic
from spica.trial import Metrics, Outcome

FEW, MANY = (
    settings(deadline=None, max_examples=n, derandomize=True, suppress_health_check=[*HealthCheck])
    for n in (4, 20)
)


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(1, max_eval_seconds=120) as pool:
        yield pool


makes = st.builds(
    Make,
    backend=st.sampled_from(["vllm", "sglang", "trtllm"]),
    shape=st.sampled_from([ParallelShape(tp=1), ParallelShape(tp=2)]),
    replicas=st.integers(1, 3),
    disagg=st.booleans(),
)
loads = st.builds(
    SyntheticTraffic,
    isl=st.integers(16, 3000),
    osl=st.integers(2, 40),
    num_requests=st.integers(3, 16),
    concurrency=st.integers(1, 6),
)


def measured(evaluator: LocalEvaluator, make: Make, traffic: Traffic) -> Metrics:
    result = evaluator.submit(make.plan(traffic)).result()
    assert result.outcome is Outcome.FEASIBLE, result.reason
    assert result.metrics is not None
    return result.metrics


@pytest.mark.real
@FEW
@given(makes, loads, st.booleans())
def test_requests_tokens_and_gpus_are_conserved(
    evaluator: LocalEvaluator, make: Make, load: SyntheticTraffic, routed: bool
) -> None:
    make = replace(make, router=ROUTER if routed else None)
    got = measured(evaluator, make, load).summary
    count = load.num_requests
    assert got["completed_requests"] == got["num_requests"] == count
    assert got["total_input_tokens"] == count * load.isl
    assert got["total_output_tokens"] == count * load.osl
    assert got["num_ttft_samples"] == got["num_e2e_latency_samples"] == count
    # Every GPU is paid for from the first arrival to the last token: tp x replicas of each role.
    gpus = make.shape.tp * make.replicas * (2 if make.disagg else 1)
    assert got["gpu_hours"] * 3.6e6 / got["duration_ms"] == pytest.approx(gpus, rel=1e-9)
    assert got["output_throughput_tok_s"] * got["duration_ms"] / 1000 == pytest.approx(count * load.osl)
    # A request is answered in full after it has begun to be, and before the end.
    assert 0 < got["min_ttft_ms"] <= got["mean_ttft_ms"] <= got["max_ttft_ms"] <= got["max_e2e_latency_ms"]
    assert got["max_e2e_latency_ms"] <= got["duration_ms"] * (1 + 1e-9)


@dataclass(frozen=True)
class Row:
    at_ms: int
    isl: int
    osl: int


def trace(folder: Path, rows: list[Row], **how: float) -> TraceTraffic:
    """A mooncake file of rows that share nothing."""
    path = folder / f"{abs(hash((tuple(rows), tuple(how))))}.jsonl"
    lines, block = [], 0
    for row in rows:
        blocks = -(-row.isl // TRACE_BLOCK_SIZE)
        ids = list(range(block, block + blocks))
        block += blocks
        lines.append(
            {"timestamp": row.at_ms, "input_length": row.isl, "output_length": row.osl, "hash_ids": ids}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    total = sum(row.isl + row.osl for row in rows)
    return TraceTraffic(str(path), len(rows), total, **how)  # type: ignore[arg-type]


rows = st.lists(
    st.builds(Row, st.integers(0, 400).map(lambda n: 12 * n), st.integers(16, 3000), st.integers(2, 30)),
    min_size=2,
    max_size=12,
).map(lambda found: sorted(found, key=lambda row: row.at_ms))


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(900)
@MANY
@given(makes, rows, st.sampled_from([2, 3, 4]))
def test_arrivals_twice_as_fast_are_a_trace_with_half_the_times(
    evaluator: LocalEvaluator, tmp_path_factory: pytest.TempPathFactory, make: Make, rows: list[Row], k: int
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    faster = trace(folder, rows, arrival_speedup_ratio=float(k))
    shorter = trace(folder, [replace(row, at_ms=row.at_ms // k) for row in rows])
    assert alike(measured(evaluator, make, faster), measured(evaluator, make, shorter))


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(900)
@MANY
@given(makes, loads)
def test_the_same_requests_generated_and_from_a_file_give_the_same(
    evaluator: LocalEvaluator, tmp_path_factory: pytest.TempPathFactory, make: Make, load: SyntheticTraffic
) -> None:
    assert load.concurrency is not None
    folder = tmp_path_factory.mktemp("traces")
    same = [Row(0, load.isl, load.osl)] * load.num_requests
    recorded = trace(folder, same, replay_concurrency=load.concurrency)
    assert alike(measured(evaluator, make, load), measured(evaluator, make, recorded))


def alike(one: Metrics, other: Metrics) -> bool:
    """The same summary, but for rounding in the last places of times that are differences."""
    assert one.summary.keys() == other.summary.keys()
    for name, value in one.summary.items():
        if not math.isclose(value, other.summary[name], rel_tol=1e-6, abs_tol=1e-6):
            raise AssertionError(f"{name}: {value} and {other.summary[name]}")
    return True


@pytest.mark.real
@pytest.mark.slow
@settings(deadline=None, max_examples=6, derandomize=True)
@given(
    st.sampled_from(["vllm", "sglang", "trtllm"]),
    st.integers(16, 2000),
    st.integers(2, 30),
    st.integers(2, 8),
)
def test_engines_and_arrivals_twice_as_fast_only_shrink_time(
    backend: str, isl: int, osl: int, rate: int
) -> None:
    """The runtime's own ``speedup_ratio`` of an engine, with arrivals faster by the same factor. The steps of
    its clock show in the seventh digit."""
    slow = SyntheticTraffic(isl, osl, num_requests=10, request_rate=float(rate))
    one, two = (faster(Make(backend=backend, replicas=2), slow, factor) for factor in (1.0, 2.0))  # type: ignore[arg-type]
    for name in ("duration_ms", "mean_ttft_ms", "max_ttft_ms", "mean_itl_ms", "mean_e2e_latency_ms"):
        assert two[name] == pytest.approx(one[name] / 2, rel=1e-5)
    for name in ("output_throughput_tok_s", "mean_output_token_throughput_per_user"):
        assert two[name] == pytest.approx(one[name] * 2, rel=1e-5)


def faster(make: Make, load: SyntheticTraffic, factor: float) -> Mapping[str, float]:
    assert load.request_rate is not None
    plan = make.plan(replace(load, request_rate=load.request_rate * factor))
    call = replay._deployment(plan, None)
    engine = call["extra_engine_args"]["engine"]
    assert isinstance(engine, dict)
    if factor != 1.0:
        engine["speedup_ratio"] = factor
    metrics = replay._judge(plan, replay._replay(plan, call)).metrics
    assert metrics is not None
    return metrics.summary
