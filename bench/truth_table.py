"""Truth tables: every distinct candidate of a small problem, measured by brute force, once.

Run: ``python bench/truth_table.py [NAME ...] [--jobs 2]``. Reads ``bench/truth/NAME.yaml``; writes
``bench/truth/NAME.json``, one row per distinct candidate (its study point, key and label; None when it cannot
be scored). A table that exists is kept.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spica.branches import Branch
from spica.config.load import load_config
from spica.evaluate.pool import LocalEvaluator
from spica.evaluate.protocol import ReplayPlan
from spica.optimize.protocol import FloatParameter, Value, Values
from spica.sweep.prepare import Prepared, prepare, scoring_of_goal
from spica.trial import Outcome, Sla

TRUTH = Path(__file__).parent / "truth"


@dataclass(frozen=True)
class Problem:
    """One deployment mode of one configuration."""

    name: str
    prepared: Prepared

    @property
    def branch(self) -> Branch:
        return self.prepared.plan.branches[0]


def load_problem(name: str) -> Problem:
    config = load_config(TRUTH / f"{name}.yaml").config
    return Problem(name, prepare(config))


def points(branch: Branch) -> Iterator[Values]:
    """A study point for every parallel config of every backend, times every other choice."""
    shape_names = {p.name for p in branch._maker.projector.parameters}
    others = [p for p in branch.parameters if p.name not in shape_names and p.name != "backend"]
    if any(isinstance(p, FloatParameter) for p in others):
        raise ValueError("a problem with a continuous knob has no truth table")
    choices: list[tuple[Value, ...]] = [p.choices for p in others if not isinstance(p, FloatParameter)]
    names = [p.name for p in others]
    for backend in branch.backends:
        for config in branch.pool.for_backend(backend):
            shape = branch._maker.projector.encode(config)
            for picked in itertools.product(*choices):
                point: dict[str, Value] = {**shape, **dict(zip(names, picked, strict=True))}
                if len(branch.backends) > 1:
                    point["backend"] = backend
                yield point


def measure(problem: Problem, jobs: int) -> list[dict[str, object]]:
    """One row per distinct candidate, in order of first appearance."""
    branch, goal = problem.branch, problem.prepared.config.goal
    scoring = scoring_of_goal(problem.prepared.config)
    sla = None if goal.sla is None else Sla(goal.sla.ttft_ms, goal.sla.itl_ms, goal.sla.e2e_ms)
    distinct = {branch.identity(p): p for p in points(branch)}
    rows: list[dict[str, object]] = []
    with LocalEvaluator(jobs, log_dir=None) as evaluator:
        pending = []
        for key, point in distinct.items():
            decoded = branch.decode(point)
            if not decoded.feasible:
                rows.append({"key": key, "values": dict(point), "labels": None})
                continue
            traffic = branch.traffic(decoded.sample)
            target = problem.prepared.plan.planner_target
            plan = ReplayPlan(decoded.sample, traffic, target, sla, seed=1)
            pending.append((key, point, evaluator.submit(plan)))
        for key, point, future in pending:
            result = scoring.judge(future.result())
            scored = result.outcome is Outcome.FEASIBLE and result.metrics is not None
            labels = list(scoring.values(result.metrics)) if scored and result.metrics else None
            rows.append({"key": key, "values": dict(point), "labels": labels})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=sorted(p.stem for p in TRUTH.glob("*.yaml")))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--count", action="store_true", help="only count the distinct candidates")
    options = parser.parse_args()
    for name in options.names:
        path = TRUTH / f"{name}.json"
        problem = load_problem(name)
        if options.count:
            print(name, len({problem.branch.identity(p) for p in points(problem.branch)}))
            continue
        if path.exists():
            continue
        start = time.monotonic()
        rows = measure(problem, options.jobs)
        path.write_text(json.dumps({"problem": name, "rows": rows}, indent=0) + "\n")
        print(f"{name}: {len(rows)} candidates in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
