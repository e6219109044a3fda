"""The rows of a ledger as frozen values, and their JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spica.optimize.protocol import Values
from spica.trial import Metrics, TrialResult

#: Settings that decide what is measured and how it is scored, for every candidate alike.
_DECISIVE: Final = (
    "search_space.model_name:",
    "search_space.hardware_sku:",
    "workload.",
    "goal.",
    "trace_sha256:",
)


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What makes two runs the same run: equal config, seed and versions give equal suggestions.

    ``config_text`` is the file as given (kept for people, not compared), ``config_json`` the resolved config
    without settings that change no result (jobs, output folder, time budget), ``versions`` package ->
    version.
    """

    config_text: str
    config_json: str
    seed: int
    versions: Mapping[str, str]

    def differences(self, now: RunIdentity) -> tuple[str, ...]:
        """One line per difference between the recorded run (self) and ``now``; empty when they are the
        same."""
        lines = [] if self.seed == now.seed else [f"seed: was {self.seed}, is {now.seed}"]
        then_config = _flatten(json.loads(self.config_json))
        lines += _changes("", then_config, _flatten(json.loads(now.config_json)))
        lines += _changes("version of ", dict(self.versions), dict(now.versions))
        return tuple(lines)

    def incomparable(self, now: RunIdentity) -> tuple[str, ...]:
        """Those of the differences after which a number means something else."""
        return tuple(line for line in self.differences(now) if line.startswith(_DECISIVE))


def _flatten(value: object, prefix: str = "") -> dict[str, str]:
    """Dotted keys of nested JSON objects, leaves as JSON text."""
    if isinstance(value, dict) and value:
        flat: dict[str, str] = {}
        for key, item in value.items():
            flat |= _flatten(item, f"{prefix}.{key}" if prefix else str(key))
        return flat
    return {prefix: json.dumps(value)}


def _changes(label: str, then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"{label}{key}: was {then.get(key, 'not set')}, is {now.get(key, 'not set')}"
        for key in sorted(then.keys() | now.keys())
        if then.get(key) != now.get(key)
    ]


@dataclass(frozen=True, slots=True)
class SuggestionRecord:
    """One suggestion and what it decoded to. ``infeasible`` is the reason when it needs no replay.

    ``config`` and ``projection`` are JSON texts, empty when there is none.
    """

    id: int
    values: Values
    key: str
    config: str = ""
    projection: str = ""
    infeasible: str = ""


@dataclass(frozen=True, slots=True)
class AskRecord:
    """One ask of a branch's study: its place among the branch's asks, its round (from 0), the answer."""

    branch: str
    index: int
    round: int
    suggestions: tuple[SuggestionRecord, ...]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One finished measurement. ``repeat`` 0 is the search's, 1.. are confirming ones."""

    key: str
    result: TrialResult
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class TellRecord:
    """What a suggestion was told to be worth; ``labels`` None when it could not be scored."""

    branch: str
    suggestion: int
    labels: tuple[float, ...] | None
    cache_hit: bool = False


def to_json(value: object) -> str:
    """Compact JSON with exact floats; frozen dataclasses become objects."""
    return json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form in the ledger")


def metrics_to_json(metrics: Metrics | None) -> str | None:
    if metrics is None:
        return None
    return to_json(
        {
            "summary": dict(metrics.summary),
            "planner_total_ticks": metrics.planner_total_ticks,
            "replicas": [[r.at_s, r.prefill, r.decode] for r in metrics.replicas],
        }
    )
