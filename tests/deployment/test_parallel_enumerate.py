"""Enumeration against a brute force over every tuple, written from the reference text alone."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spica.deployment.enumerate import enumerate_disagg_configs, enumerate_parallel_configs, smallest_budget
from spica.deployment.rules import backend_objection, ladder, shape_objection, worker_shapes
from spica.deployment.shapes import AggConfig, DisaggConfig, ParallelShape, WorkerGroup

POWERS = (1, 2, 4, 8, 16, 32)


def is_one_of_the_four(tp: int, dp: int, moe_tp: int, moe_ep: int) -> bool:
    return (
        (tp > 1 and dp == 1 and moe_tp == 1 and moe_ep > 1)
        or (tp == 1 and dp > 1 and moe_tp == 1 and moe_ep > 1)
        or (tp > 1 and dp == 1 and moe_tp > 1 and moe_ep == 1)
        or (tp == 1 and dp > 1 and moe_tp > 1 and moe_ep == 1)
    )


def brute_moe_shapes(sizes: set[int]) -> set[tuple[int, int, int, int]]:
    return {
        (tp, dp, moe_tp, moe_ep)
        for tp, dp, moe_tp, moe_ep in product(POWERS, repeat=4)
        if tp * dp in sizes and tp * dp == moe_tp * moe_ep and is_one_of_the_four(tp, dp, moe_tp, moe_ep)
    }


def dims(shape: ParallelShape) -> tuple[int, int, int, int]:
    return shape.tp, shape.attention_dp, shape.moe_tp, shape.moe_ep


@given(st.sets(st.sampled_from([1, 2, 4, 8, 16])))
def test_moe_shapes_are_the_four_patterns_and_nothing_else(sizes: set[int]) -> None:
    shapes = worker_shapes(is_moe=True, gpus_per_worker=sizes)
    assert {dims(s) for s in shapes} == brute_moe_shapes(sizes)
    assert len(set(shapes)) == len(shapes)
    assert all(s.pp == 1 for s in shapes)


def test_four_patterns_per_size_and_none_on_one_gpu() -> None:
    shapes = worker_shapes(is_moe=True, gpus_per_worker=[1, 4])
    assert [str(s) for s in shapes] == ["tp1-dp4-ep4", "tp1-dp4-moe_tp4", "tp4-ep4", "tp4-moe_tp4"]
    assert [s.strategy for s in shapes] == ["dep", "dtp", "tep", "tp"]


def test_dense_shapes_are_tensor_parallel_alone() -> None:
    shapes = worker_shapes(is_moe=False, gpus_per_worker=ladder(20))
    assert [dims(s) for s in shapes] == [(g, 1, 1, 1) for g in (1, 2, 4, 8, 16)]


@pytest.mark.parametrize(
    ("budget", "sizes"), [(1, (1,)), (3, (1, 2)), (8, (1, 2, 4, 8)), (128, (1, 2, 4, 8, 16))]
)
def test_the_ladder_is_capped_at_the_budget(budget: int, sizes: tuple[int, ...]) -> None:
    assert ladder(budget) == sizes


def test_each_backend_filter() -> None:
    both_attention = ParallelShape(tp=2, attention_dp=2, moe_ep=4)
    both_experts = ParallelShape(tp=4, moe_tp=2, moe_ep=2)
    expert_tp = ParallelShape(tp=4, moe_tp=4)
    allowed = {
        (shape, backend, wide): backend_objection(shape, backend, wide_ep=wide) is None
        for shape in (both_attention, both_experts, expert_tp)
        for backend in ("vllm", "sglang", "trtllm")
        for wide in (False, True)
    }
    assert {key for key, ok in allowed.items() if not ok} == {
        (both_attention, "trtllm", False),
        (both_attention, "trtllm", True),
        (both_experts, "vllm", False),
        (both_experts, "vllm", True),
        (both_experts, "sglang", True),
        (expert_tp, "sglang", True),
    }


@pytest.mark.parametrize(
    ("shape", "is_moe", "says"),
    [
        (ParallelShape(tp=3), False, "3 GPUs per worker is not one of 1, 2, 4, 8, 16"),
        (ParallelShape(tp=32), False, "32 GPUs per worker"),
        (ParallelShape(tp=2, pp=2), False, "pp is 2"),
        (ParallelShape(tp=4), True, "4 differs from moe_tp x moe_ep = 1"),
        (ParallelShape(tp=2, moe_ep=2), False, "the model is dense"),
        (ParallelShape(attention_dp=2), False, "the model is dense"),
        (ParallelShape(tp=0), False, "at least 1"),
    ],
)
def test_why_no_backend_can_run_a_shape(shape: ParallelShape, is_moe: bool, says: str) -> None:
    assert says in (shape_objection(shape, is_moe=is_moe) or "")


@pytest.mark.parametrize(
    ("shape", "is_moe"),
    [
        (ParallelShape(), True),
        (ParallelShape(), False),
        (ParallelShape(tp=2, attention_dp=2, moe_ep=4), True),
    ],
)
def test_legal_shapes_that_enumeration_never_emits_are_not_objected_to(
    shape: ParallelShape, is_moe: bool
) -> None:
    assert shape_objection(shape, is_moe=is_moe) is None


shape_sets = st.sets(st.sampled_from(worker_shapes(is_moe=True, gpus_per_worker=ladder())), max_size=5)


@st.composite
def budgets(draw: st.DrawFn) -> tuple[int, int | None]:
    most = draw(st.integers(1, 24))
    return most, draw(st.none() | st.integers(1, most))


def groups(shapes: set[ParallelShape]) -> list[WorkerGroup]:
    return [WorkerGroup(s, r) for s in shapes for r in range(1, 25)]


@given(shape_sets, budgets())
def test_replicas_fill_the_budget(shapes: set[ParallelShape], budget: tuple[int, int | None]) -> None:
    most, least = budget
    found = enumerate_parallel_configs(shapes, gpu_budget=most, min_gpu_budget=least)
    brute = {
        AggConfig(g) for g in groups(shapes) if (least or 1) <= g.replicas * g.shape.gpus_per_worker <= most
    }
    assert set(found) == brute
    assert list(found) == sorted(brute)


@given(shape_sets, shape_sets, budgets())
def test_disagg_pairs_fill_the_budget_together(
    prefill: set[ParallelShape], decode: set[ParallelShape], budget: tuple[int, int | None]
) -> None:
    most, least = budget
    found = enumerate_disagg_configs(prefill, decode, gpu_budget=most, min_gpu_budget=least)
    brute = {
        DisaggConfig(p, d)
        for p, d in product(groups(prefill), groups(decode))
        if (least or 1) <= p.total_gpus + d.total_gpus <= most
    }
    assert set(found) == brute
    assert list(found) == sorted(brute)


def test_the_number_of_pairs_of_a_128_gpu_moe_budget() -> None:
    shapes = worker_shapes(is_moe=True, gpus_per_worker=ladder(128))
    # 4 patterns per size on each side; per pair of sizes, the pairs of replica counts that fit.
    expected = sum(
        16 * sum((128 - a * r) // b for r in range(1, 128 // a + 1))
        for a, b in product((2, 4, 8, 16), repeat=2)
    )
    found = enumerate_disagg_configs(shapes, shapes, gpu_budget=128)
    assert len(found) == expected == 109_888


@given(st.lists(st.sets(st.sampled_from([1, 2, 4, 8, 16])), min_size=1, max_size=2), st.integers(1, 40))
def test_the_smallest_budget_is_the_first_that_enumerates_anything(
    roles: list[set[int]], at_least: int
) -> None:
    shapes = [[ParallelShape(tp=g) for g in sizes] for sizes in roles]

    def anything(budget: int) -> bool:
        if len(shapes) == 1:
            return bool(enumerate_parallel_configs(shapes[0], gpu_budget=budget, min_gpu_budget=at_least))
        return bool(enumerate_disagg_configs(*shapes, gpu_budget=budget, min_gpu_budget=at_least))

    first = next((budget for budget in range(at_least, 100) if anything(budget)), None)
    assert smallest_budget(shapes, at_least) == first
