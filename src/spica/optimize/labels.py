"""Labels as the model is shown them: to be maximised, finite, one column per objective."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spica.optimize.protocol import Objective, Observation

# How far below the worst score, in ranges of the scores, a trial without a score is placed.
_PENALTY = 0.1


def upward(observations: Sequence[Observation], objectives: Sequence[Objective]) -> NDArray[np.float64]:
    """Labels turned so that more is better. Shape ``(n, objectives)``, NaN where there is no score."""
    signs = np.array([1.0 if o.maximize else -1.0 for o in objectives])
    missing = [float("nan")] * len(objectives)
    table = [missing if o.labels is None else list(o.labels) for o in observations]
    return np.asarray(np.array(table, dtype=np.float64).reshape(len(table), len(objectives)) * signs)


def with_penalties(labels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Labels of one objective with each missing one a little below the worst. Shape ``(n,)`` to ``(n,)``.

    A failed trial must look bad without changing how the scored ones compare: a value far below (or NaN)
    would squeeze them together once labels are scaled. All missing gives zeros.
    """
    missing = np.isnan(labels)
    if missing.all():
        return np.zeros_like(labels)
    scored = labels[~missing]
    spread = float(scored.max() - scored.min()) or abs(float(scored.max())) or 1.0
    return np.where(missing, scored.min() - _PENALTY * spread, labels)
