"""From a suggestion to the sample it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar, cast

from spica.branches.capacity import KvBook
from spica.branches.knobs import BranchKnobs, Composites, NameKnob, NumberKnob, value_of
from spica.config import SearchSpace
from spica.deployment.kv_load import kv_load
from spica.deployment.projection import ParallelConfigProjector, Projection
from spica.deployment.sample import (
    Backend,
    Deployment,
    EngineSettings,
    KvManager,
    KvRouterSettings,
    PlannerSettings,
    PredictorSettings,
    RouterMode,
    Sample,
    Scalar,
    ScalingSettings,
)
from spica.deployment.shapes import ParallelShape, Role
from spica.knobs.bindings import EngineArg, Holder, made, part_of
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.table import KNOBS
from spica.optimize.protocol import Value, Values
from spica.planner.predictors import PredictorSpec
from spica.planner.presets import FpmSampling, LoadSensitivity, ScalingPolicy

Family = Literal["constant", "arima", "prophet", "kalman"]
T = TypeVar("T", ScalingPolicy, FpmSampling, LoadSensitivity)

#: The forecaster of an interval that no sub-sweep decided.
CONSTANT_LAST: Final = PredictorSettings("constant")

#: Holder -> the knobs with one value there.
_PLACED: Final[Mapping[Holder, tuple[Knob, ...]]] = {
    holder: tuple(k for k in KNOBS.values() if len(k.places) == 1 and k.places[0].holder is holder)
    for holder in Holder
}
#: Engine settings that not every worker has.
_LIMITED: Final = tuple(
    (knob, knob.replay)
    for knob in _PLACED[Holder.ENGINE]
    if isinstance(knob.replay, EngineArg) and (len(knob.backends) < 3 or knob.replay.ranks)
)
#: Value of a place where nothing is said.
UNSET: Final = {knob.places[0].name: knob.unset for knobs in _PLACED.values() for knob in knobs}


def fixed_settings(space: SearchSpace, holder: Holder, role: Role | None = None) -> dict[str, Scalar]:
    """The settings of a part of a sample that are the same for every candidate."""
    return {
        knob.places[0].name: space.value(knob.name)
        for knob in _PLACED[holder]
        if knob.kind is KnobKind.PINNED and knob.role == role
    }


@dataclass(frozen=True, slots=True)
class SampleMaker:
    """Everything that turns the values of a suggestion into a sample; shared by all suggestions of a branch.

    ``isl`` and ``osl`` are needed for a KV-load workload only. ``concurrency`` is the fixed number in flight
    of the workload, if it has one. ``pins`` are the pinned engine settings of each role.
    ``attention_formats`` maps a backend to the number format its prefill attention is timed in, where the
    data lacks the model's own; ``expert_formats`` to that of the experts, where the engine runs them in
    another than the checkpoint's. ``engine_model``: a planner that scales is given the engine's timing.
    """

    deployment: Deployment
    kv_manager: KvManager
    pins: Mapping[Role, Mapping[str, Scalar]]
    knobs: BranchKnobs
    composites: Composites
    predictors: Mapping[int, PredictorSettings]
    projector: ParallelConfigProjector
    book: KvBook
    concurrency: int | None = None
    isl: int = 0
    osl: int = 0
    attention_formats: Mapping[str, str] = field(default_factory=dict)
    expert_formats: Mapping[str, str] = field(default_factory=dict)
    engine_model: bool = False

    def backend(self, values: Values) -> Backend:
        """Raises ValueError when the suggestion names no backend of the branch."""
        backends = tuple(self.book.facts)
        name = backends[0] if len(backends) == 1 else values.get("backend")
        if name not in backends:
            raise ValueError(f"backend: {name!r} is not one of {backends}")
        return cast(Backend, name)

    def make(self, values: Values) -> tuple[Sample, Projection, str]:
        """The sample, where its shape came from, and why its KV load cannot be carried (empty if it can).

        Raises ValueError for a value outside the branch's space.
        """
        backend = self.backend(values)
        projection = self.projector.project(values, backend)
        router_mode = cast(RouterMode, value_of(self.knobs.menus["router_mode"], values))
        sample = Sample(
            backend=backend,
            backend_version=self.book.facts[backend].version,
            deployment=self.deployment,
            kv_manager=self.kv_manager,
            parallel=projection.config,
            engines=tuple(
                (role, self._engine(role, backend, group.shape, values))
                for role, group in projection.config.groups
            ),
            router_mode=router_mode,
            router=self.router(values) if router_mode == "kv_router" else None,
            planner=self._planner(values),
            concurrency=self.concurrency,
            fmha_quant_mode=self.attention_formats.get(backend),
            moe_quant_mode=self.expert_formats.get(backend),
        )
        if self.knobs.kv_load is None:
            return sample, projection, ""
        load = kv_load(self._ratio(values), self.isl, self.osl, self.book.roles(sample))
        if isinstance(load, str):
            return sample, projection, load
        return replace(sample, concurrency=load.concurrency, kv_load=load), projection, ""

    def router(self, values: Values) -> KvRouterSettings:
        return made(KvRouterSettings, self._searched(Holder.ROUTER, values), UNSET)

    def standing_router(self) -> KvRouterSettings | None:
        """The router settings that stand for all where none can act: every knob at its default."""
        menus = self.knobs.menus
        if not any(knob.name in menus for knob in _PLACED[Holder.ROUTER]):
            return None
        defaults = {name: menu.default for name, menu in menus.items() if isinstance(menu, NumberKnob)}
        return self.router(defaults)

    def knob_values(self, sample: Sample) -> dict[str, Value]:
        """The study values that ``sample`` was made from; knobs it does not use are absent.

        Inverse of ``make`` but for the shape, and in one respect more: what is single-valued is given too.
        """
        values: dict[str, Value] = {
            "backend": sample.backend,
            "planner_scaling_policy": sample.planner.policy,
        }
        for name, menu in self.knobs.menus.items():
            knob = KNOBS[name]
            if knob.kind is KnobKind.COMPOSITE or part_of(sample, knob.places[0].holder, knob.role) is None:
                continue
            value = knob.value(sample)
            if value is not None:
                values[name] = str(value) if isinstance(menu, NameKnob) else float(value)
        scaling = sample.planner.scaling
        if scaling is not None:
            values |= self._composite_names(scaling)
        if sample.kv_load is not None:
            values["kv_load_ratio"] = sample.kv_load.kv_load_ratio
        return values

    def _composite_names(self, scaling: ScalingSettings) -> dict[str, Value]:
        fpm = (scaling.max_num_fpm_samples, scaling.fpm_sample_bucket_size)
        shrink = (scaling.load_scaling_down_sensitivity, scaling.load_min_observations)
        return {
            "planner_fpm_sampling": next(
                s.name
                for s in self.composites.sampling
                if (s.max_num_fpm_samples, s.fpm_sample_bucket_size) == fpm
            ),
            "planner_load_sensitivity": next(
                s.name
                for s in self.composites.sensitivity
                if (s.load_scaling_down_sensitivity, s.load_min_observations) == shrink
            ),
        }

    def _ratio(self, values: Values) -> float:
        knob = self.knobs.kv_load
        assert knob is not None
        if knob.parameter is None:
            return knob.low
        ratio = values.get("kv_load_ratio")
        if not isinstance(ratio, int | float) or not knob.low <= ratio <= knob.high:
            raise ValueError(f"kv_load_ratio: {ratio!r} is not in [{knob.low}, {knob.high}]")
        return float(ratio)

    def _engine(self, role: Role, backend: Backend, shape: ParallelShape, values: Values) -> EngineSettings:
        """The engine of a role, without settings that such a worker has not."""
        settings = {**self.pins[role], **self._searched(Holder.ENGINE, values, role)}
        for knob, arg in _LIMITED:
            if knob.role == role and not arg.fits(backend, shape):
                settings.pop(knob.places[0].name, None)
        return made(EngineSettings, settings, UNSET)

    def _searched(self, holder: Holder, values: Values, role: Role | None = None) -> dict[str, Scalar]:
        """The settings of a part of the sample that the study decides."""
        menus = self.knobs.menus
        return {
            knob.places[0].name: knob.typed(value_of(menus[knob.name], values))
            for knob in _PLACED[holder]
            if knob.role == role and knob.name in menus
        }

    def _planner(self, values: Values) -> PlannerSettings:
        policy = self._entry(self.composites.policies, "planner_scaling_policy", values)
        planner = planner_settings(
            policy,
            self._entry(self.composites.sampling, "planner_fpm_sampling", values),
            self._entry(self.composites.sensitivity, "planner_load_sensitivity", values),
            self.predictors,
        )
        return replace(planner, engine_model=self.engine_model and planner.scaling is not None)

    def _entry(self, entries: tuple[T, ...], knob: str, values: Values) -> T:
        name = value_of(self.knobs.menus[knob], values)
        return next(entry for entry in entries if entry.name == name)


def predictor_settings(spec: PredictorSpec) -> PredictorSettings:
    """A forecaster of the sub-sweep as a sample carries it: its family's fields only, defaults filled in."""
    fields = {name: value for name, value in spec.planner_fields().items() if name != "load_predictor"}
    return PredictorSettings(cast(Family, spec.load_predictor), **fields)  # type: ignore[arg-type]


def planner_settings(
    policy: ScalingPolicy,
    fpm: FpmSampling,
    sensitivity: LoadSensitivity,
    predictors: Mapping[int, PredictorSettings],
) -> PlannerSettings:
    """What a candidate tells the planner; scaling fields only when a loop runs, a forecaster only under
    throughput scaling, the one of that policy's interval (seconds)."""
    scaling = None
    if not policy.is_static:
        interval = policy.throughput_adjustment_interval_seconds
        predictor = predictors.get(interval, CONSTANT_LAST) if policy.enable_throughput_scaling else None
        scaling = ScalingSettings(
            throughput_adjustment_interval_seconds=interval,
            load_adjustment_interval_seconds=policy.load_adjustment_interval_seconds,
            max_num_fpm_samples=fpm.max_num_fpm_samples,
            fpm_sample_bucket_size=fpm.fpm_sample_bucket_size,
            load_scaling_down_sensitivity=sensitivity.load_scaling_down_sensitivity,
            load_min_observations=sensitivity.load_min_observations,
            predictor=predictor,
        )
    return PlannerSettings(
        policy=policy.name,
        enable_throughput_scaling=policy.enable_throughput_scaling,
        enable_load_scaling=policy.enable_load_scaling,
        scaling=scaling,
    )
