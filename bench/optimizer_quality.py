"""Compares the optimizer with optuna's TPE and NSGA-II, quasi-random and random search.

    python bench/optimizer_quality.py [--seeds 5] [--problems disagg,agg] [--methods spica,tpe]

Every method is charged for distinct candidates alone: a suggestion that decodes to a candidate measured
before is answered from memory. optuna is told after every single suggestion, the optimizer here only after
batches of four. A trial without a score is told to optuna as the worst score so far: told as failed, it would
not learn from it. Scores: the best value so far as a share of the best known (one objective), or the area
dominated so far as a share of what everything any method found dominates (two).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer_problems import Labels, Problem, measured, synthetic
from spica.optimize import (
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Observation,
    Optimizer,
    Value,
    Values,
    make_optimizer,
)
from spica.optimize.acquisition import non_dominated
from spica.optimize.sampling import QuasiRandomOptimizer, RandomOptimizer, uniform
from spica.optimize.space import Space

Array = NDArray[np.float64]

HERE = Path(__file__).parent
CHECKPOINTS = (16, 32, 64, 160)
BATCH = 4


@dataclass(frozen=True, slots=True)
class Trace:
    """Labels (turned upward, None without a score) of the distinct candidates of one run, in order."""

    problem: str
    method: str
    seed: int
    labels: list[list[float] | None]
    ask_seconds: list[float]


Run = Callable[[Problem, int, int], Trace]


class Memory:
    """Evaluates a problem, charging for distinct candidates only."""

    def __init__(self, problem: Problem, budget: int) -> None:
        self.problem, self.budget = problem, budget
        self.labels: dict[str, Labels] = {}

    @property
    def done(self) -> bool:
        return len(self.labels) >= self.budget

    def __call__(self, values: Values) -> Labels:
        key = self.problem.identity(values)
        if key not in self.labels:
            self.labels[key] = self.problem.evaluate(values)
        return self.labels[key]

    def upward(self) -> list[list[float] | None]:
        signs = [1.0 if o.maximize else -1.0 for o in self.problem.objectives]
        found = list(self.labels.values())[: self.budget]
        return [None if v is None else [s * x for s, x in zip(signs, v, strict=True)] for v in found]


def run_ours(name: str, make: Callable[[Problem, int], Optimizer]) -> Run:
    def run(problem: Problem, seed: int, budget: int) -> Trace:
        optimizer, memory, seconds = make(problem, seed), Memory(problem, budget), []
        for _ in range(11 * budget // BATCH):
            start = time.perf_counter()
            suggestions = optimizer.ask(BATCH)
            seconds.append(time.perf_counter() - start)
            optimizer.tell([Observation(s, memory(s.values)) for s in suggestions])
            if memory.done:
                break
        return Trace(problem.name, name, seed, memory.upward(), seconds)

    return run


def _optuna_point(trial: Any, problem: Problem) -> Values:
    """Ordered choices are asked for by position, which keeps their order for optuna."""
    values: dict[str, Value] = {}
    for p in problem.parameters:
        if isinstance(p, FloatParameter):
            values[p.name] = trial.suggest_float(p.name, p.low, p.high)
        elif isinstance(p, CategoricalParameter):
            values[p.name] = trial.suggest_categorical(p.name, p.choices)
        else:
            values[p.name] = p.choices[trial.suggest_int(p.name, 0, len(p.choices) - 1)]
    return values


def _optuna_study(kind: str, problem: Problem, seed: int) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=24),
    }
    directions = ["maximize" if o.maximize else "minimize" for o in problem.objectives]
    study = optuna.create_study(directions=directions, sampler=samplers[kind]())
    first = {
        p.name: p.choices.index(p.default) if isinstance(p, DiscreteParameter) else p.default
        for p in problem.parameters
    }
    study.enqueue_trial(first)
    return study


def run_optuna(kind: str) -> Run:
    def run(problem: Problem, seed: int, budget: int) -> Trace:
        import optuna

        study = _optuna_study(kind, problem, seed)
        memory, seconds = Memory(problem, budget), []
        worst: list[float] | None = None
        for _ in range(11 * budget):
            start = time.perf_counter()
            trial = study.ask()
            values = _optuna_point(trial, problem)
            seconds.append(time.perf_counter() - start)
            labels = memory(values)
            if labels is not None:
                rows = [labels] if worst is None else [labels, worst]
                picks = [min if o.maximize else max for o in problem.objectives]
                worst = [pick(row[k] for row in rows) for k, pick in enumerate(picks)]
                study.tell(trial, list(labels))
            elif worst is not None:
                study.tell(trial, worst)
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            if memory.done:
                break
        return Trace(problem.name, kind, seed, memory.upward(), seconds)

    return run


METHODS: dict[str, Run] = {
    "spica": run_ours("spica", lambda p, s: make_optimizer(p.study(s))),
    "tpe": run_optuna("tpe"),
    "nsga2": run_optuna("nsga2"),
    "quasi-random": run_ours("quasi-random", lambda p, s: QuasiRandomOptimizer(p.study(s))),
    "random": run_ours("random", lambda p, s: RandomOptimizer(p.study(s))),
}


def hypervolume(points: Array, reference: Array) -> float:
    """Area that two-column points dominate above the reference."""
    points = points[np.all(points > reference, axis=1)]
    if not len(points):
        return 0.0
    front = non_dominated(points)
    front = front[np.argsort(front[:, 0])]
    widths = np.diff(np.concatenate([[reference[0]], front[:, 0]]))
    return float((widths * (front[:, 1] - reference[1])).sum())


def scored(labels: Sequence[list[float] | None], width: int) -> Array:
    return np.array([v for v in labels if v is not None], dtype=np.float64).reshape(-1, width)


def best_known(problem: Problem, traces: Sequence[Trace], samples: int = 20_000) -> Array:
    """Labels of everything found by any method and of a large random sample. Shape ``(n, objectives)``."""
    rng, space = np.random.default_rng(0), Space(problem.study(0))
    memory = Memory(problem, samples)
    for row in uniform(space, samples, rng):
        memory(space.decode(row))
    pieces = [scored(memory.upward(), len(problem.objectives))]
    pieces += [scored(t.labels, len(problem.objectives)) for t in traces if t.problem == problem.name]
    return np.concatenate(pieces)


@dataclass(frozen=True, slots=True)
class Scale:
    """What 0 and 1 mean on a problem: a median sample and the best known (one objective), or nothing and the
    area that all known points dominate above their lower quartiles (two)."""

    low: Array
    high: float

    @classmethod
    def of(cls, known: Array) -> Scale:
        if known.shape[1] == 1:
            return cls(np.median(known, axis=0), float(known.max()))
        reference = np.quantile(known, 0.25, axis=0)
        return cls(reference, hypervolume(known, reference))

    def score(self, labels: Sequence[list[float] | None]) -> float:
        points = scored(labels, len(self.low))
        if len(self.low) > 1:
            return hypervolume(points, self.low) / self.high
        return float((points.max() - self.low[0]) / (self.high - self.low[0])) if len(points) else 0.0


def table(problem: Problem, traces: Sequence[Trace]) -> dict[str, dict[str, float]]:
    """Mean score by method and checkpoint."""
    scale = Scale.of(best_known(problem, traces))
    result: dict[str, dict[str, float]] = {}
    for method in dict.fromkeys(t.method for t in traces):
        runs = [t for t in traces if t.method == method]
        reached = [c for c in CHECKPOINTS if c <= max(len(t.labels) for t in runs)]
        result[method] = {str(c): statistics.mean(scale.score(t.labels[:c]) for t in runs) for c in reached}
    return result


def milliseconds(traces: Sequence[Trace]) -> float:
    """Mean time of a suggestion, the first call of a process (imports, compilation) included."""
    one_by_one = traces[0].method in ("tpe", "nsga2")
    calls = [s for t in traces for s in t.ask_seconds]
    return 1000 * statistics.mean(calls) / (1 if one_by_one else BATCH)


def print_table(name: str, means: dict[str, dict[str, float]], spent: dict[str, float]) -> None:
    print(f"\n{name:18}" + "".join(f"{c:>9}" for c in CHECKPOINTS) + "   ms per suggestion", flush=True)
    for method, at in means.items():
        print(
            f"  {method:16}" + "".join(f"{v:9.4f}" for v in at.values()) + f"   {spent[method]:8.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=160)
    parser.add_argument("--problems", default="", help="comma-separated; default: the six synthetic ones")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "optimizer_quality.json")
    options = parser.parse_args()
    invented = {p.name: p for p in synthetic()}
    names = options.problems.split(",") if options.problems else list(invented)
    result = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in names:
        problem = invented[name] if name in invented else measured(name)
        traces = [
            METHODS[method](problem, seed, options.budget)
            for method in options.methods.split(",")
            for seed in range(options.seeds)
        ]
        means = table(problem, traces)
        spent = {m: milliseconds([t for t in traces if t.method == m]) for m in means}
        print_table(name, means, spent)
        result[name] = {
            "seeds": options.seeds,
            "batch": BATCH,
            "mean_score": means,
            "ms_per_suggestion": spent,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"\npeak memory {peak} MiB")


if __name__ == "__main__":
    main()
