"""Making optimizers without importing Vizier before it is needed."""

from __future__ import annotations

from spica.optimize.protocol import Optimizer, Study


def make_optimizer(study: Study) -> Optimizer:
    """The optimizer of the sweep for a study. Vizier is imported when its first model is fitted (seconds)."""
    from spica.optimize.gp import GaussianProcessOptimizer

    return GaussianProcessOptimizer(study)


def warm_up(study: Study) -> None:
    """Import Vizier and compile what the first modelled suggestions of ``study`` need.

    For a background thread, while a sweep is being prepared. It leaves no trace in any optimizer: suggestions
    are the same with and without it.
    """
    if not study.parameters:
        return
    import numpy as np

    from spica.optimize.sampling import quasi_random
    from spica.optimize.space import Space
    from spica.optimize.vizier_import import vizier

    with vizier():
        from spica.optimize.vizier_gp import ROW_RUNGS, Surrogate

        space = Space(study)
        rows = quasi_random(space, ROW_RUNGS[0] // 2, seed=0)
        labels = np.linspace(-1.0, 1.0, len(rows))
        Surrogate(max_iterations=2).fit(space.features(rows), labels, seed=0)
