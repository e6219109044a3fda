"""Labels turned so that more is better, one column per objective."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spica.optimize.protocol import Objective, Observation


def upward(observations: Sequence[Observation], objectives: Sequence[Objective]) -> NDArray[np.float64]:
    """Labels turned so that more is better. Shape ``(n, objectives)``, NaN where there is no score."""
    signs = np.array([1.0 if o.maximize else -1.0 for o in objectives])
    missing = [float("nan")] * len(objectives)
    table = [missing if o.labels is None else list(o.labels) for o in observations]
    return np.asarray(np.array(table, dtype=np.float64).reshape(len(table), len(objectives)) * signs)
