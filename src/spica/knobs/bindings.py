"""What a row of the table may say of a setting: where it lives in a sample, how it reaches the replay, how
the deployment files say it, and how it is searched.

Each says either how, or ``Inert`` and why not; there is no third answer, and ``tests/knobs`` tries every one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeVar

from spica.deployment.sample import (
    Backend,
    Carried,
    Deployment,
    EngineSettings,
    KvManager,
    KvRouterSettings,
    Sample,
    Scalar,
)
from spica.deployment.shapes import ParallelShape, Role
from spica.optimize.protocol import Influence

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Inert:
    """Nothing is done with the setting here, for this reason."""

    reason: str

    def __post_init__(self) -> None:
        if not self.reason:
            raise ValueError("what is inert needs its reason")


class Holder(Enum):
    """The part of a sample that a setting lives in."""

    SAMPLE = "sample"
    DEPLOYMENT = "deployment"
    KV_MANAGER = "kv_manager"
    ENGINE = "engines"
    ROUTER = "router"
    PLANNER = "planner"
    SCALING = "planner.scaling"
    PREDICTOR = "planner.scaling.predictor"


_PARTS: Final[Mapping[Holder, type]] = MappingProxyType(
    {
        Holder.DEPLOYMENT: Deployment,
        Holder.KV_MANAGER: KvManager,
        Holder.ENGINE: EngineSettings,
        Holder.ROUTER: KvRouterSettings,
    }
)


@dataclass(frozen=True, slots=True)
class Place:
    """A value of a sample: a field of a part, or an entry of its ``more``."""

    holder: Holder
    name: str

    @property
    def carried(self) -> bool:
        """Whether it is an entry of ``more``."""
        return self.holder in _PARTS and self.name not in fields_of(_PARTS[self.holder])

    def read(self, sample: Sample, role: Role | None = None) -> Scalar:
        """The value; None where the part is not there, or carries nothing of that name."""
        part = part_of(sample, self.holder, role)
        if part is None:
            return None
        if self.name in fields_of(type(part)):
            value: Scalar = getattr(part, self.name)
            return value
        carried: Carried = part.more
        return dict(carried).get(self.name)

    def write(self, sample: Sample, value: Scalar, role: Role | None = None) -> Sample:
        """The sample with another value. Raises ValueError when the part is not there."""
        part = part_of(sample, self.holder, role)
        if part is None:
            raise ValueError(f"the sample has no {self.holder.value}")
        if self.name in fields_of(type(part)):
            changed = replace(part, **{self.name: value})
        else:
            changed = replace(part, more=carried({**dict(part.more), self.name: value}.items()))
        return _with_part(sample, self.holder, changed, role)


def fields_of(part: type) -> Mapping[str, object]:
    """The fields of a part's dataclass by name."""
    fields: Mapping[str, object] = part.__dataclass_fields__  # type: ignore[attr-defined]
    return fields


def carried(settings: Iterable[tuple[str, Scalar]]) -> Carried:
    """Settings as ``more`` holds them."""
    return tuple(sorted(settings))


def part_of(sample: Sample, holder: Holder, role: Role | None = None) -> Any:
    """The part of the sample, or None: no router under round robin, no such role."""
    if holder is Holder.SAMPLE:
        return sample
    if holder is Holder.ENGINE:
        return None if role is None else dict(sample.engines).get(role)
    part: Any = sample
    for name in holder.value.split("."):
        part = None if part is None else getattr(part, name)
    return part


def _with_part(sample: Sample, holder: Holder, part: Any, role: Role | None) -> Sample:
    if holder is Holder.SAMPLE:
        found: Sample = part
        return found
    if holder is Holder.ENGINE:
        return replace(sample, engines=tuple((r, part if r == role else e) for r, e in sample.engines))
    *outer, name = holder.value.split(".")
    if not outer:
        return replace(sample, **{name: part})
    above = Holder(".".join(outer))
    return _with_part(sample, above, replace(part_of(sample, above), **{name: part}), role)


