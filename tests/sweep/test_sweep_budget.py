from __future__ import annotations

from pathlib import Path

import pytest
from sweep_fakes import FakeBranch, FakeEvaluator, Setup, fine, metrics_of

from spica.deployment.sample import Sample
from spica.goals.score import Scoring
from spica.sweep.budget import Standing, behind, next_branch, opening_rounds
from spica.trial import Metrics, Outcome, TrialResult

UP = (True,)
DOWN = (False,)


def test_opening_rounds_give_each_branch_eight_candidates_and_two_rounds() -> None:
    assert [opening_rounds(20, n) for n in (1, 2, 3, 4, 8, 16)] == [8, 4, 3, 2, 2, 2]
    assert opening_rounds(1, 2) == 1


@pytest.mark.parametrize(
    ("a", "b", "maximize", "expected"),
    [
        ([100.0], [90.0], UP, (False, False)),  # 90% is not clearly worse
        ([100.0, 5.0], [89.9, 1.0], UP, (False, True)),
        ([100.0], [110.0], DOWN, (False, False)),
        ([100.0], [112.0], DOWN, (False, True)),
        ([], [1.0], UP, (True, False)),
        ([], [], UP, (False, False)),
        ([0.0], [0.0], UP, (False, False)),
    ],
)
def test_behind_in_one_objective(
    a: list[float], b: list[float], maximize: tuple[bool, ...], expected: tuple[bool, bool]
) -> None:
    standings = [Standing(2, 2, 20, points=tuple((v,) for v in values)) for values in (a, b)]
    assert behind(standings, maximize) == expected
    assert behind(standings[::-1], maximize) == expected[::-1]


def test_behind_in_a_front_needs_no_point_on_it_and_little_volume() -> None:
    def standings(b: tuple[float, float]) -> list[Standing]:
        leader = ((10.0, 5.0), (5.0, 10.0))  # volume 75
        return [Standing(2, 2, 20, points=leader), Standing(2, 2, 20, points=(b,))]

    both = (True, True)
    assert behind(standings((7.0, 4.0)), both) == (False, True)  # dominated
    assert behind(standings((1.0, 10.5)), both) == (False, False)  # small, but on the front
    near = [Standing(2, 2, 20, points=((10.0, 10.0),)), Standing(2, 2, 20, points=((9.9, 9.9),))]
    assert behind(near, both) == (False, False)  # dominated, by very little


def order(bests: tuple[float, float], rounds: int, cap: int = 20) -> str:
    """Who gets which round when every round is closed before the next is opened."""
    counts = [0, 0]
    text = ""
    for _ in range(rounds):
        standings = [
            Standing(n, n, cap, points=((best,),) * n) for n, best in zip(counts, bests, strict=True)
        ]
        index = next_branch(standings, UP, candidates_per_round=4)
        if index is None:
            return text
        counts[index] += 1
        text += "AB"[index]
    return text


def test_equals_take_turns_to_the_end() -> None:
    assert order((100.0, 95.0), 100, cap=5) == "AB" * 5


def test_a_branch_behind_gets_one_round_for_four() -> None:
    assert order((100.0, 50.0), 17) == "ABAB" + "AAAAB" + "AAAAB" + "AAA"
    whole = order((50.0, 100.0), 100)
    assert whole.count("B") == 20
    assert whole.count("A") == 2 + 18 // 4


def test_a_leader_that_has_finished_leaves_the_other_its_share() -> None:
    lead = Standing(3, 3, 20, stopped=True, points=((100.0,),))
    late = [Standing(n, n, 20, points=((50.0,),)) for n in range(2, 8)]
    picks = [next_branch([lead, s], UP, candidates_per_round=4) for s in late]
    assert picks == [1, 1, 1, 1, None, None]  # up to 2 + (20 - 2) // 4 = 6 rounds


def test_nobody_is_judged_before_all_have_opened() -> None:
    standings = [Standing(5, 5, 20, points=((100.0,),)), Standing(1, 1, 20, points=((1.0,),))]
    assert next_branch(standings, UP, candidates_per_round=4) == 1
    only_open = [Standing(20, 20, 20, points=((100.0,),)), Standing(2, 1, 20, points=((1.0,),))]
    assert next_branch(only_open, UP, candidates_per_round=4) == 1


def test_a_clearly_worse_branch_takes_few_replays(tmp_path: Path) -> None:
    def agg_is_poor(sample: Sample, repeat: int) -> TrialResult:
        made = metrics_of(sample, repeat).summary
        factor = 0.5 if sample.mode == "agg" else 1.0
        return TrialResult(
            Outcome.FEASIBLE,
            metrics=Metrics({k: v * factor for k, v in made.items()}),
        )

    made = Setup(tmp_path / "a").with_options(max_rounds=14, candidates_per_round=4)
    evaluator = FakeEvaluator(model=agg_is_poor)
    result = made.run(evaluator)
    agg, disagg = result.branches
    assert disagg.rounds == 14
    # Two opening rounds, one more that was opened before the opening ones were judged, at most (14 - 2) /
    # 4 later.
    assert agg.rounds <= 2 + 12 // 4
    assert agg.behind
    assert "clearly worse" in agg.stopped
    assert agg.new_trials < disagg.new_trials / 2
    again = Setup(tmp_path / "b").with_options(max_rounds=14, candidates_per_round=4)
    assert again.run(FakeEvaluator(5, model=agg_is_poor, delay=0.01)) == result


def test_equal_branches_share_equally(tmp_path: Path) -> None:
    result = Setup(tmp_path, scoring=Scoring("throughput")).run(FakeEvaluator(model=fine))
    assert [b.rounds for b in result.branches] == [4, 4]
    assert all(b.new_trials >= 16 for b in result.branches)
    assert FakeBranch().mode == "agg"
