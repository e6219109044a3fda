"""Problems to compare optimizers on: shaped like deployment searches, cheap to evaluate, deterministic.

A latent point is projected onto a valid deployment, as in a sweep: many points are the same candidate,
router knobs are inert under round robin, and some deployments cannot run at all. The formulas are invented;
only the shape of the landscape is meant to be realistic. A truth table of the real replay is a problem too.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from spica.optimize import (
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Influence,
    Objective,
    Parameter,
    Study,
    Value,
    Values,
)

Labels = tuple[float, ...] | None

SHAPE, TUNING, WEIGHT = Influence.SHAPE, Influence.TUNING, Influence.WEIGHT


@dataclass(frozen=True, slots=True)
class Problem:
    """A study with its evaluation. ``identity`` names the candidate of a point.

    Where an evaluation takes time: ``start`` begins several at once, ``known`` holds what was ever measured,
    and ``threads`` runs may share the problem. ``sample``: how many random points tell the scale.
    """

    name: str
    parameters: tuple[Parameter, ...]
    objectives: tuple[Objective, ...]
    evaluate: Callable[[Values], Labels]
    canonical: Callable[[Values], Values] | None = None
    named: Callable[[Values], str] | None = None
    start: Callable[[Sequence[Values]], None] | None = None
    known: Callable[[], Sequence[Labels]] | None = None
    sample: int = 20_000
    threads: int = 1
    divisor: Callable[[Values], float] | None = None

    def identity(self, values: Values) -> str:
        if self.named is not None:
            return self.named(values)
        point = values if self.canonical is None else self.canonical(values)
        return json.dumps(dict(point), sort_keys=True)

    def study(self, seed: int) -> Study:
        return Study(self.parameters, self.objectives, seed, self.identity, self.canonical, self.divisor)


def _ripple(values: Mapping[str, Value], size: float) -> float:
    """A factor within ``1 +- size`` that looks random and depends on the candidate alone."""
    digest = hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode()).digest()
    return 1.0 + size * (int.from_bytes(digest[:4], "big") / 2**31 - 1.0)


SIZES = (1, 2, 4, 8)
TOKENS = (2048, 4096, 8192, 16384, 32768)
SEQS = (128, 256, 512, 1024)
_ROUTER = ("overlap", "temperature", "prefill_load")


@cache
def _pairs(budget: int) -> tuple[tuple[int, int, int, int], ...]:
    """Prefill size and replicas, decode size and replicas, that fit the budget."""
    return tuple(
        (p, i, d, j)
        for p in SIZES
        for d in SIZES
        for i in range(1, budget // p + 1)
        for j in range(1, (budget - p * i) // d + 1)
    )


def _latent(config: tuple[int, int, int, int], budget: int) -> tuple[float, float, float, float]:
    p, i, d, j = config
    used = p * i + d * j
    return used / budget, p * i / used, math.log2(p) / 3, math.log2(d) / 3


@cache
def _latents(budget: int) -> NDArray[np.float64]:
    return np.array([_latent(config, budget) for config in _pairs(budget)])


@lru_cache(maxsize=100_000)
def _project(used: float, share: float, p: int, d: int, budget: int) -> tuple[int, int, int, int]:
    """The nearest deployment; the first of several at equal distance."""
    want = np.array([used, share, math.log2(p) / 3, math.log2(d) / 3])
    distances = ((_latents(budget) - want) ** 2).sum(axis=1)
    return _pairs(budget)[int(np.argmin(np.round(distances, 12)))]


def _inert_router(values: dict[str, Value]) -> dict[str, Value]:
    if values["router"] == "round_robin":
        values.update(overlap=1.0, temperature=0.0, prefill_load=1.0)
    return values


def _router_parameters() -> tuple[Parameter, ...]:
    return (
        CategoricalParameter("router", ("round_robin", "kv_router"), "round_robin", TUNING),
        DiscreteParameter("overlap", (0.0, 0.25, 0.5, 1.0, 1.5, 2.0), 1.0, influence=WEIGHT),
        DiscreteParameter("temperature", (0.0, 0.2, 0.5, 1.0), 0.0, influence=WEIGHT),
        DiscreteParameter("prefill_load", (0.5, 1.0, 1.5, 2.0), 1.0, influence=WEIGHT),
    )


def _reuse(v: Values) -> float:
    """Share of prompt tokens found in a cache."""
    if v["router"] == "round_robin":
        return 0.10
    good = math.exp(-(((float(v["overlap"]) - 1.5) / 0.7) ** 2 + float(v["temperature"])))
    return 0.05 + 0.35 * good - 0.03 * abs(float(v["prefill_load"]) - 1.5)


def _prefill_rate(size: int, tokens: float, fast: bool) -> float:
    chunk = 1 - math.exp(-tokens / (2500.0 * size))
    return float((9000.0 if fast else 8200.0) * size**0.86 * chunk)


def _decode_rate(size: int, batch: float, fast: bool) -> tuple[float, float]:
    """Tokens per second of one engine, and per user."""
    step = (0.009 if fast else 0.0105) + 0.016 / size**0.8 + batch * 2.1e-5 / size**0.7
    return batch / step, 1 / step


def _disagg(budget: int, pareto: bool) -> Problem:
    parameters: tuple[Parameter, ...] = (
        FloatParameter("used", 2 / budget, 1.0, 1.0, influence=SHAPE),
        FloatParameter("share", 1 / budget, 1 - 1 / budget, 0.5, influence=SHAPE),
        DiscreteParameter("prefill_size", SIZES, 2, log=True, influence=SHAPE),
        DiscreteParameter("decode_size", SIZES, 2, log=True, influence=SHAPE),
        DiscreteParameter("prefill_tokens", TOKENS, 8192, log=True, influence=TUNING),
        DiscreteParameter("prefill_seqs", SEQS, 256, log=True, influence=TUNING),
        DiscreteParameter("decode_tokens", TOKENS, 8192, log=True, influence=TUNING),
        DiscreteParameter("decode_seqs", SEQS, 256, log=True, influence=TUNING),
        CategoricalParameter("backend", ("vllm", "sglang"), "vllm"),
        *_router_parameters(),
    )

    def canonical(values: Values) -> Values:
        v = _inert_router(dict(values))
        config = _project(
            float(v["used"]), float(v["share"]), int(v["prefill_size"]), int(v["decode_size"]), budget
        )
        used, share, _, _ = _latent(config, budget)
        v.update(used=used, share=share, prefill_size=config[0], decode_size=config[2])
        return v

    def evaluate(values: Values) -> Labels:
        v = canonical(values)
        used, share = float(v["used"]) * budget, float(v["share"])
        p, d = int(v["prefill_size"]), int(v["decode_size"])
        fast = v["backend"] == "sglang"
        if (p == 1 and float(v["prefill_tokens"]) > 8192) or (d == 1 and fast):
            return None
        prefill = round(used * share / p) * _prefill_rate(p, float(v["prefill_tokens"]), not fast)
        prefill /= 1 - _reuse(v)
        room = (90.0 * d - 40.0) * (1.1 if fast else 1.0) * (1 - float(v["decode_tokens"]) / 120_000)
        engines = round(used * (1 - share) / d)
        batch = min(float(v["decode_seqs"]), room, 900.0 / engines)
        if batch < 8:
            return None
        rate, user = _decode_rate(d, batch, fast)
        requests = 1 / ((3000.0 / prefill) ** 4 + (300.0 / (engines * rate)) ** 4) ** 0.25
        ripple = _ripple(v, 0.01)
        per_gpu = requests * 300.0 / used * ripple
        if pareto:
            return per_gpu, min(user, 300.0 / (300.0 / user + 3000.0 / prefill)) * ripple
        return (requests * 300.0 * ripple,)

    objectives = (
        (Objective("per_gpu"), Objective("per_user")) if pareto else (Objective("tokens_per_second"),)
    )
    return Problem("disagg-pareto" if pareto else "disagg", parameters, objectives, evaluate, canonical)


def _agg(budget: int, pareto: bool) -> Problem:
    parameters: tuple[Parameter, ...] = (
        FloatParameter("used", 1 / budget, 1.0, 1.0, influence=SHAPE),
        DiscreteParameter("size", SIZES, 2, log=True, influence=SHAPE),
        DiscreteParameter("tokens", TOKENS, 8192, log=True, influence=TUNING),
        DiscreteParameter("seqs", SEQS, 256, log=True, influence=TUNING),
        CategoricalParameter("backend", ("vllm", "sglang", "trtllm"), "vllm"),
        CategoricalParameter("policy", ("disabled", "load_fast", "load_slow", "hybrid"), "disabled"),
        CategoricalParameter("sensitivity", ("low", "default", "high"), "default"),
        *_router_parameters(),
    )

    def canonical(values: Values) -> Values:
        v = _inert_router(dict(values))
        size = int(v["size"])
        replicas = max(1, min(budget // size, round(float(v["used"]) * budget / size)))
        # No engine admits more than its share of the load of 1024 requests.
        seqs = next((s for s in SEQS if s >= 1024 / replicas), SEQS[-1])
        v.update(used=replicas * size / budget, seqs=min(int(v["seqs"]), seqs))
        if v["policy"] == "disabled":
            v["sensitivity"] = "default"
        return v

    def evaluate(values: Values) -> Labels:
        v = canonical(values)
        size, backend = int(v["size"]), str(v["backend"])
        gpus = float(v["used"]) * budget
        replicas = round(gpus / size)
        tokens, seqs = float(v["tokens"]), float(v["seqs"])
        if size == 1 and (tokens > 16384 or backend == "trtllm"):
            return None
        room = (110.0 * size - 60.0) * (1 - tokens / 90_000)
        batch = min(seqs, room, 1024.0 / replicas)
        if batch < 12:
            return None
        rate, user = _decode_rate(size, batch, backend != "vllm")
        stall = 1 + 0.5 * tokens / 32768 * (2 if backend == "trtllm" else 1)
        prefill = _prefill_rate(size, tokens, backend == "trtllm") / (1 - _reuse(v))
        seconds = 300.0 / rate * stall + 3000.0 / prefill
        scale = {"disabled": 1.0, "load_fast": 0.93, "load_slow": 0.97, "hybrid": 0.95}[str(v["policy"])]
        saved = {"disabled": 1.0, "load_fast": 0.82, "load_slow": 0.9, "hybrid": 0.86}[str(v["policy"])]
        extra = {"low": 0.02, "default": 0.0, "high": -0.04}[str(v["sensitivity"])]
        total = replicas * 300.0 / seconds * (scale + extra) * _ripple(v, 0.01)
        per_gpu = total / (gpus * (saved + extra))
        latency = 300.0 / user * stall + 3000.0 / prefill * (1 + batch / 200.0)
        return (per_gpu, latency) if pareto else (per_gpu,)

    objectives = (
        (Objective("per_gpu"), Objective("latency", maximize=False)) if pareto else (Objective("per_gpu"),)
    )
    return Problem("agg-pareto" if pareto else "agg", parameters, objectives, evaluate, canonical)


def _rough(pareto: bool) -> Problem:
    """Mixed, multi-modal, without a projection; the default is far from the optimum."""
    weights = (1.0, 0.7, 0.5, 0.3, 0.1, 0.0)
    parameters: tuple[Parameter, ...] = (
        *(FloatParameter(f"x{i}", 0.0, 1.0, 0.5) for i in range(6)),
        *(DiscreteParameter(f"d{i}", (1, 2, 4, 8, 16), 4, log=True) for i in range(3)),
        *(CategoricalParameter(f"c{i}", ("a", "b", "c", "d"), "a") for i in range(3)),
    )
    targets = (0.82, 0.13, 0.31, 0.66, 0.5, 0.9)

    def evaluate(v: Values) -> Labels:
        x = [float(v[f"x{i}"]) for i in range(6)]
        loss = sum(w * abs(a - t) ** 1.2 for w, a, t in zip(weights, x, targets, strict=True))
        loss += 0.06 * sum(1 - math.cos(9 * (a - t)) for a, t in zip(x[:3], targets[:3], strict=True))
        loss += sum(0.12 * abs(math.log2(float(v[f"d{i}"])) - i - 1) for i in range(3))
        loss += (
            0.25 * (v["c0"] != "c")
            + 0.15 * (v["c1"] != ("d" if v["c0"] == "c" else "b"))
            + 0.05 * (v["c2"] == "a")
        )
        if x[1] < 0.1 and v["c0"] == "c":
            return None
        if not pareto:
            return (-loss,)
        return -loss, -abs(x[0] - 0.3) - 0.4 * abs(x[2] - 0.8) - 0.1 * (v["c0"] == "c")

    objectives = tuple(Objective(n) for n in (("first", "second") if pareto else ("value",)))
    return Problem("rough-pareto" if pareto else "rough", parameters, objectives, evaluate)


def synthetic() -> tuple[Problem, ...]:
    """The invented problems: three with one objective, three with two."""
    both = (False, True)
    return tuple(p for pareto in both for p in (_disagg(32, pareto), _agg(16, pareto), _rough(pareto)))


def measured(name: str) -> Problem:
    """A problem whose every candidate was measured by the real replay (``bench/truth_table.py``)."""
    from spica.sweep.prepare import scoring_of_goal
    from truth_table import TRUTH, load_problem

    problem = load_problem(name)
    rows = json.loads((TRUTH / f"{name}.json").read_text())["rows"]
    scores = {row["key"]: None if row["labels"] is None else tuple(row["labels"]) for row in rows}
    branch = problem.branch
    return Problem(
        name,
        branch.parameters,
        scoring_of_goal(problem.prepared.config).objectives,
        lambda values: scores[branch.identity(values)],
        branch.canonical,
        branch.identity,
    )
