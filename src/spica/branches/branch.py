"""One deployment mode's search: its study dimensions, and what each point of them stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spica.branches.decode import SampleMaker
from spica.branches.model import BackendSummary, DecodedPoint, Dimension, dimension
from spica.deployment.canonical import Canonical, Menu, canonicalize
from spica.deployment.pool import ConfigPool
from spica.deployment.projection import Projection
from spica.deployment.sample import Sample
from spica.deployment.shapes import Mode
from spica.optimize.protocol import CategoricalParameter, Parameter, Value, Values
from spica.planner.presets import PlannerTarget
from spica.traffic.replayed import Traffic

#: The traffic of a sample with that concurrency (None: the workload's own).
TrafficOf = Callable[[int | None], Traffic]

_REMEMBERED: Final = 200_000


class Branch:
    """The space of one deployment mode.

    ``parameters`` are the study's dimensions (single-valued knobs are constants, knobs that cannot act are
    not there), ``pool`` the valid parallel configs over all its ``backends``. Deterministic: what a point
    stands for depends on the point alone. Not thread-safe (it remembers).
    """

    def __init__(
        self,
        *,
        maker: SampleMaker,
        pool: ConfigPool,
        summaries: tuple[BackendSummary, ...],
        planner_target: PlannerTarget,
        traffic_of: TrafficOf | None,
    ) -> None:
        self.mode: Mode = maker.knobs.mode
        self.pool = pool
        self.summaries = summaries
        self.backends: tuple[str, ...] = tuple(s.backend for s in summaries)
        self.parameters: tuple[Parameter, ...] = (
            *(
                [CategoricalParameter("backend", self.backends, self.backends[0])]
                if len(summaries) > 1
                else []
            ),
            *maker.projector.parameters,
            *maker.knobs.parameters(),
        )
        self._maker = maker
        self._traffic_of = traffic_of
        self._menu = _menu(maker, planner_target)
        self._identities: dict[tuple[Value, ...], str] = {}

    @property
    def versions(self) -> dict[str, str]:
        """Backend -> the version whose performance data is used."""
        return {s.backend: s.version for s in self.summaries}

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return tuple(dimension(p) for p in self.parameters)

    @property
    def centre(self) -> dict[str, Value]:
        """The point of all defaults."""
        return {p.name: p.default for p in self.parameters}

    def traffic(self, sample: Sample) -> Traffic:
        """The traffic that ``sample`` is replayed against. Raises ValueError when the branch was built
        without its trace."""
        if self._traffic_of is None:
            raise ValueError("this branch was built without the trace of its workload")
        return self._traffic_of(sample.concurrency)

    def decode(self, values: Values) -> DecodedPoint:
        """The candidate that ``values`` (one per parameter) stands for, and whether it can be measured at
        all.

        Infeasible before any replay: a KV load that no cache could carry, or settings of its own that leave
        no room for one longest sequence. Raises ValueError for values outside the space.
        """
        requested, projection, reason = self._maker.make(values)
        canonical = self._canonical(requested, reason)
        if not reason:
            reason = self._maker.book.objection(canonical.sample)
        return DecodedPoint(canonical.sample, requested, projection, canonical.rules, reason)

    def identity(self, values: Values) -> str:
        """The key of the candidate that ``values`` stands for: equal keys are measured once."""
        point = tuple(values[p.name] for p in self.parameters)
        key = self._identities.get(point)
        if key is None:
            requested, _, reason = self._maker.make(values)
            key = self._canonical(requested, reason).sample.key()
            if len(self._identities) >= _REMEMBERED:
                self._identities.clear()
            self._identities[point] = key
        return key

    def canonical(self, values: Values) -> dict[str, Value]:
        """The point that stands for the candidate of ``values``: the shape as it was projected, knobs that do
        not act at their defaults. It has the same identity, and is its own canonical point."""
        requested, projection, reason = self._maker.make(values)
        sample = self._canonical(requested, reason).sample
        known = {**self._maker.knob_values(sample), **self._shape_values(values, projection)}
        return {p.name: known.get(p.name, p.default) for p in self.parameters}

    def gpus(self, values: Values) -> int:
        """How many GPUs the candidate that ``values`` stands for starts with."""
        return self._maker.projector.project(values, self._maker.backend(values)).config.used_gpus

    @property
    def offered_load(self) -> bool:
        """Whether requests arrive at their own times, and no candidate scales: then there is a ceiling to
        what all GPUs together deliver, and a candidate keeps its GPUs."""
        maker = self._maker
        return maker.concurrency is None and maker.knobs.kv_load is None and not maker.composites.scales

    def _shape_values(self, values: Values, projection: Projection) -> Values:
        projector = self._maker.projector
        standing = projector.standing(projection.config, projection.backend)
        if standing is not None:
            return standing
        # Configs of a pinned menu may differ only in what no feature shows; keep the request that met this
        # one.
        return {p.name: values[p.name] for p in projector.parameters}

    def _canonical(self, requested: Sample, reason: str) -> Canonical:
        if reason or self._traffic_of is None:
            return Canonical(requested, ())
        return canonicalize(requested, self._traffic_of(requested.concurrency), self._menu)


def _menu(maker: SampleMaker, planner_target: PlannerTarget) -> Menu:
    knobs = maker.knobs
    roles = tuple(maker.pins)
    return Menu(
        max_num_seqs=tuple((role, knobs.seqs(role)) for role in roles),
        round_robin="round_robin" in knobs.menus["router_mode"].values,
        router=maker.standing_router(),
        fpm=maker.composites.sampling[0],
        sensitivity=maker.composites.sensitivity[0],
        planner_target=planner_target,
        kv_load_range=None if knobs.kv_load is None else (knobs.kv_load.low, knobs.kv_load.high),
        kv_tokens=maker.book.tokens,
    )
