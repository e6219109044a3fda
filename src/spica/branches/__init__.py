"""From a configuration to what is searched: one branch per deployment mode, and what was left out and why."""

from spica.branches.branch import Branch
from spica.branches.build import BranchPlan, build_branches
from spica.branches.checks import KeptPolicies, PlannerValidator, kept_policies
from spica.branches.decode import predictor_settings
from spica.branches.model import BackendSummary, DecodedPoint, Dimension, Dropped, RejectedPool
from spica.branches.pools import Components

__all__ = [
    "BackendSummary",
    "Branch",
    "BranchPlan",
    "Components",
    "DecodedPoint",
    "Dimension",
    "Dropped",
    "KeptPolicies",
    "PlannerValidator",
    "RejectedPool",
    "build_branches",
    "kept_policies",
    "predictor_settings",
]
