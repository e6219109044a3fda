"""How soon the search finds the true optimum, on problems whose every candidate was measured.

Run: ``python bench/search_quality.py [NAME ...] [--seeds 10] [--candidates 32] [--round 4]``. Needs the
tables of ``bench/truth_table.py``; writes ``bench/results/search_quality.json``. The optimizer is asked in
rounds with one round pending, as the sweep does; a candidate counts once, however often it is suggested.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from spica.optimize import make_optimizer
from spica.optimize.protocol import Observation, Suggestion
from spica.sweep.inputs import study_of
from spica.sweep.prepare import scoring_of_goal
from truth_table import TRUTH, Problem, load_problem

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Found:
    """One seed: unique candidates until within 0.5% of the optimum (None: not within the budget), and the
    best after the budget as a share of the optimum."""

    problem: str
    seed: int
    candidates: int | None
    share: float
    seconds: float


def table(name: str) -> dict[str, tuple[float, ...] | None]:
    rows = json.loads((TRUTH / f"{name}.json").read_text())["rows"]
    return {row["key"]: None if row["labels"] is None else tuple(row["labels"]) for row in rows}


def search(
    problem: Problem, truth: dict[str, tuple[float, ...] | None], seed: int, budget: int, size: int
) -> Found:
    branch = problem.branch
    study = study_of(branch, scoring_of_goal(problem.prepared.config), seed)
    objectives = study.objectives
    sign = 1.0 if objectives[0].maximize else -1.0
    optimum = max(sign * labels[0] for labels in truth.values() if labels is not None)
    optimizer = make_optimizer(study)
    seen: dict[str, int] = {}
    best, hit = float("-inf"), None
    pending: tuple[Suggestion, ...] = ()
    start = time.monotonic()
    for _ in range(4 * budget // size):
        asked = optimizer.ask(size)
        optimizer.tell([Observation(s, truth[branch.identity(s.values)]) for s in pending])
        pending = asked
        for suggestion in asked:
            key = branch.identity(suggestion.values)
            if key in seen or len(seen) >= budget:
                continue
            seen[key] = len(seen) + 1
            labels = truth[key]
            best = max(best, float("-inf") if labels is None else sign * labels[0])
            if hit is None and best >= optimum - 0.005 * abs(optimum):
                hit = len(seen)
        if len(seen) >= min(budget, len(truth)):
            break
    share = best / optimum if optimum > 0 else optimum / best
    return Found(problem.name, seed, hit, share, time.monotonic() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=sorted(p.stem for p in TRUTH.glob("*.json")))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--round", type=int, default=4, help="suggestions asked for at once")
    options = parser.parse_args()
    found: list[Found] = []
    for name in options.names:
        problem, truth = load_problem(name), table(name)
        mine = [
            search(problem, truth, seed, options.candidates, options.round)
            for seed in range(1, options.seeds + 1)
        ]
        found += mine
        hits = [f.candidates for f in mine if f.candidates is not None]
        seconds = sum(f.seconds for f in mine) / len(mine)
        print(
            f"{name:14} {len(truth):4d} candidates: found by {len(hits)} of {len(mine)} seeds, "
            f"after {sorted(hits)}; worst share {min(f.share for f in mine):.4f}; {seconds:.1f} s a search"
        )
    record = [asdict(f) for f in found]
    (RESULTS / "search_quality.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
