"""Spica: a smart sweeper for LLM serving deployments.

    from spica import SmartSearchConfig, run_smart_search

Every public name is imported when it is first used, so that ``import spica`` costs nothing.
"""

from __future__ import annotations

import os

# Dynamo sets up logging when it is imported, and its planner and router then print a line per request.
os.environ.setdefault("DYN_LOG", "error")

TYPE_CHECKING = False  # as in typing, which takes as long to import as the interpreter itself
if TYPE_CHECKING:
    from typing import Any

    from spica.api import run_smart_search
    from spica.branches import Branch, BranchPlan, build_branches
    from spica.branches.backend_pool import parallel_configs_for
    from spica.config import Goal, OptimizationTarget, SearchSpace, SmartSearchConfig, SweepOptions, Workload
    from spica.config.load import config_from_mapping, load_config
    from spica.deployment.projection import ParallelConfigProjector
    from spica.deployment.shapes import ParallelShape
    from spica.errors import (
        ConfigError,
        InputError,
        LedgerError,
        NoPerfDatabase,
        NothingFeasible,
        NoViableParallelConfig,
        SpicaError,
        StackError,
        SweepInterrupted,
        TraceError,
    )
    from spica.facts import feasible_shape_tokens
    from spica.goals.ranking import pareto_front, rank
    from spica.planner.filters import filter_scaling_policies
    from spica.planner.predictor_sweep import sweep_load_predictor
    from spica.planner.predictors import LOAD_PREDICTOR_PRESETS
    from spica.planner.presets import FPM_SAMPLING, LOAD_SENSITIVITY, SCALING_POLICIES
    from spica.record.results import Candidate, SweepResult

_HOMES = {
    "spica.api": ("run_smart_search",),
    "spica.branches": ("Branch", "BranchPlan", "build_branches"),
    "spica.config": (
        "Goal",
        "OptimizationTarget",
        "SearchSpace",
        "SmartSearchConfig",
        "SweepOptions",
        "Workload",
    ),
    "spica.config.load": ("config_from_mapping", "load_config"),
    "spica.errors": (
        "ConfigError",
        "InputError",
        "LedgerError",
        "NoPerfDatabase",
        "NoViableParallelConfig",
        "NothingFeasible",
        "SpicaError",
        "StackError",
        "SweepInterrupted",
        "TraceError",
    ),
    "spica.facts": ("feasible_shape_tokens",),
    "spica.branches.backend_pool": ("parallel_configs_for",),
    "spica.deployment.projection": ("ParallelConfigProjector",),
    "spica.deployment.shapes": ("ParallelShape",),
    "spica.planner.filters": ("filter_scaling_policies",),
    "spica.planner.predictor_sweep": ("sweep_load_predictor",),
    "spica.planner.predictors": ("LOAD_PREDICTOR_PRESETS",),
    "spica.planner.presets": ("FPM_SAMPLING", "LOAD_SENSITIVITY", "SCALING_POLICIES"),
    "spica.goals.ranking": ("pareto_front", "rank"),
    "spica.record.results": ("Candidate", "SweepResult"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "FPM_SAMPLING",
    "LOAD_PREDICTOR_PRESETS",
    "LOAD_SENSITIVITY",
    "SCALING_POLICIES",
    "Branch",
    "BranchPlan",
    "Candidate",
    "ConfigError",
    "Goal",
    "InputError",
    "LedgerError",
    "NoPerfDatabase",
    "NoViableParallelConfig",
    "NothingFeasible",
    "OptimizationTarget",
    "ParallelConfigProjector",
    "ParallelShape",
    "SearchSpace",
    "SmartSearchConfig",
    "SpicaError",
    "StackError",
    "SweepInterrupted",
    "SweepOptions",
    "SweepResult",
    "TraceError",
    "Workload",
    "build_branches",
    "config_from_mapping",
    "feasible_shape_tokens",
    "filter_scaling_policies",
    "load_config",
    "parallel_configs_for",
    "pareto_front",
    "rank",
    "run_smart_search",
    "sweep_load_predictor",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'spica' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
