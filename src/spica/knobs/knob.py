"""One row of the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spica.deployment.sample import Backend, Sample, Scalar
from spica.deployment.shapes import Role
from spica.knobs.bindings import EngineArg, Files, Inert, Place, Repin, Replay, Search
from spica.knobs.setting import Choice, Setting, ValueType
from spica.knobs.when import Conditions, When


class KnobKind(StrEnum):
    """How a knob is searched: a list whose entries are choices, a fixed value, named bundles, or shapes."""

    ATOMIC = "atomic"
    PINNED = "pinned"
    COMPOSITE = "composite"
    PARALLEL = "parallel"


@dataclass(frozen=True, slots=True)
class Derived:
    """What a sample holds besides the knobs: it follows from them, from the workload or from the machine.

    ``unkeyed`` says why it is no part of a candidate's identity, where it is none.
    """

    name: str
    lives: tuple[Place, ...]
    replay: Replay
    files: Files
    repin: Repin
    unkeyed: Inert | None = None


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting of the search space, and everything that is done with it.

    ``group`` is its section in the document, ``role`` the worker an engine knob belongs to. ``lives`` are the
    values of a sample that it decides. ``when`` says on which candidates it can act at all, ``rules`` the
    rules of ``deployment.canonical`` that show it inert on further ones. ``unset`` is the value that a
    setting without a field of its own has where nothing is said: it is not carried, and changes no key.
    """

    setting: Setting
    title: str
    kind: KnobKind
    group: str
    lives: tuple[Place, ...] | Inert
    search: Search | Inert
    replay: Replay
    files: Files
    repin: Repin
    when: When = When.ALWAYS
    rules: tuple[str, ...] = ()
    role: Role | None = None
    unset: Scalar = None

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def default(self) -> Any:
        return self.setting.default

    @property
    def choices(self) -> tuple[Choice, ...]:
        return self.setting.choices

    @property
    def searched(self) -> bool:
        """Whether the knob is a list, of which several entries can be searched."""
        return self.kind in (KnobKind.ATOMIC, KnobKind.COMPOSITE)

    @property
    def places(self) -> tuple[Place, ...]:
        return () if isinstance(self.lives, Inert) else self.lives

    @property
    def backends(self) -> tuple[Backend, ...]:
        """The backends it can act on."""
        return self.replay.backends if isinstance(self.replay, EngineArg) else ("vllm", "sglang", "trtllm")

    @property
    def carried(self) -> bool:
        """Whether it lives in ``more``, so that a sample may say nothing of it."""
        return any(place.carried for place in self.places)

    def objection(self, found: Conditions) -> str:
        """Why it cannot act on any such candidate; empty when it can."""
        return self.when.objection(found)

    def typed(self, value: Any) -> Scalar:
        """A value of a study or a configuration in the knob's own type; null stays."""
        if value is None:
            return None
        if self.setting.type is ValueType.INT:
            return int(value)
        if self.setting.type is ValueType.FLOAT:
            return float(value)
        found: Scalar = value
        return found

    def value(self, sample: Sample) -> Scalar:
        """The value of a knob with one place; ``unset`` where the sample carries none."""
        (place,) = self.places
        found = place.read(sample, self.role)
        return self.unset if found is None else found


def engine_settings(
    rows: Iterable[Knob | Derived], role: Role
) -> Iterator[tuple[Knob | Derived, EngineArg, Place]]:
    """The rows that are told to the engine of ``role``, each with its one place in a sample."""
    for row in rows:
        if not isinstance(row.replay, EngineArg) or role not in row.replay.roles:
            continue
        if isinstance(row, Knob) and row.role not in (None, role):
            continue
        assert not isinstance(row.lives, Inert), row.name
        yield row, row.replay, row.lives[0]
