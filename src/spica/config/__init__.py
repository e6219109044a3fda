"""The configuration of a sweep: four blocks as frozen models, and how they are read from YAML."""

from spica.config.block import ConfigWarning
from spica.config.goal import Goal, OptimizationTarget, SlaTargets
from spica.config.model import SmartSearchConfig
from spica.config.search_space import SearchSpace
from spica.config.sweep import Confirm, SweepOptions
from spica.config.workload import Workload, WorkloadShape

__all__ = [
    "ConfigWarning",
    "Confirm",
    "Goal",
    "OptimizationTarget",
    "SearchSpace",
    "SlaTargets",
    "SmartSearchConfig",
    "SweepOptions",
    "Workload",
    "WorkloadShape",
]
