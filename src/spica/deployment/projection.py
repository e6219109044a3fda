"""From what the optimizer sees (sizes, ratios, modes) to a valid parallel config, and back.

Pure and deterministic: the projection of a request depends on the pool alone, never on what was asked before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spica.deployment.features import Feature, encode_features, features_of, geometric_centre
from spica.deployment.pool import ConfigPool
from spica.deployment.shapes import ParallelConfig
from spica.optimize.protocol import (
    CategoricalParameter,
    DiscreteParameter,
    FloatParameter,
    Influence,
    Parameter,
    Value,
    Values,
)

# Two distances that differ by less than rounding are one distance, and the tie-break decides.
_RELATIVE_TIE = 1e-12
_ABSOLUTE_TIE = 1e-24
_SHAPE = Influence.SHAPE


@dataclass(frozen=True, slots=True)
class Projection:
    """The config that a request became. ``distance`` is the squared normalized distance; ``mode_projected``
    says that no config of the backend has all requested modes. ``requested`` and ``actual`` hold every
    feature, in order; they are empty when the pool has one config and nothing was projected.
    """

    backend: str
    config: ParallelConfig
    requested: tuple[tuple[str, Value], ...]
    actual: tuple[tuple[str, Value], ...]
    distance: float
    mode_projected: bool

    def to_json(self) -> dict[str, object]:
        """What trial metadata records under ``spica_projection``."""
        config: dict[str, object] = {
            role: {
                "tp": group.shape.tp,
                "pp": group.shape.pp,
                "attention_dp": group.shape.attention_dp,
                "moe_tp": group.shape.moe_tp,
                "moe_ep": group.shape.moe_ep,
                "strategy": group.shape.strategy,
                "replicas": group.replicas,
            }
            for role, group in self.config.groups
        }
        config["used_gpus"] = self.config.used_gpus
        return {
            "backend": self.backend,
            "requested": dict(self.requested),
            "actual": dict(self.actual),
            "distance": self.distance,
            "mode_projected": self.mode_projected,
            "config": config,
        }


@dataclass(frozen=True, slots=True)
class _Cell:
    """The configs of one backend that share every mode: their rows in the pool, and their numbers divided
    by the backend's spans (columns of zero span are 0).
    """

    modes: tuple[int, ...]
    rows: NDArray[np.int64]
    numbers: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _BackendTable:
    cells: tuple[_Cell, ...]
    scale: NDArray[np.float64]


class ParallelConfigProjector:
    """The study dimensions of a branch's pool, and the projection of a point of them onto the pool.

    ``pool`` is the union over the branch's backends (sorted, so that the first of equally near configs is the
    lexicographically smallest); ``gpu_budget`` is what ``used_gpu_ratio`` is a ratio of.
    """

    def __init__(self, pool: ConfigPool, gpu_budget: int) -> None:
        if not pool.configs:
            raise ValueError("an empty pool has nothing to project onto")
        self._pool = pool
        self._gpu_budget = gpu_budget
        self._features = features_of(pool.configs)
        self._actual = [encode_features(self._features, config, gpu_budget) for config in pool.configs]
        self._number_columns = [i for i, f in enumerate(self._features) if f.kind != "mode"]
        self._mode_columns = [i for i, f in enumerate(self._features) if f.kind == "mode"]
        # A pool of one config has no dimensions: every feature is a constant.
        distinct = {
            f.name: _distinct(f, {row[i] for row in self._actual}) for i, f in enumerate(self._features)
        }
        self.parameters: tuple[Parameter, ...] = tuple(
            _parameter(f, distinct[f.name]) for f in self._features if len(distinct[f.name]) > 1
        )
        self.constants: dict[str, Value] = {name: v[0] for name, v in distinct.items() if len(v) == 1}
        self._tables = self._make_tables()
        # Most variations of a candidate leave its shape as it is.
        self._project = lru_cache(maxsize=4096)(self._projected)
        self.standing = lru_cache(maxsize=4096)(self._standing)

    def project(self, values: Values, backend: str) -> Projection:
        """The valid config of ``backend`` nearest to ``values`` (one per parameter; constants are filled
        in).

        Modes first: only the configs with the fewest mode mismatches are considered. Then the smallest sum
        of squared differences, each divided by the feature's span over the backend's configs; sizes in
        log2. Equal distances go to the lexicographically smallest config.

        Raises ValueError for a backend without a config, or a parameter without a value.
        """
        if backend not in self._tables:
            raise ValueError(
                f"no config of the pool is valid on {backend}; there are {', '.join(self._tables)}"
            )
        if len(self._pool.configs) == 1:
            return Projection(backend, self._pool.configs[0], (), (), 0.0, False)
        return self._project(backend, self._requested(values))

    def _projected(self, backend: str, requested: tuple[Value, ...]) -> Projection:
        table = self._tables[backend]
        modes = tuple(self._features[i].modes.index(str(requested[i])) for i in self._mode_columns)
        wanted = self._numbers(requested) * table.scale
        mismatches = [sum(a != b for a, b in zip(cell.modes, modes, strict=True)) for cell in table.cells]
        fewest = min(mismatches)
        cells = [cell for cell, count in zip(table.cells, mismatches, strict=True) if count == fewest]
        row, distance = _nearest(cells, wanted)
        names = [feature.name for feature in self._features]
        return Projection(
            backend=backend,
            config=self._pool.configs[row],
            requested=tuple(zip(names, requested, strict=True)),
            actual=tuple(zip(names, self._actual[row], strict=True)),
            distance=distance,
            mode_projected=fewest > 0,
        )

    def encode(self, config: ParallelConfig) -> dict[str, Value]:
        """The parameter values that stand for ``config``.

        Projected back on a backend where ``config`` is valid they give ``config`` again, unless a pinned menu
        holds several shapes of the same size and modes: then the lexicographically smallest of them.
        """
        row = encode_features(self._features, config, self._gpu_budget)
        wanted = {parameter.name for parameter in self.parameters}
        return {f.name: v for f, v in zip(self._features, row, strict=True) if f.name in wanted}

    def _standing(self, config: ParallelConfig, backend: str) -> dict[str, Value] | None:
        """The values that ``encode`` gives, if projected on ``backend`` they give ``config`` again. Kept: not
        to be changed.
        """
        point = self.encode(config)
        return point if self.project(point, backend).config == config else None

    def shadowed(self, backend: str) -> tuple[ParallelConfig, ...]:
        """Configs valid on ``backend`` that no request reaches, because a smaller one has the same
        features.
        """
        seen: set[tuple[Value, ...]] = set()
        hidden: list[ParallelConfig] = []
        for config, valid, row in zip(self._pool.configs, self._pool.backends, self._actual, strict=True):
            if backend in valid:
                if row in seen:
                    hidden.append(config)
                seen.add(row)
        return tuple(hidden)

    def _requested(self, values: Values) -> tuple[Value, ...]:
        known = {**values, **self.constants}
        missing = [f.name for f in self._features if f.name not in known]
        if missing:
            raise ValueError(f"no value for {', '.join(missing)}")
        return tuple(known[f.name] for f in self._features)

    def _numbers(self, row: Sequence[Value]) -> NDArray[np.float64]:
        """The numeric features of a row, transformed (sizes to log2)."""
        return np.array([self._features[i].transform(float(row[i])) for i in self._number_columns])

    def _make_tables(self) -> dict[str, _BackendTable]:
        count = len(self._pool.configs)
        numbers = np.empty((count, len(self._number_columns)))
        for k, i in enumerate(self._number_columns):
            feature = self._features[i]
            column = [feature.transform(float(row[i])) for row in self._actual]
            numbers[:, k] = column
        modes = np.empty((count, len(self._mode_columns)), dtype=np.int8)
        for k, i in enumerate(self._mode_columns):
            order = self._features[i].modes
            modes[:, k] = [order.index(str(row[i])) for row in self._actual]
        names = sorted({name for valid in self._pool.backends for name in valid})
        tables: dict[str, _BackendTable] = {}
        for name in names:
            rows = np.flatnonzero([name in valid for valid in self._pool.backends])
            tables[name] = _table(rows, numbers[rows], modes[rows])
        return tables


def _table(rows: NDArray[np.int64], numbers: NDArray[np.float64], modes: NDArray[np.int8]) -> _BackendTable:
    """The configs ``rows`` of one backend, cut into cells of equal modes."""
    spans = numbers.max(axis=0) - numbers.min(axis=0)
    scale = np.divide(1.0, spans, out=np.zeros_like(spans), where=spans > 0)
    combinations, cell_of = np.unique(modes, axis=0, return_inverse=True)
    cells = []
    for k, combination in enumerate(combinations):
        inside = np.flatnonzero(cell_of.reshape(-1) == k)
        cells.append(_Cell(tuple(int(m) for m in combination), rows[inside], numbers[inside] * scale))
    return _BackendTable(tuple(cells), scale)


def _nearest(cells: Sequence[_Cell], wanted: NDArray[np.float64]) -> tuple[int, float]:
    """The smallest row among those at the least distance, and that distance."""
    rows = np.concatenate([cell.rows for cell in cells])
    distances = np.concatenate([((cell.numbers - wanted) ** 2).sum(axis=1) for cell in cells])
    least = float(distances.min())
    tied = distances <= least * (1 + _RELATIVE_TIE) + _ABSOLUTE_TIE
    row = int(rows[tied].min())
    return row, float(distances[rows == row][0])


def _distinct(feature: Feature, present: set[Value]) -> tuple[Value, ...]:
    if feature.kind == "mode":
        return tuple(mode for mode in feature.modes if mode in present)
    return tuple(sorted(present, key=float))


def _parameter(feature: Feature, distinct: Sequence[Value]) -> Parameter:
    if feature.kind == "mode":
        return CategoricalParameter(feature.name, tuple(map(str, distinct)), str(distinct[0]), _SHAPE)
    numbers = [float(v) for v in distinct]
    if feature.kind == "size":
        default = geometric_centre(numbers)
        return DiscreteParameter(feature.name, tuple(numbers), default, log=True, influence=_SHAPE)
    low, high = numbers[0], numbers[-1]
    default = min(max(feature.default, low), high)
    return FloatParameter(feature.name, low, high, default, influence=_SHAPE)
