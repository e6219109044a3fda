"""Making optimizers without importing Vizier before it is needed."""

from __future__ import annotations

from spica.optimize.protocol import Optimizer, Study


def make_optimizer(study: Study) -> Optimizer:
    """The optimizer of the sweep for a study. JAX is imported when its first model is fitted."""
    from spica.optimize.gp import GaussianProcessOptimizer

    return GaussianProcessOptimizer(study)


def warm_up(study: Study) -> None:
    """Compile what the first modelled suggestions of ``study`` need; of a size that this machine has not seen
    yet, import Vizier too.

    For a background thread, while a sweep is being prepared. It leaves no trace in any optimizer: suggestions
    are the same with and without it.
    """
    if not study.parameters:
        return
    import numpy as np

    from spica.optimize.sampling import quasi_random
    from spica.optimize.space import Space
    from spica.optimize.surrogate import ROW_RUNGS, Surrogate

    space = Space(study)
    rows = quasi_random(space, ROW_RUNGS[0] // 2, seed=0)
    labels = np.linspace(-1.0, 1.0, len(rows))
    Surrogate(max_iterations=2).fit(space.features(rows), labels, seed=0)
