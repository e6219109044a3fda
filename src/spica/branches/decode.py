"""From a suggestion to the sample it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar, cast

from spica.branches.capacity import KvBook
from spica.branches.knobs import ROUTER_KNOBS, BranchKnobs, Composites, value_of
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
    ScalingSettings,
)
from spica.deployment.shapes import ParallelConfig, Role
from spica.optimize.protocol import Value, Values
from spica.planner.predictors import PredictorSpec
from spica.planner.presets import FpmSampling, LoadSensitivity, ScalingPolicy

Family = Literal["constant", "arima", "prophet", "kalman"]
T = TypeVar("T", ScalingPolicy, FpmSampling, LoadSensitivity)

#: The forecaster of an interval that no sub-sweep decided.
CONSTANT_LAST: Final = PredictorSettings("constant")


@dataclass(frozen=True, slots=True)
class RolePins:
    """The pinned engine settings of a role."""

    block_size: int
    gpu_memory_utilization: float
    enable_prefix_caching: bool


@dataclass(frozen=True, slots=True)
class SampleMaker:
    """Everything that turns the values of a suggestion into a sample; shared by all suggestions of a branch.

    ``isl`` and ``osl`` are needed for a KV-load workload only. ``concurrency`` is the fixed number in flight
    of the workload, if it has one. ``attention_formats`` maps a backend to the number format its prefill
    attention is timed in, where the data lacks the model's own.
    """

    deployment: Deployment
    kv_manager: KvManager
    pins: Mapping[Role, RolePins]
    knobs: BranchKnobs
    composites: Composites
    predictors: Mapping[int, PredictorSettings]
    projector: ParallelConfigProjector
    book: KvBook
    concurrency: int | None = None
    isl: int = 0
    osl: int = 0
    attention_formats: Mapping[str, str] = field(default_factory=dict)

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
        router_mode = cast(RouterMode, value_of(self.knobs.router_mode, values))
        sample = Sample(
            backend=backend,
            backend_version=self.book.facts[backend].version,
            deployment=self.deployment,
            kv_manager=self.kv_manager,
            parallel=projection.config,
            engines=self._engines(projection.config, values),
            router_mode=router_mode,
            router=self.router(values) if router_mode == "kv_router" else None,
            planner=self._planner(values),
            concurrency=self.concurrency,
            fmha_quant_mode=self.attention_formats.get(backend),
        )
        if self.knobs.kv_load is None:
            return sample, projection, ""
        load = kv_load(self._ratio(values), self.isl, self.osl, self.book.roles(sample))
        if isinstance(load, str):
            return sample, projection, load
        return replace(sample, concurrency=load.concurrency, kv_load=load), projection, ""

    def router(self, values: Values) -> KvRouterSettings:
        weights = {name: float(value_of(knob, values)) for name, knob in self.knobs.router.items()}
        return KvRouterSettings(**weights)

    def standing_router(self) -> KvRouterSettings | None:
        """The router settings that stand for all where none can act: every knob at its default."""
        if not self.knobs.router:
            return None
        return self.router({name: knob.default for name, knob in self.knobs.router.items()})

    def knob_values(self, sample: Sample) -> dict[str, Value]:
        """The study values that ``sample`` was made from; knobs it does not use are absent.

        Inverse of ``make`` but for the shape, and in one respect more: what is single-valued is given too.
        """
        values: dict[str, Value] = {"backend": sample.backend, "router_mode": sample.router_mode}
        for role, engine in sample.engines:
            values[f"{role}_max_num_batched_tokens"] = float(engine.max_num_batched_tokens)
            values[f"{role}_max_num_seqs"] = float(engine.max_num_seqs)
        if sample.router is not None:
            names = (n for n in ROUTER_KNOBS if n in self.knobs.router)
            values |= {name: getattr(sample.router, name) for name in names}
        values["planner_scaling_policy"] = sample.planner.policy
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

    def _engines(self, parallel: ParallelConfig, values: Values) -> tuple[tuple[Role, EngineSettings], ...]:
        return tuple((role, self._engine(role, values)) for role, _ in parallel.groups)

    def _engine(self, role: Role, values: Values) -> EngineSettings:
        pins = self.pins[role]
        batching = self.knobs.batching
        return EngineSettings(
            max_num_batched_tokens=int(value_of(batching[f"{role}_max_num_batched_tokens"], values)),
            max_num_seqs=int(value_of(batching[f"{role}_max_num_seqs"], values)),
            block_size=pins.block_size,
            gpu_memory_utilization=pins.gpu_memory_utilization,
            # A decode worker is handed its KV; it has no prompt of its own to find again.
            enable_prefix_caching=pins.enable_prefix_caching and role != "decode",
        )

    def _planner(self, values: Values) -> PlannerSettings:
        policy = _named(self.composites.policies, value_of(self.knobs.policy, values))
        return planner_settings(
            policy,
            _named(self.composites.sampling, value_of(self.knobs.fpm, values)),
            _named(self.composites.sensitivity, value_of(self.knobs.sensitivity, values)),
            self.predictors,
        )


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


def _named(entries: tuple[T, ...], name: Value) -> T:
    return next(entry for entry in entries if entry.name == name)
