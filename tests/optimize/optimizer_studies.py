"""Studies and objective functions shared by the optimizer tests."""

from __future__ import annotations

import math

from spica.optimize import (
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Objective,
    Observation,
    Optimizer,
    Study,
    Suggestion,
    Values,
)

MIXED = (
    FloatParameter("share", 0.1, 0.9, 0.5),
    DiscreteParameter("size", (1, 2, 4, 8), 4, log=True),
    DiscreteParameter("weight", (0.0, 0.5, 2.0), 0.5),
    CategoricalParameter("backend", ("vllm", "sglang", "trtllm"), "vllm"),
)
TINY = (
    DiscreteParameter("size", (1, 2, 4), 2, log=True),
    CategoricalParameter("mode", ("a", "b", "c", "d"), "a"),
)


def identity(values: Values) -> str:
    """Shares decode to tenths; the weight does nothing on sglang."""
    weight = "-" if values["backend"] == "sglang" else values["weight"]
    return f"{round(float(values['share']), 1)}|{values['size']}|{weight}|{values['backend']}"


def mixed(seed: int = 0, objectives: int = 1, *, with_identity: bool = True) -> Study:
    """Four parameters of all kinds."""
    names = tuple(Objective(f"o{i}", maximize=i == 0) for i in range(objectives))
    return Study(MIXED, names, seed, identity if with_identity else None)


def tiny(seed: int = 0) -> Study:
    """Twelve candidates."""
    return Study(TINY, (Objective("o"),), seed, lambda v: f"{v['size']}{v['mode']}")


def value(values: Values) -> float:
    """Highest, at 0, for share 0.3, size 8, weight 2 and trtllm."""
    penalty = {"vllm": 0.2, "sglang": 0.5, "trtllm": 0.0}[str(values["backend"])]
    size = abs(math.log2(float(values["size"])) - 3) / 3
    return -(abs(float(values["share"]) - 0.3) + size + penalty + 0.1 * (2 - float(values["weight"])))


def cost(values: Values) -> float:
    """A second objective, to be minimised, against the first one in the size."""
    return float(values["size"]) + float(values["share"])


def observe(study: Study, suggestion: Suggestion) -> Observation:
    """The true labels of a suggestion to ``mixed``."""
    return Observation(
        suggestion, (value(suggestion.values), cost(suggestion.values))[: len(study.objectives)]
    )


def run(optimizer: Optimizer, study: Study, rounds: int, batch: int) -> list[Suggestion]:
    """Ask and tell alternately; everything that was suggested."""
    asked: list[Suggestion] = []
    for _ in range(rounds):
        suggestions = optimizer.ask(batch)
        asked.extend(suggestions)
        optimizer.tell([observe(study, s) for s in suggestions])
    return asked
