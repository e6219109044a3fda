from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from spica.deployment.shapes import ParallelShape
from spica.errors import StackError
from spica.facts import (
    FeasibilityQuery,
    KvCapacity,
    KvQuery,
    estimator_available,
    feasible_shape_tokens,
    kv,
    kv_capacity,
    resolve_backend_version,
)
from spica.storage import remembered

pytestmark = pytest.mark.real

TEP = ParallelShape(tp=4, moe_ep=4)
DEP = ParallelShape(attention_dp=4, moe_ep=4)
PURE_TP = ParallelShape(tp=4, moe_tp=4)


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answers come from the estimator, not from an earlier run of the tests."""
    monkeypatch.setattr(remembered, "default_folder", lambda: tmp_path)
    kv_capacity.cache_clear()
    kv._notes.cache_clear()
    yield
    kv_capacity.cache_clear()
    kv._notes.cache_clear()


def query(model: str, sku: str, backend: str, shape: ParallelShape) -> KvQuery:
    return KvQuery(model, sku, backend, resolve_backend_version(sku, backend), shape, 8192, 256, 0.9)


@pytest.mark.parametrize(("backend", "tokens"), [("vllm", 751_550), ("sglang", 756_186), ("trtllm", 780_352)])
def test_qwen3_32b_on_two_h200(backend: str, tokens: int) -> None:
    found = kv_capacity(query("Qwen/Qwen3-32B", "h200_sxm", backend, ParallelShape(tp=2)))
    assert found.tokens == tokens
    # 64 layers x 4 of 8 KV heads on a rank x 128 x keys and values x 2 bytes.
    assert found.bytes_per_token == 64 * 4 * 128 * 2 * 2
    assert found.kv_bytes // found.bytes_per_token == tokens


def test_the_bytes_add_up_on_vllm() -> None:
    found = kv_capacity(query("Qwen/Qwen3-32B", "h200_sxm", "vllm", ParallelShape(tp=2)))
    parts = found.breakdown
    assert parts is not None
    taken = parts.weights_bytes + parts.activations_bytes + parts.runtime_bytes + parts.communication_bytes
    assert found.kv_bytes == pytest.approx(0.9 * parts.gpu_bytes - taken, abs=4)


@pytest.mark.parametrize(
    ("backend", "shape", "tokens"),
    [
        ("trtllm", TEP, 350_938),
        ("trtllm", PURE_TP, 278_741),
        ("trtllm", DEP, None),
        ("sglang", TEP, 150_274),
        ("vllm", TEP, None),
        ("vllm", PURE_TP, None),
        ("vllm", DEP, None),
    ],
)
def test_deepseek_v3_on_four_gb200(backend: str, shape: ParallelShape, tokens: int | None) -> None:
    found = kv_capacity(query("deepseek-ai/DeepSeek-V3", "gb200", backend, shape))
    assert found.tokens == tokens
    assert found.breakdown is not None
    assert found.breakdown.gpu_bytes == 198_674_743_296
    assert found.breakdown.weights_bytes > 150e9
    assert found.reason.startswith("no KV budget") == (tokens is None)


def test_experts_that_cannot_be_sharded() -> None:
    found = kv_capacity(query("MiniMaxAI/MiniMax-M2.5", "h200_sxm", "vllm", ParallelShape(tp=8, moe_tp=8)))
    assert found.tokens is None
    assert found.reason.startswith("Invalid quantized MoE configuration")
    assert found.breakdown is None


def test_what_is_not_about_the_shape_is_not_called_infeasible() -> None:
    good = query("Qwen/Qwen3-32B", "h200_sxm", "vllm", ParallelShape(tp=2))
    with pytest.raises(ValueError, match="not a queryable version"):
        kv_capacity(KvQuery(good.model, good.sku, good.backend, "9.9.9", good.shape, 8192, 256))
    with pytest.raises(ValueError, match="kv_cache_memory_fraction"):
        kv_capacity(
            KvQuery(good.model, good.sku, good.backend, good.backend_version, good.shape, 8192, 256, 1.5)
        )
    with pytest.raises(ValueError, match="for KV-cache estimation"):
        kv_capacity(KvQuery(good.model, "no_such_sku", "vllm", "0.24.0", good.shape, 8192, 256))


def test_a_shape_is_feasible_when_its_tokens_exceed_one_sequence() -> None:
    shape = ParallelShape(tp=2)
    for max_seq_len, feasible in ((751_549, True), (751_550, False), (751_551, False)):
        setting = FeasibilityQuery("Qwen/Qwen3-32B", "h200_sxm", "vllm", "0.24.0", max_seq_len, 8192, 256)
        verdict = feasible_shape_tokens([shape], setting)[shape]
        assert verdict.feasible == feasible
        assert verdict.tokens == 751_550
        assert bool(verdict.reason) != feasible
    assert "751,550 tokens" in verdict.reason


def test_without_the_estimator_nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimator_available()
    monkeypatch.setitem(sys.modules, "aisimulate_core.sdk.memory", None)
    assert not estimator_available()
    kv_capacity.cache_clear()
    unasked = query("Qwen/Qwen3-32B", "h200_sxm", "vllm", ParallelShape(tp=16))
    with pytest.raises(StackError, match="cannot be imported"):
        kv_capacity(unasked)


def test_an_answer_is_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[KvQuery] = []
    original = kv._asked

    def counted(question: KvQuery, memory: ModuleType) -> KvCapacity:
        asked.append(question)
        return original(question, memory)

    monkeypatch.setattr(kv, "_asked", counted)

    def next_process(question: KvQuery) -> KvCapacity:
        kv_capacity.cache_clear()
        kv._notes.cache_clear()
        return kv_capacity(question)

    fits = query("Qwen/Qwen3-32B", "h200_sxm", "vllm", ParallelShape(tp=2))
    unfit = query("MiniMaxAI/MiniMax-M2.5", "h200_sxm", "vllm", ParallelShape(tp=8, moe_tp=8))
    first = [next_process(q) for q in (fits, unfit)]
    assert [c.tokens is None for c in first] == [False, True]
    assert [next_process(q) for q in (fits, unfit)] == first
    assert asked == [fits, unfit]
    for file in tmp_path.iterdir():
        file.write_text(file.read_text().replace("tokens", "token"))
    assert [next_process(q) for q in (fits, unfit)] == first
    assert asked == [fits, unfit] * 2
