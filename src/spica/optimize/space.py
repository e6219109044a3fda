"""Points of a study space as rows of numbers, and back.

A row holds, per parameter in the study's order, the natural value of a float and the index of the choice of a
discrete or categorical. Rows are what candidate generation works on; features are what the model sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spica.optimize.protocol import (
    CategoricalParameter,
    FloatParameter,
    Influence,
    Parameter,
    Study,
    Value,
    Values,
)

Rows = NDArray[np.float64]

# Points whose candidates are remembered; then the memory starts afresh, to stay within some 20 MB.
_REMEMBERED = 30_000
# The range of a float on a log scale, in units of the distance below which it counts linearly.
_FINEST = 100.0
# Length of a weight's axis, where that of other parameters is 1: the prior is that its ends differ less.
_WEIGHT_LENGTH = 0.3


@dataclass(frozen=True, slots=True)
class Features:
    """``continuous``: shape ``(n, c)``, in ``[0, 1]``, weights on a shorter axis; ``categorical``: shape
    ``(n, k)``, choice indices."""

    continuous: NDArray[np.float64]
    categorical: NDArray[np.int32]

    def __len__(self) -> int:
        return int(self.continuous.shape[0])


def _positions(parameter: Parameter) -> NDArray[np.float64]:
    """Where each choice of a discrete lies on ``[0, 1]``."""
    if isinstance(parameter, FloatParameter | CategoricalParameter):
        raise TypeError(f"{parameter.name} is not a discrete parameter")
    scale = np.asarray(parameter.choices, dtype=np.float64)
    if parameter.log:
        scale = np.log(scale)
    return np.asarray((scale - scale[0]) / (scale[-1] - scale[0]), dtype=np.float64)


class Space:
    """Encoding of one study's parameters."""

    def __init__(self, study: Study) -> None:
        self.parameters = study.parameters
        self._study = study
        # Projections cost more than anything else here, and neighbourhoods are visited again and again.
        self._canonical: dict[bytes, Rows] = {}
        self._keys: dict[bytes, str] = {}
        self._divisors: dict[bytes, float] = {}
        self._tables = {
            i: _positions(p)
            for i, p in enumerate(self.parameters)
            if not isinstance(p, FloatParameter | CategoricalParameter)
        }
        self._index = {
            i: {choice: k for k, choice in enumerate(p.choices)}
            for i, p in enumerate(self.parameters)
            if not isinstance(p, FloatParameter)
        }

    @property
    def width(self) -> int:
        return len(self.parameters)

    @cached_property
    def is_float(self) -> NDArray[np.bool_]:
        """Which parameters are floats. Shape ``(width,)``."""
        return np.array([isinstance(p, FloatParameter) for p in self.parameters], dtype=bool)

    @cached_property
    def is_categorical(self) -> NDArray[np.bool_]:
        """Which parameters are categoricals. Shape ``(width,)``."""
        return np.array([isinstance(p, CategoricalParameter) for p in self.parameters], dtype=bool)

    def columns(self, *influences: Influence) -> NDArray[np.intp]:
        """The columns of rows whose parameters have one of these influences."""
        return np.flatnonzero([p.influence in influences for p in self.parameters])

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of choices per parameter, 0 for floats. Shape ``(width,)``."""
        return np.array(
            [0 if isinstance(p, FloatParameter) else len(p.choices) for p in self.parameters], dtype=np.int64
        )

    @cached_property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lowest and highest row value per parameter. Shapes ``(width,)``."""
        low = [p.low if isinstance(p, FloatParameter) else 0.0 for p in self.parameters]
        high = [p.high if isinstance(p, FloatParameter) else len(p.choices) - 1.0 for p in self.parameters]
        return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)

    def default_row(self) -> Rows:
        """The row of all defaults. Shape ``(width,)``."""
        return self.encode({p.name: p.default for p in self.parameters})

    def encode(self, values: Values) -> Rows:
        """The row of a point. Raises ValueError when a value is missing or outside its parameter."""
        row = np.empty(self.width)
        for i, p in enumerate(self.parameters):
            if p.name not in values:
                raise ValueError(f"no value for parameter {p.name}")
            value = values[p.name]
            if isinstance(p, FloatParameter):
                row[i] = self._checked_float(p, value)
            elif value in self._index[i]:
                row[i] = self._index[i][value]
            else:
                raise ValueError(f"{p.name}: {value!r} is not among {p.choices}")
        return row

    @staticmethod
    def _checked_float(p: FloatParameter, value: Value) -> float:
        slack = 1e-9 * (p.high - p.low)
        if isinstance(value, str) or not p.low - slack <= value <= p.high + slack:
            raise ValueError(f"{p.name}: {value!r} is outside [{p.low}, {p.high}]")
        return min(max(float(value), p.low), p.high)

    def decode(self, row: Rows) -> dict[str, Value]:
        """The point of a row; choices come back as the objects they were given as (ints stay ints)."""
        values: dict[str, Value] = {}
        for i, p in enumerate(self.parameters):
            values[p.name] = float(row[i]) if isinstance(p, FloatParameter) else p.choices[int(row[i])]
        return values

    def canonical(self, row: Rows) -> Rows:
        """The row that stands for the candidate of ``row`` (itself when the study does not say)."""
        if self._study.canonical is None:
            return row
        point = row.tobytes()
        if point not in self._canonical:
            if len(self._canonical) >= _REMEMBERED:
                self._canonical.clear()
            self._canonical[point] = self.encode(self._study.canonical(self.decode(row)))
        return self._canonical[point]

    def key(self, row: Rows) -> str:
        """The identity of the candidate of ``row``; without one in the study, of the point itself."""
        point = row.tobytes()
        if point not in self._keys:
            if len(self._keys) >= _REMEMBERED:
                self._keys.clear()
            values = self.decode(row)
            identity = self._study.identity
            self._keys[point] = repr(values) if identity is None else identity(values)
        return self._keys[point]

    def divisors(self, rows: Rows) -> NDArray[np.float64]:
        """What the values of rows ``(n, width)`` are divided by, 1 where the study does not say. Shape
        ``(n,)``."""
        divisor = self._study.divisor
        if divisor is None:
            return np.ones(len(rows))
        if len(self._divisors) >= _REMEMBERED:
            self._divisors.clear()
        for row in rows:
            if row.tobytes() not in self._divisors:
                self._divisors[row.tobytes()] = divisor(self.decode(row))
        return np.array([self._divisors[row.tobytes()] for row in rows])

    @cached_property
    def _growth(self) -> NDArray[np.float64]:
        """Of a float on a log scale, the range in units of its finest step; 0 for all else."""
        log = [isinstance(p, FloatParameter) and p.log for p in self.parameters]
        return np.where(log, _FINEST, 0.0)

    def positions(self, rows: Rows) -> Rows:
        """Where the floats of rows lie on their scales, in ``[0, 1]``. Shape ``(n, width)``; the columns of
        other parameters mean nothing."""
        low, high = self.bounds
        share = (rows - low) / np.where(high > low, high - low, 1.0)
        growth = np.where(self._growth > 0, self._growth, 1.0)
        return np.where(self._growth > 0, np.log1p(share * growth) / np.log1p(growth), share)

    def at_positions(self, positions: Rows) -> Rows:
        """The inverse of ``positions``: values of floats, kept within their bounds."""
        low, high = self.bounds
        growth = np.where(self._growth > 0, self._growth, 1.0)
        share = np.where(self._growth > 0, np.expm1(positions * np.log1p(growth)) / growth, positions)
        return np.clip(low + share * (high - low), low, high)

    def from_unit(self, unit: Rows) -> Rows:
        """Rows of points of the unit cube; each choice gets an equal share. Shape ``(n, width)``."""
        continuous = self.at_positions(unit)
        picked = np.minimum(np.floor(unit * self.sizes), np.maximum(self.sizes - 1, 0))
        return np.asarray(np.where(self.is_float, continuous, picked), dtype=np.float64)

    def features(self, rows: Rows) -> Features:
        """What the model sees of rows of shape ``(n, width)``."""
        positions = self.positions(rows)
        columns = []
        for i, parameter in enumerate(self.parameters):
            if isinstance(parameter, CategoricalParameter):
                continue
            length = _WEIGHT_LENGTH if parameter.influence is Influence.WEIGHT else 1.0
            if self.is_float[i]:
                columns.append(length * positions[:, i])
            else:
                columns.append(length * self._tables[i][rows[:, i].astype(np.int64)])
        continuous = np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0))
        categorical = rows[:, self.is_categorical].astype(np.int32)
        return Features(continuous, categorical)
