"""The names that ``spica`` exports, where they come from, and that importing it is cheap."""

from __future__ import annotations

import subprocess
import sys

import spica

NAMES = {
    "Branch", "BranchPlan", "Candidate", "ConfigError", "FPM_SAMPLING", "Goal", "InputError",
    "LOAD_PREDICTOR_PRESETS", "LOAD_SENSITIVITY", "LedgerError", "NoPerfDatabase", "NoViableParallelConfig",
    "NothingFeasible", "OptimizationTarget", "ParallelConfigProjector", "ParallelShape", "SCALING_POLICIES",
    "SearchSpace", "SmartSearchConfig", "SpicaError", "StackError", "SweepInterrupted", "SweepOptions",
    "SweepResult", "TraceError", "Workload", "build_branches", "config_from_mapping", "feasible_shape_tokens",
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
