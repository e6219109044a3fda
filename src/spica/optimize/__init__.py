"""Ask/tell optimizers over flat study spaces. Importing this package imports neither Vizier nor JAX."""

from spica.optimize.factory import make_optimizer, warm_up
from spica.optimize.protocol import (
    Asked,
    CategoricalParameter,
    DiscreteParameter,
    Event,
    FloatParameter,
    Influence,
    Objective,
    Observation,
    Optimizer,
    Parameter,
    Study,
    Suggestion,
    Told,
    Value,
    Values,
)

__all__ = [
    "Asked",
    "CategoricalParameter",
    "DiscreteParameter",
    "Event",
    "FloatParameter",
    "Influence",
    "Objective",
    "Observation",
    "Optimizer",
    "Parameter",
    "Study",
    "Suggestion",
    "Told",
    "Value",
    "Values",
    "make_optimizer",
    "warm_up",
]
