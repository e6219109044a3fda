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
    from spica.branches.backend_pool import PoolRequest, RoleLimits, parallel_configs_for
    from spica.config import Goal, OptimizationTarget, SearchSpace, SmartSearchConfig, SweepOptions, Workload
    from spica.config.load import config_from_mapping, load_config
    from spica.deployment.pool import ConfigPool
    from spica.deployment.projection import ParallelConfigProjector
    from spica.deployment.shapes import ParallelShape
    from spica.errors import (
        ConfigError,
        InputError,
        LedgerError,
        NoPerfDatabase,
        NoViableParallelConfig,
        SpicaError,
        StackError,
        TraceError,
    )
    from spica.facts import feasible_shape_tokens
    from spica.facts.feasibility import FeasibilityQuery
    from spica.goals.ranking import pareto_front, rank
    from spica.planner.filters import filter_scaling_policies
    from spica.planner.predictor_sweep import sweep_load_predictor
    from spica.planner.predictors import LOAD_PREDICTOR_PRESETS, PredictorSpec
    from spica.planner.presets import FPM_SAMPLING, LOAD_SENSITIVITY, SCALING_POLICIES, ScalingPolicy
    from spica.record.results import Candidate, SweepResult
    from spica.sweep.events import (
        BestImproved,
        BranchStopped,
        PhaseChanged,
        RoundFinished,
        SweepEvent,
        SweepObserver,
        TrialFinished,
        Warned,
    )
    from spica.traffic.model import Trace
    from spica.traffic.read import read_trace

_HOMES = {
    "spica.api": ("run_smart_search",),
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
        "SpicaError",
        "StackError",
        "TraceError",
    ),
    "spica.facts": ("feasible_shape_tokens",),
    "spica.facts.feasibility": ("FeasibilityQuery",),
    "spica.branches.backend_pool": ("PoolRequest", "parallel_configs_for", "RoleLimits"),
    "spica.deployment.projection": ("ParallelConfigProjector",),
    "spica.deployment.shapes": ("ParallelShape",),
    "spica.planner.filters": ("filter_scaling_policies",),
    "spica.planner.predictor_sweep": ("sweep_load_predictor",),
    "spica.planner.predictors": ("LOAD_PREDICTOR_PRESETS", "PredictorSpec"),
    "spica.planner.presets": ("FPM_SAMPLING", "LOAD_SENSITIVITY", "SCALING_POLICIES", "ScalingPolicy"),
    "spica.goals.ranking": ("pareto_front", "rank"),
    "spica.deployment.pool": ("ConfigPool",),
    "spica.traffic.model": ("Trace",),
    "spica.traffic.read": ("read_trace",),
    "spica.record.results": ("Candidate", "SweepResult"),
    "spica.sweep.events": (
        "BestImproved",
        "BranchStopped",
        "PhaseChanged",
        "RoundFinished",
        "SweepEvent",
        "SweepObserver",
        "TrialFinished",
        "Warned",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "FPM_SAMPLING",
    "LOAD_PREDICTOR_PRESETS",
    "LOAD_SENSITIVITY",
    "SCALING_POLICIES",
    "BestImproved",
    "BranchStopped",
    "Candidate",
    "ConfigError",
    "ConfigPool",
    "FeasibilityQuery",
    "Goal",
    "InputError",
    "LedgerError",
    "NoPerfDatabase",
    "NoViableParallelConfig",
    "OptimizationTarget",
    "ParallelConfigProjector",
    "ParallelShape",
    "PhaseChanged",
    "PoolRequest",
    "PredictorSpec",
    "RoleLimits",
    "RoundFinished",
    "ScalingPolicy",
    "SearchSpace",
    "SmartSearchConfig",
    "SpicaError",
    "StackError",
    "SweepEvent",
    "SweepObserver",
    "SweepOptions",
    "SweepResult",
    "Trace",
    "TraceError",
    "TrialFinished",
    "Warned",
    "Workload",
    "config_from_mapping",
    "feasible_shape_tokens",
    "filter_scaling_policies",
    "load_config",
    "parallel_configs_for",
    "pareto_front",
    "rank",
    "read_trace",
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
