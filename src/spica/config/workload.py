"""The ``workload`` block: the traffic every candidate is replayed against."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar, Literal

from spica.config.block import Block, Converted, Rule
from spica.config.settings import SETTINGS, default
from spica.config.values import check_scalar, shown
from spica.errors import Problem
from spica.knobs.setting import Setting

OverContext = Literal["refuse", "drop"]


class WorkloadShape(StrEnum):
    """How load is offered. ``trace`` and ``request_rate`` are open loops, the others closed ones."""

    TRACE = "trace"
    TRACE_CAPPED = "trace_capped"
    REQUEST_RATE = "request_rate"
    CONCURRENCY = "concurrency"
    KV_LOAD = "kv_load"


#: The fields that set a synthetic load; at most one of them.
LOADS = ("request_rate", "concurrency", "kv_load_ratio")
#: Every field that a trace makes meaningless.
SYNTHETIC_FIELDS = (
    "isl",
    "osl",
    *LOADS,
    "num_request_ratio",
    "shared_prefix_ratio",
    "num_prefix_groups",
    "turns_per_session",
    "inter_turn_delay_ms",
)
#: The fields that only a trace gives a meaning.
TRACE_FIELDS = ("trace_format", "over_context", "arrival_speedup_ratio", "replay_concurrency")


def _one_load(workload: Workload) -> Iterator[Problem]:
    given = [name for name in LOADS if getattr(workload, name) is not None]
    if workload.trace_path is None and len(given) > 1:
        yield Problem(
            f"only one load can be set, not {' and '.join(given)}",
            f"workload.{given[-1]}",
            allowed=f"one of {', '.join(LOADS)}",
        )


def _trace(workload: Workload) -> Iterator[Problem]:
    if workload.trace_path is None:
        return
    for name in SYNTHETIC_FIELDS:
        if getattr(workload, name) != default("workload", name):
            yield Problem(
                "a trace brings its own requests, so this cannot be set with trace_path",
                f"workload.{name}",
                allowed=f"with trace_path: {', '.join(TRACE_FIELDS)}",
                remedy="remove it, or remove trace_path for synthetic traffic",
            )


def _synthetic(workload: Workload) -> Iterator[Problem]:
    if workload.trace_path is not None:
        return
    for name in ("isl", "osl", "num_request_ratio"):
        if getattr(workload, name) is None:
            yield Problem(
                "synthetic traffic needs it",
                f"workload.{name}",
                allowed=SETTINGS["workload"][name].allowed,
                remedy=f"set {name}, or trace_path to replay a trace",
            )
    for name in TRACE_FIELDS:
        if getattr(workload, name) != default("workload", name):
            yield Problem(
                "it belongs to a trace, but trace_path is not set",
                f"workload.{name}",
                remedy="set trace_path, or remove it",
            )


def _prefixes(workload: Workload) -> Iterator[Problem]:
    ratio, groups = workload.shared_prefix_ratio, workload.num_prefix_groups
    if ratio > 0 and groups == 0:
        yield Problem(
            f"shared_prefix_ratio is {ratio:g}, but there is no prefix group",
            "workload.num_prefix_groups",
            allowed="at least 1 when shared_prefix_ratio is above 0",
        )


class Workload(Block):
    """Exactly one load shape. Lengths in tokens, delays in milliseconds, rates per second.

    ``trace_path`` is absolute after loading from a file. ``kv_load_ratio`` is one ratio or ``(min, max)``.
    Raises ConfigError.
    """

    path: ClassVar[str] = "workload"
    rules = (
        Rule((*LOADS, "trace_path"), _one_load),
        Rule(("trace_path",), _trace),
        Rule(("isl", "osl", "num_request_ratio", "trace_path", *TRACE_FIELDS), _synthetic),
        Rule(("shared_prefix_ratio", "num_prefix_groups"), _prefixes),
    )

    isl: int | None = None
    osl: int | None = None
    concurrency: int | None = None
    kv_load_ratio: float | tuple[float, float] | None = None
    request_rate: float | None = None
    num_request_ratio: float | None = None
    shared_prefix_ratio: float = default("workload", "shared_prefix_ratio")
    num_prefix_groups: int = default("workload", "num_prefix_groups")
    turns_per_session: int = default("workload", "turns_per_session")
    inter_turn_delay_ms: float = default("workload", "inter_turn_delay_ms")
    trace_path: str | None = None
    trace_format: str = default("workload", "trace_format")
    over_context: OverContext = default("workload", "over_context")
    arrival_speedup_ratio: float = default("workload", "arrival_speedup_ratio")
    replay_concurrency: int | None = None

    @classmethod
    def convert(cls, setting: Setting, value: object, key: str, notices: list[Problem]) -> Converted | None:
        if setting.name == "kv_load_ratio" and isinstance(value, (list, tuple)):
            return _ratio_range(setting, value, key)
        return None

    @property
    def is_trace(self) -> bool:
        return self.trace_path is not None

    @property
    def has_load(self) -> bool:
        """Whether the traffic is complete; a synthetic Pareto goal may leave the load to its default."""
        return self.is_trace or any(getattr(self, name) is not None for name in LOADS)

    @property
    def shape(self) -> WorkloadShape:
        """The load shape, told from the field that is set."""
        if self.trace_path is not None:
            return WorkloadShape.TRACE if self.replay_concurrency is None else WorkloadShape.TRACE_CAPPED
        if self.request_rate is not None:
            return WorkloadShape.REQUEST_RATE
        return WorkloadShape.CONCURRENCY if self.concurrency is not None else WorkloadShape.KV_LOAD

    @property
    def kv_load_range(self) -> tuple[float, float] | None:
        """The range of a searched KV load, else None."""
        return self.kv_load_ratio if isinstance(self.kv_load_ratio, tuple) else None


def _ratio_range(setting: Setting, value: list[object] | tuple[object, ...], key: str) -> Converted:
    allowed = "a number, or [min, max] under a pareto goal"
    if len(value) != 2:
        return value, (Problem(f"{shown(value)} is not a range", key, allowed=allowed),)
    ends: list[float] = []
    problems: list[Problem] = []
    for index, end in enumerate(value):
        checked, problem = check_scalar(setting, end, f"{key}[{index}]")
        if problem:
            problems.append(problem)
        elif isinstance(checked, float):
            ends.append(checked)
    if not problems and not ends[0] < ends[1]:
        problems.append(Problem(f"{shown(value)} is empty: min is not below max", key, allowed=allowed))
    return (value, tuple(problems)) if problems else ((ends[0], ends[1]), ())
