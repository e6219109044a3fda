"""What the planners did, told from the counts of a replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from made_run import small_run

from spica.report.collect import collect
from spica.report.data import Leader
from spica.report.scaling import scaling_lines


def _ticks(leader: Leader, **counts: float) -> Leader:
    return replace(leader, metrics={**leader.metrics, **{f"planner_ticks_{n}": c for n, c in counts.items()}})


def test_a_policy_that_never_acted_is_named(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    best, second, *_ = collect(tmp_path / "run").leaders
    assert scaling_lines(best, [best, second]) == []
    acting = _ticks(best, acted=5, held=20, held_no_change=2, held_gpu_budget_guard_hold=18, not_ready=0)
    idle = _ticks(second, acted=0, held=0, not_ready=7)
    first, other = scaling_lines(acting, [acting, idle])
    assert first == (
        "its planner changed the workers at 5 of 25 ticks, held at 20 (gpu budget guard hold 18, no change 2)"
    )
    assert other.startswith("1 of 2 candidates with a scaling policy never changed their workers")
    assert scaling_lines(idle, [idle, best])[0] == "its planner never acted in 7 ticks, had no estimate at 7"
