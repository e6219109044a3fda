"""What the search does with the beliefs about parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from spica.optimize import (
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Influence,
    Objective,
    Observation,
    Study,
    Suggestion,
    Values,
    make_optimizer,
)
from spica.optimize.history import History
from spica.optimize.shapes import ShapeWalk
from spica.optimize.space import Space

SHAPE, TUNING, WEIGHT = Influence.SHAPE, Influence.TUNING, Influence.WEIGHT
SIZES = (1.0, 2.0, 4.0, 8.0)
GPUS = 16
#: Size of a worker and number of workers, as of an aggregated deployment on up to 16 GPUs.
CONFIGS = tuple((size, count) for size in SIZES for count in range(1, int(GPUS // size) + 1))
PARAMETERS = (
    FloatParameter("used", 1 / GPUS, 1.0, 1.0, influence=SHAPE),
    DiscreteParameter("size", SIZES, 2.0, log=True, influence=SHAPE),
    DiscreteParameter("tokens", (2048.0, 4096.0, 8192.0, 16384.0, 32768.0), 8192.0, True, TUNING),
    CategoricalParameter("router", ("rr", "kv"), "kv", TUNING),
    DiscreteParameter("overlap", (0.0, 0.5, 1.0), 1.0, influence=WEIGHT),
    DiscreteParameter("temperature", (0.0, 0.2, 0.5, 1.0), 0.0, influence=WEIGHT),
    CategoricalParameter("backend", ("vllm", "sglang"), "vllm"),
)


def nearest(values: Values) -> tuple[float, int]:
    """The config nearest to the requested shape."""

    def distance(config: tuple[float, int]) -> float:
        size, count = config
        apart = math.log2(size / float(values["size"])) / 3
        return (size * count / GPUS - float(values["used"])) ** 2 + apart**2

    return min(CONFIGS, key=distance)


def canonical(values: Values) -> Values:
    size, count = nearest(values)
    return {**values, "size": size, "used": size * count / GPUS}


def study(seed: int) -> Study:
    return Study(PARAMETERS, (Objective("o"),), seed, lambda v: repr(sorted(canonical(v).items())), canonical)


def shape(values: Values) -> tuple[float, int]:
    size = float(values["size"])
    return size, round(float(values["used"]) * GPUS / size)


def cliff(values: Values) -> float:
    """Goodput per GPU under an SLA: fewer GPUs are better, down to where they cannot keep up. Two workers of
    size 4 are the best (8 GPUs of other sizes do not keep up); knobs hardly matter."""
    size, count = shape(values)
    power = count * size * {1.0: 0.6, 2.0: 0.8, 4.0: 1.0, 8.0: 0.9}[size]
    good = 100.0 / (size * count) if power >= 7.5 else power / 10
    return good * (1 + 0.002 * float(values["overlap"]) - 0.001 * float(values["temperature"]))


def suggestions(seed: int, asks: int, count: int) -> Iterator[Suggestion]:
    optimizer = make_optimizer(study(seed))
    for _ in range(asks):
        asked = optimizer.ask(count)
        optimizer.tell([Observation(s, (cliff(s.values),)) for s in asked])
        yield from asked


def test_first_suggestions_differ_in_shape_and_leave_knobs_at_their_defaults() -> None:
    first = make_optimizer(study(5)).ask(4)
    assert len({shape(s.values) for s in first}) == 4
    for parameter in PARAMETERS[2:6]:
        assert {s.values[parameter.name] for s in first} == {parameter.default}
    # Nothing is believed of the backend: it varies.
    assert {s.values["backend"] for s in first} == {"vllm", "sglang"}


def test_more_seeds_than_shapes_vary_the_knobs_too() -> None:
    few = Study(PARAMETERS[1:4], (Objective("o"),), 0)
    first = make_optimizer(few).ask(12)
    assert len({repr(s.values) for s in first}) == 12
    assert {s.values["tokens"] for s in first[:4]} == {8192.0}


@pytest.mark.parametrize("seed", range(3))
def test_every_sixth_suggestion_at_least_has_a_shape_never_asked_for(seed: int) -> None:
    asked = list(suggestions(seed, asks=4, count=6))
    for start in range(6, len(asked), 6):
        before = {shape(s.values) for s in asked[:start]}
        assert any(shape(s.values) not in before for s in asked[start : start + 6])


def test_a_cliff_beside_the_best_shape_does_not_hide_a_better_one() -> None:
    # By brute force over all shapes, knobs at their best: 4 x 2 gives 12.5.
    best = max(CONFIGS, key=lambda c: cliff({"size": c[0], "used": c[0] * c[1] / GPUS, **KNOBS}))
    assert best == (4.0, 2)
    for seed in range(4):
        found = max(suggestions(seed, asks=6, count=4), key=lambda s: cliff(s.values))
        assert shape(found.values) == best


KNOBS = {"overlap": 1.0, "temperature": 0.0}


def test_a_step_goes_to_the_nearest_shape_that_was_not_asked_for() -> None:
    space = Space(study(0))
    past = History(study(0))
    rng = np.random.default_rng(0)
    start = canonical({p.name: p.default for p in PARAMETERS} | {"size": 2.0, "used": 0.5, "tokens": 2048.0})
    past.add_asked([Suggestion(0, start)])
    walk = ShapeWalk(space)
    taken: list[tuple[float, int]] = [shape(start)]
    rows: list[np.ndarray] = []

    def apart(config: tuple[float, int]) -> float:
        size, count = config
        # On the axes of the space: the share of GPUs from 1/16 to 1, sizes by their logarithm.
        used = (size * count / GPUS - 0.5) / (1 - 1 / GPUS)
        return used**2 + (math.log2(size / 2.0) / 3) ** 2

    for _ in range(6):
        row = walk.step(past, np.array(rows), space.encode(start), rng)
        assert row is not None
        found = space.decode(row)
        assert {name: found[name] for name in start if name not in ("used", "size")} == {
            name: start[name] for name in start if name not in ("used", "size")
        }
        left = [c for c in CONFIGS if c not in taken]
        assert apart(shape(found)) == pytest.approx(min(map(apart, left)))
        taken.append(shape(found))
        rows.append(row)


def test_a_step_keeps_to_a_limit_of_the_divisor() -> None:
    def gpus(values: Values) -> float:
        size, count = nearest(values)
        return size * count

    limited = replace(study(0), divisor=gpus)
    space, past, rng = Space(limited), History(limited), np.random.default_rng(0)
    start = canonical({p.name: p.default for p in PARAMETERS} | {"size": 2.0, "used": 0.5})
    past.add_asked([Suggestion(0, start)])
    walk, rows = ShapeWalk(space), np.zeros((0, len(PARAMETERS)))
    seen = set()
    while (row := walk.step(past, rows, space.encode(start), rng, furthest=5.9)) is not None:
        rows = np.vstack([rows, row])
        seen.add(shape(space.decode(row)))
    small = {(size, count) for size, count in CONFIGS if size * count <= 5}
    assert seen <= small
    assert len(seen) > len(small) / 2


def test_under_a_ceiling_the_smallest_deployment_that_carries_the_load_is_found() -> None:
    """A worker of 1, 2, 4 or 8 GPUs carries 4, 13, 25 or 40 of a load of 90, or a tenth less with many tokens
    a step or on one of the backends. What cannot carry 88 is late with most. So 7 x 2 GPUs are best, with the
    right tokens and backend."""

    def value(values: Values) -> float:
        size, count = nearest(values)
        capacity = {1.0: 4.0, 2.0: 13.0, 4.0: 25.0, 8.0: 40.0}[size] * count
        if float(values["tokens"]) > 4096 or values["backend"] == "vllm":
            capacity *= 0.9
        in_time = min(max((capacity - 35.2) / 52.8, 0.0), 1.0)
        return min(90.0, capacity) * in_time / (size * count)

    def gpus(values: Values) -> float:
        size, count = nearest(values)
        return size * count

    for seed in range(2):
        limited = replace(study(seed), divisor=gpus)
        optimizer = make_optimizer(limited)
        found = 0.0
        for _ in range(20):
            asked = optimizer.ask(4)
            optimizer.tell([Observation(s, (value(s.values),)) for s in asked])
            found = max(found, *(value(s.values) for s in asked))
        assert found == pytest.approx(90 / 14)


def test_a_study_without_shapes_takes_no_steps() -> None:
    plain = Study((FloatParameter("x", 0.0, 1.0, 0.5),), (Objective("o"),), 0)
    past = History(plain)
    walk = ShapeWalk(Space(plain))
    assert walk.step(past, np.zeros((0, 1)), np.array([0.5]), np.random.default_rng(0)) is None


def test_a_walk_ends_when_all_shapes_have_been_asked_for() -> None:
    space, past = Space(study(0)), History(study(0))
    every = [
        canonical({p.name: p.default for p in PARAMETERS} | {"size": s, "used": s * n / GPUS})
        for s, n in CONFIGS
    ]
    past.add_asked([Suggestion(i, values) for i, values in enumerate(every)])
    step = ShapeWalk(space).step(past, np.zeros((0, 7)), space.encode(every[3]), np.random.default_rng(1))
    assert step is None


def test_weights_have_short_axes() -> None:
    space = Space(study(0))
    ends = np.array([space.encode(dict(zip((p.name for p in PARAMETERS), v, strict=True))) for v in _ends()])
    # used, size, tokens, overlap, temperature
    spans = np.ptp(space.features(ends).continuous, axis=0)
    np.testing.assert_allclose(spans, [1.0, 1.0, 1.0, 0.3, 0.3])


def _ends() -> list[tuple[float | str, ...]]:
    pairs = [
        (p.low, p.high) if isinstance(p, FloatParameter) else (p.choices[0], p.choices[-1])
        for p in PARAMETERS
    ]
    return list(product(*pairs))
