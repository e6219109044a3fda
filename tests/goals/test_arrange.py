"""Order, front and knee against brute force over small sets with many ties."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from spica.goals.arrange import arrange
from spica.goals.score import Scoring


@dataclass(frozen=True)
class Made:
    key: str
    objectives: tuple[float, ...]
    used_gpus: int
    excluded_by_sla: bool
    score: float = 0.0


_VALUES = st.sampled_from([1.0, 2.0, 3.0])
_ROWS = st.lists(st.tuples(_VALUES, _VALUES, st.integers(1, 2), st.booleans()), max_size=7)


def _made(rows: list[tuple[float, float, int, bool]]) -> list[Made]:
    return [Made(f"k{n}", (a, b), gpus, out, a) for n, (a, b, gpus, out) in enumerate(rows)]


@given(_ROWS)
def test_a_front_of_speed_and_latency(rows: list[tuple[float, float, int, bool]]) -> None:
    made = _made(rows)
    found = arrange(made, Scoring("pareto", ("throughput", "e2e_latency")))
    inside = [m for m in made if not m.excluded_by_sla]
    beaten = {
        a.key
        for a, b in product(inside, inside)
        if b.objectives[0] >= a.objectives[0]
        and b.objectives[1] <= a.objectives[1]
        and b.objectives != a.objectives
    }
    assert {m.key for m in found.front} == {m.key for m in inside} - beaten
    assert [m.objectives[1] for m in found.front] == sorted(m.objectives[1] for m in found.front)
    assert (found.knee in found.front) if found.front else found.knee is None
    speeds = [(-m.objectives[0], m.used_gpus, m.key) for m in found.ranked]
    assert speeds == sorted((-m.objectives[0], m.used_gpus, m.key) for m in made)


@given(_ROWS)
def test_one_target_has_no_front(rows: list[tuple[float, float, int, bool]]) -> None:
    made = _made(rows)
    found = arrange(made, Scoring("throughput"))
    assert not found.front
    assert found.knee is None
    assert [m.key for m in found.ranked] == [
        m.key for m in sorted(made, key=lambda m: (-m.score, m.used_gpus, m.key))
    ]
