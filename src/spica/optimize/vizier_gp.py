"""The Gaussian process of Vizier's GP-UCB-PE designer, fitted without recompiling.

The only importer of ``vizier`` (pinned exactly: the designer's module is private). The designer's own
``suggest`` traces and compiles its acquisition optimizer anew in every call; here its label warper and its
hyper-parameter fit are used by themselves. Rows and feature widths are padded to few sizes, so that one
compiled program serves every study, in this process and, through the compilation cache, in the next.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from vizier import pyvizier as vz
from vizier._src.algorithms.designers import gp_ucb_pe
from vizier._src.algorithms.designers.gp import output_warpers
from vizier._src.jax import types

from spica.optimize.ard import FlatLbfgsB
from spica.optimize.posterior import Posterior, one_thread
from spica.optimize.space import Features

Array = NDArray[np.float64]

# Numbers of observations that programs are compiled for; beyond the last, it doubles.
ROW_RUNGS = (48, 96, 176, 304)
# Feature columns of each kind are padded to multiples of this.
_WIDTH_STEP = 8


def padded(size: int, rungs: tuple[int, ...]) -> int:
    """The smallest rung that holds ``size``; beyond the last it doubles."""
    for rung in rungs:
        if size <= rung:
            return rung
    rung = rungs[-1]
    while rung < size:
        rung *= 2
    return rung


def warp(labels: Array) -> Array:
    """Vizier's default warping of finite labels that are to be maximised. Shape ``(n,)`` to ``(n,)``.

    The lower half is spread by rank and good values are pulled apart; the order is kept.
    """
    warper = output_warpers.create_default_warper()
    return np.asarray(warper.warp(labels[:, None].astype(np.float64)), dtype=np.float64)[:, 0]


def _widths(features: Features) -> tuple[int, int]:
    def up(n: int) -> int:
        return max(_WIDTH_STEP, -(-n // _WIDTH_STEP) * _WIDTH_STEP)

    return up(features.continuous.shape[1]), up(features.categorical.shape[1])


def _padded_array(values: NDArray[Any], shape: tuple[int, int], fill: float) -> types.PaddedArray:
    """Vizier's padded array, made without JAX: its own way compiles a program for every size that is padded.

    It never says "nothing was padded", which would be another type to the compiled programs.
    """
    table = np.full(shape, fill, dtype=values.dtype)
    mask = np.zeros(shape, dtype=bool)
    table[: values.shape[0], : values.shape[1]] = values
    mask[: values.shape[0], : values.shape[1]] = True
    return types.PaddedArray(
        table, fill_value=np.asarray(fill, values.dtype), _original_shape=np.array(values.shape), _mask=mask
    )


def _model_input(features: Features, rows: int) -> types.ModelInput:
    continuous, categorical = _widths(features)
    return types.ModelInput(
        continuous=_padded_array(features.continuous, (rows, continuous), 0.0),
        categorical=_padded_array(features.categorical, (rows, categorical), 0),
    )


class Surrogate:
    """Fits Vizier's Gaussian process to observations.

    ``restarts`` random starts of the hyper-parameter fit are tried beside Vizier's fixed one.
    """

    def __init__(self, *, restarts: int = 1, max_iterations: int = 50) -> None:
        problem = vz.ProblemStatement()
        # The designer wants a problem; fitting reads the data alone.
        problem.search_space.root.add_float_param("x", 0.0, 1.0)
        goal = vz.ObjectiveMetricGoal.MAXIMIZE
        problem.metric_information.append(vz.MetricInformation("y", goal=goal))
        self._designer = gp_ucb_pe.VizierGPUCBPEBandit(
            problem,
            ard_optimizer=FlatLbfgsB(max_iterations),
            ard_random_restarts=restarts,
            rng=jax.random.PRNGKey(0),
        )

    def fit(self, features: Features, labels: Array, seed: int) -> Posterior:
        """The process given ``labels`` (shape ``(n,)``, finite, to be maximised) at ``n >= 1`` points."""
        rows = padded(len(features), ROW_RUNGS)
        data = types.ModelData(
            features=_model_input(features, rows),
            labels=_padded_array(labels[:, None], (rows, 1), np.nan),
        )
        key = jax.random.PRNGKey(seed)
        with one_thread():
            fitted = self._designer._build_gp_model_and_optimize_parameters(data, key)
        # The fit returns an ensemble of one.
        parameters = {name: np.asarray(leaf)[0] for name, leaf in fitted.params.items()}
        return Posterior(features, labels, parameters)