def made(part: type[Part], settings: Mapping[str, Scalar], unset: Mapping[str, Scalar]) -> Part:
    """A part of a sample with these settings; one without a field is carried, unless it is ``unset``."""
    known = fields_of(part)
    own = {name: value for name, value in settings.items() if name in known}
    more = {n: v for n, v in settings.items() if n not in known and v != unset.get(n)}
    if more:
        own["more"] = carried(more.items())  # type: ignore[assignment]
    return part(**own)


@dataclass(frozen=True, slots=True)
class EngineArg:
    """Dotted paths in a role's engine arguments, ``paths`` for every backend, then each backend's own.

    A value of ``off`` is not passed. ``backends`` and ``roles`` are those it exists for; elsewhere the
    setting is left out of the candidate. So it is on workers without attention data parallelism when it acts
    only among ``ranks``.
    """

    paths: tuple[str, ...] = ()
    own: tuple[tuple[Backend, tuple[str, ...]], ...] = ()
    off: tuple[Scalar, ...] = (None,)
    roles: tuple[Role, ...] = ("agg", "prefill", "decode")
    backends: tuple[Backend, ...] = ("vllm", "sglang", "trtllm")
    ranks: bool = False

    def fits(self, backend: Backend, shape: ParallelShape) -> bool:
        """Whether a worker of that backend and shape has the setting."""
        return backend in self.backends and (shape.attention_dp > 1 or not self.ranks)

    def of(self, backend: Backend) -> tuple[str, ...]:
        return (*self.paths, *dict(self.own).get(backend, ()))


@dataclass(frozen=True, slots=True)
class RouterArg:
    """An argument of the runtime's ``KvRouterConfig``; not passed when unset."""

    name: str


@dataclass(frozen=True, slots=True)
class PlannerArg:
    """A field of the planner's ``PlannerConfig``, of candidates that scale; not passed when unset."""

    name: str


@dataclass(frozen=True, slots=True)
class CallArg:
    """An argument of the replay itself."""

    name: str


@dataclass(frozen=True, slots=True)
class ShapeArgs:
    """The shape of each role: what ``evaluate.engine_args`` and ``ship.workers`` make of it together."""


@dataclass(frozen=True, slots=True)
class PlannerFields:
    """A composite: each of its fields is a field of ``PlannerConfig``, in replay and files alike."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The setting is the frame that everything else stands in: which arguments or files there are at all."""

    told: str


Replay = EngineArg | RouterArg | PlannerArg | CallArg | ShapeArgs | PlannerFields | Structure | Inert


@dataclass(frozen=True, slots=True)
class Flag:
    """A worker's flag and the value after it; ``shared``: the attention ranks of a worker share the value, so
    that it is given times their number."""

    name: str
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Switch:
    """Flags without a value: one when true, one when false; None for neither."""

    on: str | None
    off: str | None


@dataclass(frozen=True, slots=True)
class Override:
    """A value in TensorRT-LLM's engine arguments (dotted path), by ``--override-engine-args``; given only
    when it differs from the engine's own ``default``."""

    path: str
    default: Scalar


@dataclass(frozen=True, slots=True)
class Flags:
    """How each backend's worker is told."""

    vllm: Flag | Switch | Inert
    sglang: Flag | Switch | Inert
    trtllm: Flag | Switch | Override | Inert

    def of(self, backend: str) -> Flag | Switch | Override | Inert:
        found: Flag | Switch | Override | Inert = getattr(self, backend)
        return found


@dataclass(frozen=True, slots=True)
class FrontendEnv:
    """An environment variable of ``dynamo.frontend``."""

    name: str


Files = Flags | FrontendEnv | PlannerArg | ShapeArgs | PlannerFields | Structure | Inert


@dataclass(frozen=True, slots=True)
class Search:
    """A dimension of the study when several values are listed.

    ``log``: by ratio, starting from the geometric centre. Else numbers start from ``start`` where that is
    listed, or from the lower middle; names from the first.
    """

    influence: Influence
    log: bool = False
    start: float | None = None


@dataclass(frozen=True, slots=True)
class Pinned:
    """A new sweep of the candidate takes the setting from the candidate."""


@dataclass(frozen=True, slots=True)
class PinnedAs:
    """The same, put together from several settings of the candidate."""

    told: str


Repin = Pinned | PinnedAs | Inert
