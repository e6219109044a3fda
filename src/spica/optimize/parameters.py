"""The parameters of Vizier's Gaussian process as one vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each parameter of a process over so many features lies in a vector."""

    continuous: int
    categorical: int

    @property
    def size(self) -> int:
        return self.continuous + self.categorical + 2

    def _pieces(self) -> tuple[tuple[str, slice | int], ...]:
        lengths = self.continuous + self.categorical
        return (
            ("continuous_length_scale_squared", slice(0, self.continuous)),
            ("categorical_length_scale_squared", slice(self.continuous, lengths)),
            ("observation_noise_variance", lengths),
            ("signal_variance", lengths + 1),
        )

    def named(self, flat: Any) -> dict[str, Any]:
        """The parts of a vector (NumPy's or JAX's) by Vizier's names."""
        return {name: flat[where] for name, where in self._pieces()}

    def flat(self, named: Mapping[str, Any]) -> Array:
        """The vector of its named parts; a single number stands for all of a part."""
        vector = np.empty(self.size)
        for name, where in self._pieces():
            vector[where] = np.asarray(named[name], dtype=np.float64)
        return vector
