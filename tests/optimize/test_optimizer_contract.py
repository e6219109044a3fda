"""What every optimizer promises, asked of all of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from optimizer_studies import identity, mixed, observe, run, tiny, value

from spica.optimize import (
    Asked,
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Objective,
    Observation,
    Optimizer,
    Study,
    Suggestion,
    Told,
    make_optimizer,
)
from spica.optimize.protocol import Event
from spica.optimize.sampling import QuasiRandomOptimizer, RandomOptimizer

Make = Callable[[Study], Optimizer]


@pytest.fixture(
    params=[
        pytest.param(make_optimizer, id="gp", marks=pytest.mark.real),
        pytest.param(QuasiRandomOptimizer, id="quasi-random"),
        pytest.param(RandomOptimizer, id="random"),
    ]
)
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


def test_suggestions_are_numbered_in_the_space_and_start_with_the_defaults(make: Make) -> None:
    study = mixed()
    asked = run(make(study), study, rounds=3, batch=4)
    assert [s.id for s in asked] == list(range(12))
    assert asked[0].values == {p.name: p.default for p in study.parameters}
    for suggestion in asked:
        assert set(suggestion.values) == {p.name for p in study.parameters}
        for p in study.parameters:
            given = suggestion.values[p.name]
            if isinstance(p, FloatParameter):
                assert isinstance(given, float)
                assert p.low <= given <= p.high
            else:
                assert any(given is choice for choice in p.choices)


def test_same_calls_same_suggestions_and_another_seed_others(make: Make) -> None:
    first, again, other = (run(make(mixed(seed)), mixed(seed), 4, 4) for seed in (7, 7, 8))
    assert first == again
    assert [s.values for s in first] != [s.values for s in other]


def test_the_order_of_telling_does_not_matter(make: Make) -> None:
    study = mixed(3)
    straight, shuffled = make(study), make(study)
    for round_number in range(3):
        suggestions = straight.ask(4)
        assert shuffled.ask(4) == suggestions
        told = [observe(study, s) for s in suggestions]
        straight.tell(told)
        random.Random(round_number).shuffle(told)
        for observation in told:
            shuffled.tell([observation])
    assert straight.ask(2) == shuffled.ask(2)


def test_no_candidate_is_suggested_twice_while_there_are_others(make: Make) -> None:
    study = mixed(1)
    keys = [identity(s.values) for s in run(make(study), study, rounds=3, batch=8)]
    assert len(set(keys)) == len(keys)


def test_rounds_may_overlap(make: Make) -> None:
    study = mixed(2)
    optimizer = make(study)
    waiting = optimizer.ask(4)
    seen = [identity(s.values) for s in waiting]
    for _ in range(4):
        following = optimizer.ask(4)
        optimizer.tell([observe(study, s) for s in waiting])
        waiting = following
        seen += [identity(s.values) for s in following]
    assert len(set(seen)) == len(seen)


def test_a_restored_optimizer_goes_on_like_the_uninterrupted_one(make: Make) -> None:
    study = mixed(5)
    optimizer, history = make(study), list[Event]()
    waiting: tuple[Suggestion, ...] = ()
    for _ in range(4):
        suggestions = optimizer.ask(4)
        history.append(Asked(suggestions))
        told = tuple(observe(study, s) for s in waiting)
        optimizer.tell(told)
        history.append(Told(told))
        waiting = suggestions
    resumed = make(study)
    resumed.restore(history)
    for _ in range(2):
        told = tuple(observe(study, s) for s in waiting)
        optimizer.tell(told)
        resumed.tell(told)
        waiting = optimizer.ask(3)
        assert resumed.ask(3) == waiting


def test_restoring_comes_first(make: Make) -> None:
    optimizer = make(mixed())
    optimizer.ask(1)
    with pytest.raises(ValueError, match="first"):
        optimizer.restore([])


def test_a_tiny_space_is_swept_and_then_repeats_or_ends(make: Make) -> None:
    study = tiny()
    optimizer = make(study)
    keys: set[str] = set()
    for i in range(5):
        suggestions = optimizer.ask(3)
        knows_the_end = len(keys) == 12 and not isinstance(optimizer, QuasiRandomOptimizer | RandomOptimizer)
        assert len(suggestions) == (0 if knows_the_end else 3)
        keys |= {f"{s.values['size']}{s.values['mode']}" for s in suggestions}
        optimizer.tell([Observation(s, (float(s.values["size"]),)) for s in suggestions])
        if not isinstance(optimizer, RandomOptimizer):
            assert len(keys) == min(3 * (i + 1), 12)


def test_a_space_without_parameters_has_one_point(make: Make) -> None:
    optimizer = make(Study((), (Objective("o"),), 0))
    suggestions = optimizer.ask(2)
    assert [s.values for s in suggestions] == [{}, {}]
    optimizer.tell([Observation(suggestions[0], (1.0,))])
    assert [s.id for s in optimizer.ask(1)] == [2]


def test_a_space_of_one_candidate_in_many_clothes_ends(make: Make) -> None:
    study = Study((FloatParameter("f", 0, 1, 0.5),), (Objective("o"),), 0, identity=lambda _: "same")
    optimizer = make(study)
    repeats = isinstance(optimizer, QuasiRandomOptimizer | RandomOptimizer)
    for expected in (4, 4, 4) if repeats else (1, 0, 0):
        suggestions = optimizer.ask(4)
        assert len(suggestions) == expected
        optimizer.tell([Observation(s, (1.0,)) for s in suggestions])


def test_wrong_tells_are_refused(make: Make) -> None:
    study = mixed()
    optimizer = make(study)
    (suggestion, other) = optimizer.ask(2)
    with pytest.raises(ValueError, match="2 labels for 1"):
        optimizer.tell([Observation(suggestion, (1.0, 2.0))])
    with pytest.raises(ValueError, match="never asked"):
        optimizer.tell([Observation(Suggestion(9, suggestion.values), (1.0,))])
    with pytest.raises(ValueError, match="never asked"):
        optimizer.tell([Observation(Suggestion(suggestion.id, other.values), (1.0,))])
    optimizer.tell([Observation(suggestion, (1.0,))])
    with pytest.raises(ValueError, match="already told"):
        optimizer.tell([Observation(suggestion, (1.0,))])
    with pytest.raises(ValueError, match="-1"):
        optimizer.ask(-1)
    assert optimizer.ask(0) == ()


def test_everything_failed_still_gives_new_points(make: Make) -> None:
    study = mixed(4)
    optimizer = make(study)
    seen = set()
    for _ in range(4):
        suggestions = optimizer.ask(4)
        seen |= {identity(s.values) for s in suggestions}
        optimizer.tell([Observation(s, None) for s in suggestions])
    assert len(seen) == 16


def test_equal_labels_are_no_obstacle(make: Make) -> None:
    study = mixed(6)
    optimizer = make(study)
    for _ in range(4):
        optimizer.tell([Observation(s, (5.0,), repeats=2) for s in optimizer.ask(4)])
    assert len(optimizer.ask(4)) == 4


@pytest.mark.parametrize("objectives", [2, 3])
def test_several_objectives(make: Make, objectives: int) -> None:
    study = Study(
        (DiscreteParameter("n", tuple(range(40)), 0), CategoricalParameter("c", ("a", "b"), "a")),
        tuple(Objective(f"o{i}") for i in range(objectives)),
        0,
        identity=lambda v: f"{v['n']}{v['c']}",
    )
    optimizer = make(study)
    seen = []
    for i in range(4):
        suggestions = optimizer.ask(4)
        seen += [identity_of(s) for s in suggestions]
        told = [
            Observation(s, tuple(float(s.values["n"]) * (-1) ** k for k in range(objectives)))
            for s in suggestions
        ]
        optimizer.tell(told if i else [Observation(told[0].suggestion, None), *told[1:]])
    assert len(set(seen)) == len(seen)


def identity_of(suggestion: Suggestion) -> str:
    return f"{suggestion.values['n']}{suggestion.values['c']}"


def test_value_is_what_the_docstring_says() -> None:
    assert value({"share": 0.3, "size": 8, "weight": 2.0, "backend": "trtllm"}) == 0.0
