"""Whether a table of knobs is complete: everything that its rows say happens is tried, and happens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from branch_fakes import config as small_config
from branch_fakes import plan

from spica.branches import BranchPlan
from spica.config.load import config_from_mapping, dump_resolved
from spica.deployment.sample import (
    Backend,
    Deployment,
    EngineSettings,
    KvLoad,
    KvManager,
    KvRouterSettings,
    PlannerSettings,
    PredictorSettings,
    Sample,
    Scalar,
    ScalingSettings,
)
from spica.deployment.shapes import AggConfig, DisaggConfig, Mode, ParallelShape, Role, WorkerGroup
from spica.errors import ConfigError
from spica.evaluate.engine_args import engine_args
from spica.evaluate.planner_config import planner_config
from spica.evaluate.router import router_arguments
from spica.knobs.bindings import EngineArg, Holder, Inert, Place, Search, Structure, fields_of, part_of
from spica.knobs.knob import Derived, Knob
from spica.knobs.when import When
from spica.ship.manifests import DeployContext, graph_yaml
from spica.ship.repin import repinned
from spica.trial import Sla

BACKENDS: tuple[Backend, ...] = ("vllm", "sglang", "trtllm")
MODES: tuple[Mode, ...] = ("agg", "disagg")
PREDICTORS = (
    PredictorSettings("prophet", True, prophet_window_size=20),
    PredictorSettings("kalman", False, None, 1.5, 0.2, 9.0, 4),
)
CASES: tuple[tuple[Backend, Mode, PredictorSettings], ...] = (
    *((backend, mode, PREDICTORS[0]) for backend in BACKENDS for mode in MODES),
    ("vllm", "agg", PREDICTORS[1]),
)
ORIGINAL = dump_resolved(
    config_from_mapping(
        {
            "search_space": {"model_name": "Qwen/Qwen3-32B", "hardware_sku": "h200_sxm", "gpu_budget": 8},
            "workload": {"isl": 3000, "osl": 300, "kv_load_ratio": 0.5, "num_request_ratio": 4},
            "goal": {"target": "goodput", "sla": {"ttft_ms": 2000, "itl_ms": 30}},
        }
    )
)
#: Parts of a sample that are told apart further, or are one value.
NESTED = {"deployment", "kv_manager", "engines", "router", "planner", "scaling", "predictor", "more"}
SHAPE = ParallelShape(tp=2, attention_dp=2, moe_tp=2, moe_ep=2)


def everything(
    backend: Backend, mode: Mode, predictor: PredictorSettings, rows: Mapping[str, Knob]
) -> Sample:
    """A candidate in which every setting is there and can act: router, offload, speculation, planner; what is
    carried has a value of its own."""
    group = WorkerGroup(SHAPE, 2)
    engine = EngineSettings(8192, 256)
    roles: tuple[Role, ...] = ("agg",) if mode == "agg" else ("prefill", "decode")
    sample = Sample(
        backend=backend,
        backend_version="1.0",
        deployment=Deployment("Qwen/Qwen3-32B", "h200_sxm", 32, 4, 1, 30_000, 20.0, 2, 30_000),
        kv_manager=KvManager(2000, 262_144, 50.0, 40.0, 8),
        parallel=AggConfig(group) if mode == "agg" else DisaggConfig(group, group),
        engines=tuple((role, engine) for role in roles),
        router_mode="kv_router",
        router=KvRouterSettings(0.5, 2.0, 0.2, 0.5, 0.5),
        planner=PlannerSettings(
            "hybrid_180_5", True, True, ScalingSettings(180, 5, 64, 16, 80, 5, predictor)
        ),
        concurrency=64,
        kv_load=KvLoad(0.5, 64, 128, 10_000, tuple((role, 5000) for role in roles)),
        fmha_quant_mode="float16",
        moe_quant_mode="w4a16_mxfp4",
    )
    for knob in rows.values():
        if knob.carried and knob.role in (None, *roles) and backend in knob.backends:
            sample = knob.places[0].write(sample, knob.typed(_other(knob, knob.unset)), knob.role)
    return sample


def _other(knob: Knob, value: Scalar) -> Any:
    """Another legal value than ``value``."""
    if knob.choices:
        return next(choice for choice in knob.choices if choice != value)
    return _changed(value if value is not None else 1)


def _changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2
        case "vllm" | "sglang" | "trtllm":
            return BACKENDS[(BACKENDS.index(value) + 1) % 3]
        case str():
            return f"{value}x"
        case KvLoad():
            return replace(value, kv_load_ratio=0.25)
        case AggConfig():
            return AggConfig(replace(value.workers, replicas=3))
        case DisaggConfig():
            return replace(value, decode=replace(value.decode, replicas=3))
    raise AssertionError(value)


def sinks(sample: Sample) -> dict[str, object]:
    """Where a setting can arrive, by what arrives there."""
    sla = Sla(ttft_ms=1500.0, itl_ms=25.0)
    context = DeployContext("1.6.1", 8, "sla", 1500.0, 25.0)
    flat = sample.config()
    return {
        "key": sample.key(),
        "replay": (
            sample.router_mode,
            [(role, group.replicas, engine_args(sample, role)) for role, group in sample.parallel.groups],
            router_arguments(sample) if sample.router else None,
            planner_config(sample, "sla", sla),
        ),
        "files": graph_yaml(flat, context, "x"),
        "repin": repinned(ORIGINAL, flat),
    }


@dataclass(frozen=True)
class Leaf:
    """One value of a sample."""

    place: Place
    role: Role | None

    def __str__(self) -> str:
        return f"{self.role or self.place.holder.value}.{self.place.name}"


def leaves(sample: Sample) -> Iterator[Leaf]:
    """Every value of the sample that is not made of others."""
    for holder in Holder:
        roles = [role for role, _ in sample.engines] if holder is Holder.ENGINE else [None]
        for role in roles:
            part = part_of(sample, holder, role)
            if part is None:
                continue
            names = [name for name in fields_of(type(part)) if name not in NESTED]
            names += dict(getattr(part, "more", ()))
            yield from (Leaf(Place(holder, name), role) for name in names)


def _owners(leaf: Leaf, rows: Iterable[Knob | Derived]) -> list[Knob | Derived]:
    """The rows that claim a value."""
    return [
        row
        for row in rows
        if not isinstance(row.lives, Inert)
        and leaf.place in row.lives
        and (not isinstance(row, Knob) or row.role == leaf.role)
    ]


def gaps(rows: Mapping[str, Knob], derived: Iterable[Derived]) -> list[str]:
    """Everything that is forgotten, or happens against what a row says; empty for a complete table."""
    if unsaid := [gap for knob in rows.values() for gap in _unsaid(knob)]:
        return unsaid
    found = [gap for knob in rows.values() for gap in _unsearched(knob)]
    seen: set[tuple[str, Place]] = set()
    for backend, mode, predictor in CASES:
        sample = everything(backend, mode, predictor, rows)
        before = sinks(sample)
        for leaf in leaves(sample):
            owners = _owners(leaf, (*rows.values(), *derived))
            if leaf.place.read(sample, leaf.role) is None:
                continue  # a field of another forecaster
            if len(owners) != 1:
                found.append(f"{leaf}: {len(owners)} rows say that it is theirs")
                continue
            seen.add((owners[0].name, leaf.place))
            wrong = _untrue(sample, before, leaf, owners[0])
            found += [f"{leaf} ({owners[0].name}): {gap}" for gap in wrong]
    claimed = {(row.name, place) for row in rows.values() for place in row.places}
    found += [f"{name}: no sample has its {place.name}" for name, place in sorted(claimed - seen, key=str)]
    return list(dict.fromkeys(found))


def _with_another(sample: Sample, leaf: Leaf, row: Knob | Derived) -> Sample:
    """The sample with another value of ``leaf``, and of what must go with it."""
    if leaf.place.name == "router_mode":
        return replace(sample, router_mode="round_robin", router=None)
    value = leaf.place.read(sample, leaf.role)
    new = _other(row, value) if isinstance(row, Knob) and row.carried else _changed(value)
    other = leaf.place.write(sample, new, leaf.role)
    if leaf.place.name == "concurrency" and sample.kv_load is not None:
        return replace(other, kv_load=replace(sample.kv_load, concurrency=new))
    if row.name == "planner_scaling_policy":  # a policy of one's own is named after its fields
        assert isinstance(row, Knob)
        fields = {place.name: place.read(other) for place in row.places}
        return Place(Holder.PLANNER, "policy").write(other, json.dumps(fields, sort_keys=True))
    return other


def _untrue(sample: Sample, before: Mapping[str, object], leaf: Leaf, row: Knob | Derived) -> Iterator[str]:
    """What does not happen though the row says so, or happens though it says not, when the value changes."""
    after = sinks(_with_another(sample, leaf, row))
    keyed: object = row.unkeyed if isinstance(row, Derived) and row.unkeyed else "always"
    for sink, said in (
        ("key", keyed),
        ("replay", row.replay),
        ("files", row.files),
        ("repin", row.repin),
    ):
        if sink == "replay" and isinstance(said, EngineArg) and leaf.role and leaf.role not in said.roles:
            continue
        changes = before[sink] != after[sink]
        inert = _inert(said, sink, sample.backend)
        if changes and inert:
            yield f"the {sink} changes, and the row says it does not"
        if not changes and not inert:
            yield f"the {sink} does not change, and no reason is given"


def _inert(said: object, sink: str, backend: Backend) -> bool:
    of = getattr(said, "of", None)
    if sink == "files" and of is not None:
        said = of(backend)
    return isinstance(said, Inert)


def _unsaid(knob: Knob) -> Iterator[str]:
    """Rows that say nothing, or that rank what cannot differ."""
    if knob.lives == ():
        yield f"{knob.name}: it lives nowhere in a sample, and no reason is given"
    if isinstance(knob.lives, Inert):
        for name, said in (("replay", knob.replay), ("files", knob.files)):
            if not isinstance(said, Inert | Structure):
                yield f"{knob.name}: it lives in no sample, and yet in the {name}"
    if isinstance(knob.search, Search) and isinstance(knob.replay, Inert):
        yield f"{knob.name}: it is searched, and changes no replay"
    if not knob.title or not knob.setting.meaning:
        yield f"{knob.name}: it has no title or no meaning"


#: What makes a knob act, for each condition.
ACTING: dict[When, dict[str, object]] = {
    When.KV_ROUTER: {"router_mode": ["kv_router"]},
    When.KV_ROUTER_OFFLOAD: {
        "router_mode": ["kv_router"],
        "num_g2_blocks": 10,
        "kv_bytes_per_token": 65536,
    },
    When.OFFLOAD: {"num_g2_blocks": 10, "kv_bytes_per_token": 65536},
    When.DISAGG: {"deployment_mode": ["disagg"]},
    When.SCALING: {"planner_scaling_policy": ["load_180_5"]},
}


def _space(knob: Knob, acting: dict[str, object], values: list[object]) -> BranchPlan:
    space: dict[str, object] = {"backend": [knob.backends[0]], **acting, knob.name: values}
    return plan(small_config(space, goal=None))


def _unsearched(knob: Knob) -> Iterator[str]:
    """A listed knob is a dimension where it acts, and else told among what is not searched."""
    values: list[object] = list(knob.choices)
    if not isinstance(knob.search, Search) or len(values) < 2:
        return
    if knob.name == "planner_scaling_policy":
        values = ["disabled", "load_180_5"]
    try:
        made = _space(knob, ACTING.get(knob.when, {}), values)
    except ConfigError as error:
        yield f"{knob.name}: the schema refuses it: {error}"
        return
    if not any(knob.name == p.name for branch in made.branches for p in branch.parameters):
        yield f"{knob.name}: several values are listed, and it is no dimension"
    if knob.when in (When.ALWAYS, When.AGG, When.DISAGG):
        return
    dropped = [d.what for d in _space(knob, {}, values).dropped]
    if knob.name not in dropped:
        yield f"{knob.name}: it cannot act, and is not told among what is not searched"
