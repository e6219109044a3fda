"""Compares the optimizer with optuna's TPE and NSGA-II, quasi-random and random search.

    python bench/optimizer_quality.py [--seeds 5] [--problems disagg,agg] [--methods spica,tpe]
    python bench/optimizer_quality.py --problems real-agg,real-pareto,real-disagg

The six invented problems (``optimizer_problems.py``), truth tables by name, and real replays of large spaces
(``optimizer_real.py``, minutes each). Runs of the latter share two workers, several runs at the same time.

Every method is charged for distinct candidates alone: a suggestion that decodes to a candidate measured
before is answered from memory. optuna is told after every single suggestion, the optimizer here only after
batches of four. A trial without a score is told to optuna as the worst score so far: told as failed, it would
not learn from it. Scores: the best value so far as a share of the best known (one objective), or the area
dominated so far as a share of what everything any method found dominates (two). 0 is a median random point;
for two objectives, nothing above the lower quartiles.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optimizer_real
from optimizer_problems import Labels, Problem, measured, synthetic
from spica.optimize import (
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Objective,
    Observation,
    Optimizer,
    Parameter,
    Study,
    Value,
    Values,
    make_optimizer,
    warm_up,
)
from spica.optimize.acquisition import non_dominated
from spica.optimize.sampling import QuasiRandomOptimizer, RandomOptimizer, uniform
from spica.optimize.space import Space

Array = NDArray[np.float64]

HERE = Path(__file__).parent
CHECKPOINTS = (16, 32, 64, 160)
BATCH = 4
# One model is fitted at a time: a suggestion then costs what it costs alone.
_SUGGESTING = threading.Lock()


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

    def start(self, points: Sequence[Values]) -> None:
        if self.problem.start is not None:
            self.problem.start(points)

    def __call__(self, values: Values) -> Labels:
        key = self.problem.identity(values)
        if key not in self.labels:
            self.labels[key] = self.problem.evaluate(values)
        return self.labels[key]

    def upward(self) -> list[list[float] | None]:
        return upward(self.problem, list(self.labels.values())[: self.budget])


def upward(problem: Problem, found: Sequence[Labels]) -> list[list[float] | None]:
    signs = [1.0 if o.maximize else -1.0 for o in problem.objectives]
    return [None if v is None else [s * x for s, x in zip(signs, v, strict=True)] for v in found]


def run_ours(name: str, make: Callable[[Problem, int], Optimizer]) -> Run:
    def run(problem: Problem, seed: int, budget: int) -> Trace:
        optimizer, memory, seconds = make(problem, seed), Memory(problem, budget), []
        for _ in range(11 * budget // BATCH):
            with _SUGGESTING:
                start = time.perf_counter()
                suggestions = optimizer.ask(BATCH)
                seconds.append(time.perf_counter() - start)
            memory.start([s.values for s in suggestions])
            optimizer.tell([Observation(s, memory(s.values)) for s in suggestions])
            if memory.done:
                break
        return Trace(problem.name, name, seed, memory.upward(), seconds)

    return run


def _scale(p: Parameter) -> Space:
    """The space of one parameter alone."""
    return Space(Study((p,), (Objective("any"),), 0))


def _optuna_point(trial: Any, problem: Problem) -> Values:
    """Ordered choices are asked for by position, which keeps their order for optuna; so are floats on a log
    scale."""
    values: dict[str, Value] = {}
    for p in problem.parameters:
        if isinstance(p, FloatParameter) and p.log:
            position = trial.suggest_float(p.name, 0.0, 1.0)
            values[p.name] = float(_scale(p).at_positions(np.array([[position]]))[0, 0])
        elif isinstance(p, FloatParameter):
            values[p.name] = trial.suggest_float(p.name, p.low, p.high)
        elif isinstance(p, CategoricalParameter):
            values[p.name] = trial.suggest_categorical(p.name, p.choices)
        else:
            values[p.name] = p.choices[trial.suggest_int(p.name, 0, len(p.choices) - 1)]
    return values


def _optuna_default(p: Parameter) -> Value:
    if isinstance(p, FloatParameter) and p.log:
        return float(_scale(p).positions(np.array([[p.default]]))[0, 0])
    return p.choices.index(p.default) if isinstance(p, DiscreteParameter) else p.default


def _optuna_study(kind: str, problem: Problem, seed: int) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=24),
    }
    directions = ["maximize" if o.maximize else "minimize" for o in problem.objectives]
    study = optuna.create_study(directions=directions, sampler=samplers[kind]())
    study.enqueue_trial({p.name: _optuna_default(p) for p in problem.parameters})
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


def drawn(problem: Problem) -> Array:
    """Labels of a random sample of the space. Shape ``(n, objectives)``."""
    rng, space = np.random.default_rng(0), Space(problem.study(0))
    memory = Memory(problem, problem.sample)
    points = [space.decode(row) for row in uniform(space, problem.sample, rng)]
    memory.start(points)
    for values in points:
        memory(values)
    return scored(memory.upward(), len(problem.objectives))


@dataclass(frozen=True, slots=True)
class Scale:
    """What 0 and 1 mean on a problem: a median sample and the best known (one objective), or nothing and the
    area that all known points dominate above lower quartiles (two)."""

    low: Array
    high: float

    @classmethod
    def of(cls, usual: Array, known: Array) -> Scale:
        """``usual``: labels whose median or lower quartiles are the low end."""
        if known.shape[1] == 1:
            return cls(np.median(usual, axis=0), float(known.max()))
        reference = np.quantile(usual, 0.25, axis=0)
        return cls(reference, hypervolume(known, reference))

    @classmethod
    def for_problem(cls, problem: Problem, traces: Sequence[Trace]) -> Scale:
        """By everything that any method found, and a sample: where points are cheap, a sample so large that
        the few of the methods do not matter to its quartiles, else a small one beside them."""
        sample, width = drawn(problem), len(problem.objectives)
        found = [scored(t.labels, width) for t in traces if t.problem == problem.name]
        if problem.known is None:
            known = np.concatenate([sample, *found])
            return cls.of(known, known)
        ever = scored(upward(problem, problem.known()), width)
        return cls.of(sample, np.concatenate([sample, ever, *found]))

    def score(self, labels: Sequence[list[float] | None]) -> float:
        points = scored(labels, len(self.low))
        if len(self.low) > 1:
            return hypervolume(points, self.low) / self.high
        return float((points.max() - self.low[0]) / (self.high - self.low[0])) if len(points) else 0.0


def by_seed(scale: Scale, traces: Sequence[Trace]) -> dict[str, dict[str, list[float]]]:
    """Scores by method and checkpoint, in the order of the seeds."""
    result: dict[str, dict[str, list[float]]] = {}
    for method in dict.fromkeys(t.method for t in traces):
        runs = [t for t in traces if t.method == method]
        reached = [c for c in CHECKPOINTS if c <= max(len(t.labels) for t in runs)]
        result[method] = {str(c): [scale.score(t.labels[:c]) for t in runs] for c in reached}
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


def run_all(problem: Problem, methods: Sequence[str], seeds: int, budget: int) -> list[Trace]:
    """Every method with every seed; several at the same time where the problem allows it. What a run does
    follows from its seed and its labels, whatever runs beside it."""
    pairs = [(method, seed) for method in methods for seed in range(seeds)]
    if problem.threads == 1:
        return [METHODS[method](problem, seed, budget) for method, seed in pairs]
    began = time.monotonic()

    def say(done: Future[Trace]) -> None:
        if not done.cancelled() and done.exception() is None:
            t = done.result()
            print(f"  {time.monotonic() - began:6.0f} s  {t.method} {t.seed}: {len(t.labels)}", flush=True)

    with ThreadPoolExecutor(problem.threads) as pool:
        futures = [pool.submit(METHODS[method], problem, seed, budget) for method, seed in pairs]
        for future in futures:
            future.add_done_callback(say)
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def compare(problem: Problem, methods: Sequence[str], seeds: int, budget: int) -> dict[str, Any]:
    """Run and score; what is written to the results."""
    traces = run_all(problem, methods, seeds, budget)
    scores = by_seed(Scale.for_problem(problem, traces), traces)
    means = {m: {c: statistics.mean(v) for c, v in at.items()} for m, at in scores.items()}
    spent = {m: milliseconds([t for t in traces if t.method == m]) for m in means}
    print_table(problem.name, means, spent)
    result = {
        "seeds": seeds,
        "batch": BATCH,
        "mean_score": means,
        "score_by_seed": scores,
        "ms_per_suggestion": spent,
    }
    if problem.known is not None:
        known = upward(problem, problem.known())
        result["known"] = {"candidates": len(known), "without_score": known.count(None)}
    return result


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
    with ExitStack() as stack:
        # First of all, so that the code of a long run is that of its start.
        warm_up(invented["agg"].study(0))
        real = optimizer_real.names()
        bench = stack.enter_context(optimizer_real.Bench()) if set(names) & set(real) else None
        for name in names:
            if bench is not None and name in real:
                problem = bench.problem(name)
            else:
                problem = invented[name] if name in invented else measured(name)
            found = compare(problem, options.methods.split(","), options.seeds, options.budget)
            result = json.loads(options.out.read_text()) if options.out.exists() else {}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(result | {name: found}, indent=1) + "\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"\npeak memory {peak} MiB")


if __name__ == "__main__":
    main()
