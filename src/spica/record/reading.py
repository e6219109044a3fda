"""From the rows of a ledger to its records: everything that is read is checked before it is believed.

A run folder may come from anyone. What stands in it reaches a terminal, a page, a script that somebody
starts: names are held against what they can be, numbers against their range, and other text loses what a
terminal would obey.

Every function raises ValueError, KeyError or TypeError for what no sweep writes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Final

from spica.optimize.protocol import Value
from spica.record.records import RunIdentity, SuggestionRecord, TellRecord, TrialRecord
from spica.record.seal import Row
from spica.text import is_printable, printable
from spica.trial import Metrics, Outcome, ReplicaCount, TrialResult

_PACKAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
#: PEP 440 and what distributions add to it; or that there is none.
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*|not installed", re.ASCII)
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
#: Whole numbers beyond this are no count of anything here, and floats hold no more exactly.
_LARGEST: Final = 2**53


def identity_from_row(values: Mapping[object, object]) -> RunIdentity:
    """From the names and values of the ``run`` table."""
    text = {str(name): _text(value) for name, value in values.items()}
    versions = json.loads(text["versions"])
    for name, version in versions.items():
        if not _PACKAGE.fullmatch(_text(name)) or not _VERSION.fullmatch(_text(version)):
            raise ValueError(f"{printable(str(version))!r} is not a version of {printable(str(name))!r}")
    config = json.loads(text["config_json"])
    if not isinstance(config, dict):
        raise ValueError("the configuration is no mapping")
    shown = printable(text["config_text"], lines=True)
    return RunIdentity(shown, text["config_json"], int(text["seed"]), versions)


def suggestion_from_row(row: Row) -> tuple[tuple[str, int, int], SuggestionRecord]:
    """The branch, ask and round of a suggestion, and the suggestion."""
    branch, ask, round_, number, point, key, config, projection, infeasible, _ = row
    values = _point(_text(point))
    place = (_name(branch), _count(ask), _count(round_))
    _check_config(_text(config), _name(key))
    if projection:
        json.loads(_text(projection))
    reason = printable(_text(infeasible))
    record = SuggestionRecord(
        _count(number), values, _name(key), _text(config), printable(_text(projection)), reason
    )
    return place, record


def trial_from_row(row: Row) -> TrialRecord:
    key, repeat, outcome, reason, traceback, metrics, seconds, _, worker, pid = row
    result = TrialResult(
        Outcome(_text(outcome)),
        _text(reason),
        _metrics(metrics),
        _text(traceback),
        _real(seconds, least=0.0),
        None if worker is None else _count(worker),
        None if pid is None else _count(pid),
    )
    return TrialRecord(_name(key), result, _count(repeat))


def tell_from_row(row: Row) -> TellRecord:
    branch, suggestion, labels, hit, _ = row
    known = None if labels is None else tuple(_number(label) for label in json.loads(_text(labels)))
    return TellRecord(_name(branch), _count(suggestion), known, bool(_count(hit)))


def key_of(config: Mapping[str, object]) -> str:
    """The key of a candidate from its flat configuration, as ``Sample.key`` makes it."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _check_config(text: str, key: str) -> None:
    if not text:
        return
    config = json.loads(text)
    if not isinstance(config, dict):
        raise ValueError("a candidate's settings are no mapping")
    for name, value in config.items():
        if isinstance(value, str):
            if not is_printable(value):
                raise ValueError(f"{printable(name)} is {printable(value)!r}")
        elif value is not None and not isinstance(value, bool):
            _number(value, finite=True)
    if key_of(config) != key:
        raise ValueError("its settings are not those of its key")


def _metrics(text: object) -> Metrics | None:
    if text is None:
        return None
    data = json.loads(_text(text))
    summary = {_name(name): _number(value, least=0.0) for name, value in data["summary"].items()}
    ticks = data["planner_total_ticks"]
    replicas = tuple(
        ReplicaCount(_real(at, least=0.0), _count(prefill), _count(decode))
        for at, prefill, decode in data["replicas"]
    )
    return Metrics(summary, None if ticks is None else _count(ticks), replicas)


def _point(text: str) -> dict[str, Value]:
    data = json.loads(text)
    return {_text(n): v if isinstance(v, str) else _number(v, finite=True) for n, v in data.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _name(value: object) -> str:
    text = _text(value)
    if not _KEY.fullmatch(text):
        raise ValueError(f"{printable(text)!r} is not a name that a sweep gives")
    return text


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{value!r} is not a count")
    return value


def _real(value: object, *, least: float) -> float:
    return float(_number(value, least=least, finite=True))


def _number(value: object, *, least: float = -math.inf, finite: bool = False) -> float:
    """A number of at least ``least``; one that is not finite passes unless ``finite`` is asked for."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    if value < least or (finite and not math.isfinite(value)):
        raise ValueError(f"{value!r} is out of range")
    return value
