"""The Gaussian process of Vizier's GP-UCB-PE designer: its loss and the bounds of its parameters.

The only importer of ``vizier`` (pinned exactly: the module is private). Sizes are padded to few ones, so that
one compiled program serves every study. See ``program.py``, which calls this once per machine and size.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from vizier._src.jax import stochastic_process_model, types
from vizier._src.jax.models.tuned_gp_models import VizierGaussianProcess

from spica.optimize.parameters import Layout

Array = NDArray[np.float64]


def _padded(values: jax.Array, fill: float, sizes: list[jax.Array]) -> types.PaddedArray:
    """Vizier's padded array of two dimensions, of which ``sizes`` are not padding."""
    rows, columns = (jnp.arange(full) < size for full, size in zip(values.shape, sizes, strict=True))
    return types.PaddedArray(
        values,
        fill_value=jnp.asarray(fill, values.dtype),
        _original_shape=jnp.stack(sizes),
        _mask=rows[:, None] & columns[None, :],
    )


def loss_and_gradient(
    flat: jax.Array, continuous: jax.Array, categorical: jax.Array, labels: jax.Array, sizes: jax.Array
) -> jax.Array:
    """Vizier's loss (negative log likelihood and log priors) and, behind it, its gradient by the parameters.

    ``flat`` holds the parameters in the order of ``Layout``; ``continuous`` has shape ``(rows, c)``,
    ``categorical`` ``(rows, k)``, ``labels`` ``(rows,)``; ``sizes`` says how many rows, continuous and
    categorical columns are not padding. For tracing.
    """
    rows, columns, categories = sizes
    data = types.ModelData(
        features=types.ModelInput(
            continuous=_padded(continuous, 0.0, [rows, columns]),
            categorical=_padded(categorical, 0, [rows, categories]),
        ),
        labels=_padded(labels[:, None], jnp.nan, [rows, jnp.asarray(1, sizes.dtype)]),
    )
    coroutine = VizierGaussianProcess.build_model(data).coroutine
    model = stochastic_process_model.CoroutineWithData(coroutine, data)
    layout = Layout(continuous.shape[1], categorical.shape[1])
    loss, gradient = jax.value_and_grad(lambda x: model.loss_with_aux(layout.named(x))[0])(flat)
    return jnp.concatenate([loss[None], gradient])


def bounds(layout: Layout) -> tuple[Array, Array]:
    """The least and the largest value of each parameter, in the order of ``layout``."""
    shapes = ((1, layout.continuous), (1, layout.categorical), (1, 1))
    continuous, categorical, labels = (
        types.PaddedArray.from_array(np.zeros(s), s, fill_value=0.0) for s in shapes
    )
    features = types.ModelInput(continuous=continuous, categorical=categorical)
    model = VizierGaussianProcess.build_model(types.ModelData(features=features, labels=labels))
    low, high = stochastic_process_model.get_constraints(model).bounds
    return layout.flat(low), layout.flat(high)
