"""Projection against a reference written from the text, in exact fractions over plain lists."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spica.deployment.enumerate import enumerate_disagg_configs, enumerate_parallel_configs
from spica.deployment.features import geometric_centre
from spica.deployment.pool import ConfigPool
from spica.deployment.projection import ParallelConfigProjector
from spica.deployment.rules import worker_shapes
from spica.deployment.shapes import AggConfig, DisaggConfig, ParallelConfig, ParallelShape, WorkerGroup
from spica.optimize.protocol import CategoricalParameter, DiscreteParameter, FloatParameter, Value

BUDGET = 16
MOE_SHAPES = worker_shapes(is_moe=True, gpus_per_worker=[2, 4, 8])
ONE_GPU = ParallelShape()
AGG_CONFIGS = enumerate_parallel_configs([*MOE_SHAPES, ONE_GPU], gpu_budget=BUDGET)
DISAGG_CONFIGS = enumerate_disagg_configs([*MOE_SHAPES, ONE_GPU], MOE_SHAPES, gpu_budget=BUDGET)


def roles_of(config: ParallelConfig) -> list[tuple[str, ParallelShape, int]]:
    if isinstance(config, AggConfig):
        return [("agg", config.workers.shape, config.workers.replicas)]
    return [
        ("prefill", config.prefill.shape, config.prefill.replicas),
        ("decode", config.decode.shape, config.decode.replicas),
    ]


def modes_of(config: ParallelConfig) -> dict[str, str]:
    """Attention ``dp`` if attention_dp > 1 else ``tp``; FFN ``ep`` if moe_ep > 1 else ``tp``."""
    modes: dict[str, str] = {}
    for role, shape, _ in roles_of(config):
        modes[f"{role}_attention_mode"] = "dp" if shape.attention_dp > 1 else "tp"
        modes[f"{role}_ffn_mode"] = "ep" if shape.moe_ep > 1 else "tp"
    return modes


def numbers_of(config: ParallelConfig, budget: int) -> dict[str, Fraction]:
    """Ratios linear, sizes in log2: exact, because sizes are powers of two."""
    roles = roles_of(config)
    gpus = [shape.tp * shape.pp * shape.attention_dp * replicas for _, shape, replicas in roles]
    numbers = {"used_gpu_ratio": Fraction(sum(gpus), budget)}
    if len(roles) == 2:
        numbers["prefill_gpu_share"] = Fraction(gpus[0], sum(gpus))
    for role, shape, _ in roles:
        size = shape.tp * shape.pp * shape.attention_dp
        numbers[f"{role}_num_gpus_per_engine_target"] = Fraction(size.bit_length() - 1)
    return numbers


def sort_key(config: ParallelConfig) -> list[int]:
    key: list[int] = []
    for _, s, replicas in roles_of(config):
        key += [s.tp, s.pp, s.attention_dp, s.moe_tp, s.moe_ep, replicas]
    return key


def reference(
    configs: list[ParallelConfig], numbers: dict[str, Fraction], modes: dict[str, str], budget: int
) -> tuple[ParallelConfig, Fraction, bool]:
    mismatches = {c: sum(modes_of(c)[k] != v for k, v in modes.items()) for c in configs}
    fewest = min(mismatches.values())
    spans = {
        k: max(numbers_of(c, budget)[k] for c in configs) - min(numbers_of(c, budget)[k] for c in configs)
        for k in numbers
    }

    def distance(config: ParallelConfig) -> Fraction:
        actual = numbers_of(config, budget)
        terms = [((actual[k] - z) / spans[k]) ** 2 for k, z in numbers.items() if spans[k] > 0]
        return sum(terms, Fraction(0))

    survivors = [c for c in configs if mismatches[c] == fewest]
    best = min(survivors, key=lambda c: (distance(c), sort_key(c)))
    return best, distance(best), fewest > 0


def projector_of(configs: list[ParallelConfig], valid: list[frozenset[str]]) -> ParallelConfigProjector:
    order = sorted(range(len(configs)), key=lambda i: sort_key(configs[i]))
    return ParallelConfigProjector(
        ConfigPool(tuple(configs[i] for i in order), tuple(valid[i] for i in order)), BUDGET
    )


backend_sets = st.sampled_from([frozenset({"vllm"}), frozenset({"sglang"}), frozenset({"vllm", "sglang"})])


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[ParallelConfig], list[frozenset[str]]]:
    source = draw(st.sampled_from([AGG_CONFIGS, DISAGG_CONFIGS]))
    configs: list[ParallelConfig] = draw(
        st.lists(st.sampled_from(source), min_size=2, max_size=30, unique=True)
    )
    return configs, draw(st.lists(backend_sets, min_size=len(configs), max_size=len(configs)))


@given(pools(), st.data())
def test_projection_is_the_reference(
    pool: tuple[list[ParallelConfig], list[frozenset[str]]], data: st.DataObject
) -> None:
    configs, valid = pool
    projector = projector_of(configs, valid)
    backend = data.draw(st.sampled_from(sorted({b for v in valid for b in v})))
    values: dict[str, Value] = {}
    for parameter in projector.parameters:
        if isinstance(parameter, FloatParameter):
            step = data.draw(st.integers(0, 64))
            values[parameter.name] = parameter.low + (parameter.high - parameter.low) * step / 64
        else:
            choices: list[Value] = [*parameter.choices]
            values[parameter.name] = data.draw(st.sampled_from(choices))
    everything = {**values, **projector.constants}
    modes = {k: str(v) for k, v in everything.items() if k.endswith("_mode")}
    numbers = {
        k: Fraction(int(v).bit_length() - 1)
        if k.endswith("_target")
        else Fraction(v).limit_denominator(10**6)
        for k, v in everything.items()
        if not isinstance(v, str)
    }
    mine = [c for c, v in zip(configs, valid, strict=True) if backend in v]
    expected, distance, fallback = reference(mine, numbers, modes, BUDGET)
    found = projector.project(values, backend)
    assert found.config == expected
    assert found.distance == pytest.approx(float(distance), abs=1e-9)
    assert found.mode_projected == fallback
    assert dict(found.requested) == everything
    assert {k: v for k, v in found.actual if k.endswith("_mode")} == {
        k: modes_of(found.config)[k] for k in modes
    }


@given(pools())
def test_an_encoded_config_comes_back(pool: tuple[list[ParallelConfig], list[frozenset[str]]]) -> None:
    configs, valid = pool
    projector = projector_of(configs, valid)
    for config, backends in zip(configs, valid, strict=True):
        for backend in backends:
            found = projector.project(projector.encode(config), backend)
            assert found.config == config
            assert found.distance == 0.0
            assert not found.mode_projected


@given(pools())
def test_the_dimensions_are_what_the_pool_holds(
    pool: tuple[list[ParallelConfig], list[frozenset[str]]],
) -> None:
    configs, valid = pool
    projector = projector_of(configs, valid)
    numbers = [numbers_of(c, BUDGET) for c in configs]
    modes = [modes_of(c) for c in configs]
    by_name = {p.name: p for p in projector.parameters}
    for name in numbers[0]:
        distinct = sorted({n[name] for n in numbers})
        if len(distinct) == 1:
            assert name in projector.constants
        elif name.endswith("_target"):
            parameter = by_name[name]
            assert isinstance(parameter, DiscreteParameter)
            assert parameter.choices == tuple(2.0**d for d in distinct)
            assert parameter.log
        else:
            ratio = by_name[name]
            assert isinstance(ratio, FloatParameter)
            assert (ratio.low, ratio.high) == (float(distinct[0]), float(distinct[-1]))
            wanted = 1.0 if name == "used_gpu_ratio" else 0.5
            assert ratio.default == sorted([ratio.low, wanted, ratio.high])[1]
    for name in modes[0]:
        order = ("tp", "dp") if name.endswith("attention_mode") else ("ep", "tp")
        present = tuple(m for m in order if any(x[name] == m for x in modes))
        if len(present) > 1:
            parameter = by_name[name]
            assert isinstance(parameter, CategoricalParameter)
            assert (parameter.choices, parameter.default) == (present, present[0])


def tep(gpus: int) -> ParallelShape:
    return ParallelShape(tp=gpus, moe_ep=gpus)


A = DisaggConfig(WorkerGroup(tep(4), 2), WorkerGroup(tep(8), 1))
B = DisaggConfig(WorkerGroup(tep(4), 1), WorkerGroup(ParallelShape(tp=8, moe_tp=8), 3))


def test_the_worked_example_of_a_32_gpu_branch() -> None:
    pool = ConfigPool(tuple(sorted([A, B])), (frozenset({"vllm"}),) * 2)
    projector = ParallelConfigProjector(pool, 32)
    assert projector.constants == {
        "prefill_num_gpus_per_engine_target": 4.0,
        "decode_num_gpus_per_engine_target": 8.0,
        "prefill_attention_mode": "tp",
        "prefill_ffn_mode": "ep",
        "decode_attention_mode": "tp",
    }
    numbers_of_a = {"used_gpu_ratio": 0.5, "prefill_gpu_share": 0.5}
    found = projector.project({**numbers_of_a, "decode_ffn_mode": "tp"}, "vllm")
    assert found.config == B
    assert not found.mode_projected
    actual = dict(found.actual)
    assert actual["used_gpu_ratio"] == 0.875
    assert actual["prefill_gpu_share"] == pytest.approx(0.142857, abs=1e-6)
    # Both numbers are one whole span away.
    assert found.distance == pytest.approx(2.0)
    assert projector.project({**numbers_of_a, "decode_ffn_mode": "ep"}, "vllm").config == A


def test_a_mode_that_the_backend_lacks_is_reported() -> None:
    pool = ConfigPool(
        tuple(sorted([A, B])),
        tuple({A: frozenset({"vllm"}), B: frozenset({"sglang"})}[c] for c in sorted([A, B])),
    )
    projector = ParallelConfigProjector(pool, 32)
    found = projector.project(
        {"used_gpu_ratio": 0.5, "prefill_gpu_share": 0.5, "decode_ffn_mode": "ep"}, "sglang"
    )
    assert found.config == B
    assert found.mode_projected
    # A pool of one config on this backend has no span, and so no distance.
    assert found.distance == 0.0


def test_equal_distances_go_to_the_lexicographically_smallest() -> None:
    configs = [AggConfig(WorkerGroup(ParallelShape(tp=2), r)) for r in (1, 3)]
    pool = ConfigPool(tuple(configs), (frozenset({"vllm"}),) * 2)
    projector = ParallelConfigProjector(pool, 8)
    assert projector.project({"used_gpu_ratio": 0.5}, "vllm").config == configs[0]


def test_a_dense_pool_has_no_ffn_mode() -> None:
    configs = enumerate_parallel_configs(worker_shapes(is_moe=False, gpus_per_worker=[1, 2]), gpu_budget=4)
    projector = ParallelConfigProjector(ConfigPool(configs, (frozenset({"vllm"}),) * len(configs)), 4)
    assert [p.name for p in projector.parameters] == ["used_gpu_ratio", "agg_num_gpus_per_engine_target"]
    assert projector.constants == {"agg_attention_mode": "tp"}


def test_a_pool_of_one_is_not_projected() -> None:
    projector = ParallelConfigProjector(ConfigPool((A,), (frozenset({"vllm"}),)), 32)
    assert projector.parameters == ()
    found = projector.project({}, "vllm")
    assert (found.config, found.distance, found.mode_projected) == (A, 0.0, False)


@pytest.mark.parametrize(
    ("sizes", "centre"),
    [
        ([1, 2, 4, 8, 16], 4),
        ([2, 4, 8, 16], 4),
        ([1, 2], 1),
        ([1, 2, 4], 2),
        ([1, 16], 1),
        ([4, 8, 16], 8),
        ([1, 8, 16], 8),
    ],
)
def test_the_geometric_centre(sizes: list[float], centre: float) -> None:
    assert geometric_centre(sizes) == centre


def test_menu_entries_with_equal_features_are_named() -> None:
    mixed = AggConfig(WorkerGroup(ParallelShape(tp=2, attention_dp=2, moe_ep=4)))
    dep = AggConfig(WorkerGroup(ParallelShape(tp=1, attention_dp=4, moe_ep=4)))
    projector = ParallelConfigProjector(ConfigPool((dep, mixed), (frozenset({"vllm"}),) * 2), 8)
    assert projector.shadowed("vllm") == (mixed,)


def test_metadata_is_json() -> None:
    projector = ParallelConfigProjector(ConfigPool(tuple(sorted([A, B])), (frozenset({"vllm"}),) * 2), 32)
    found = projector.project(projector.encode(B), "vllm")
    read = json.loads(json.dumps(found.to_json()))
    assert read["config"]["decode"] == {
        "tp": 8, "pp": 1, "attention_dp": 1, "moe_tp": 8, "moe_ep": 1, "strategy": "tp", "replicas": 3,
    }  # fmt: skip
    assert read["config"]["used_gpus"] == 28
    assert read["requested"]["used_gpu_ratio"] == 0.875


def test_what_cannot_be_projected_is_refused() -> None:
    projector = ParallelConfigProjector(ConfigPool(tuple(sorted([A, B])), (frozenset({"vllm"}),) * 2), 32)
    with pytest.raises(ValueError, match="no config of the pool is valid on trtllm"):
        projector.project(projector.encode(A), "trtllm")
    with pytest.raises(ValueError, match="no value for used_gpu_ratio"):
        projector.project({"prefill_gpu_share": 0.5, "decode_ffn_mode": "ep"}, "vllm")
    with pytest.raises(ValueError, match="empty pool"):
        ParallelConfigProjector(ConfigPool((), ()), 32)
