"""The names that ``spica`` exports, where they come from, and that importing it is cheap."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import get_args, get_type_hints

import spica

NAMES = {
    "BestImproved", "BranchStopped", "Candidate", "ConfigError", "FPM_SAMPLING", "FeasibilityQuery", "Goal",
    "InputError", "PhaseChanged", "PoolRequest", "RoundFinished", "SweepEvent", "SweepObserver",
    "TrialFinished", "Warned", "RoleLimits", "ConfigPool", "ScalingPolicy", "PredictorSpec",
    "Trace", "read_trace",
    "LOAD_PREDICTOR_PRESETS", "LOAD_SENSITIVITY", "LedgerError", "NoPerfDatabase", "NoViableParallelConfig",
    "OptimizationTarget", "ParallelConfigProjector", "ParallelShape", "SCALING_POLICIES",
    "SearchSpace", "SmartSearchConfig", "SpicaError", "StackError", "SweepOptions",
    "SweepResult", "TraceError", "Workload", "config_from_mapping", "feasible_shape_tokens",
    "filter_scaling_policies", "load_config", "parallel_configs_for", "pareto_front", "rank",
    "run_smart_search", "sweep_load_predictor",
}  # fmt: skip

HEAVY = {
    "dynamo",
    "aisimulate_core",
    "vizier",
    "jax",
    "plotly",
    "pandas",
    "pyarrow",
    "numpy",
    "pebble",
    "rich",
}


def test_the_names() -> None:
    assert set(spica.__all__) == NAMES


def test_each_name_is_there() -> None:
    for name in NAMES:
        assert getattr(spica, name) is not None
        assert name in dir(spica)


def test_a_function_is_not_hidden_by_its_module() -> None:
    code = "import spica.goals.ranking, spica.api, spica; assert callable(spica.rank), spica.rank"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(spica, "SmartSearchConfing")


def test_imports_of_the_command_line_are_light() -> None:
    code = f"import sys, spica.commands.arguments; print(*(set(sys.modules) & {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


def _classes(kind: object) -> set[type]:
    """The classes of ``spica`` that a type is made of, protocols and Callables of them included."""
    if isinstance(kind, type) and kind.__module__.split(".")[0] == "spica":
        return {kind}
    parts = [*get_args(kind)]
    flat = [inner for part in parts for inner in (part if isinstance(part, list) else [part])]
    return {found for part in flat for found in _classes(part)}


#: Made by Spica (of what Spica has made), never by a user.
RESULTS = {
    "BestImproved",
    "Candidate",
    "ConfigPool",
    "RoundFinished",
    "SweepResult",
    "Trace",
    "TrialFinished",
}
#: Functions that stand in for the installed components, in tests; nobody must give one.
STAND_INS = {"facts", "feasibility"}


def test_what_a_public_function_takes_is_public() -> None:
    """A name works alone when all that its parameters are made of can be imported beside it."""
    public = {getattr(spica, name) for name in NAMES if isinstance(getattr(spica, name), type)}
    lacking = {}
    for name in sorted(NAMES):
        made = getattr(spica, name)
        given = (
            isinstance(made, type) and not issubclass(made, Exception) and not hasattr(made, "model_fields")
        )
        if name not in RESULTS and (given or inspect.isfunction(made)):
            call = made if inspect.isfunction(made) else made.__init__
            if not inspect.isfunction(call):
                continue
            hints = {k: v for k, v in get_type_hints(call).items() if k != "return" and k not in STAND_INS}
            missing = {c.__name__ for kind in hints.values() for c in _classes(kind) if c not in public}
            if missing:
                lacking[name] = missing
    assert lacking == {}
