"""Reading a configuration: a YAML file, ``--set`` overrides, a mapping."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from spica.config.block import NO_SUCH_SETTING, Notices
from spica.config.dump import dump_resolved, dump_yaml
from spica.config.model import SmartSearchConfig
from spica.config.settings import SETTINGS
from spica.config.values import shown
from spica.config.yaml_tree import STDIN, STDIN_SHOWN, YamlTree, parse, parse_value, read_text
from spica.errors import ConfigError, InputError, Problem, nearest

__all__ = ["LoadedConfig", "config_from_mapping", "dump_resolved", "dump_yaml", "load_config", "load_text"]


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration with its file, what was accepted with a change, and the text it was read from."""

    config: SmartSearchConfig
    path: Path
    warnings: tuple[str, ...]
    text: str
    tree: YamlTree
    overridden: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def locating(self) -> Iterator[None]:
        """While inside, an InputError that names a setting but no place gets its ``file:line`` or ``--set``;
        one that speaks of an override's setting or value names that override too.

        For what shows only when the facts are read: unknown models and SKUs, pins, lengths, traces.
        """
        try:
            yield
        except InputError as error:
            located = [self._placed(problem) for problem in error.problems]
            if located == list(error.problems):
                raise
            raise type(error)(located) from error

    def _placed(self, problem: Problem) -> Problem:
        if problem.where or problem.key.partition(".")[0] not in _TOP:
            return _with_overrides(problem, self.overridden) if problem.where else problem
        return _located(problem, self.tree, self.overridden)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Read and check a YAML file, with ``block.key=value`` overrides applied to it (values are YAML). The
    path ``-`` is the standard input.

    A relative ``trace_path`` is resolved against the folder of the file (in an override, and for the standard
    input: the current folder).
    Raises ConfigError with every problem, each with file and line, or ``--set`` for an override.
    """
    path = Path(path)
    return load_text(read_text(path), path, overrides)


def load_text(text: str, path: Path, overrides: Sequence[str] = ()) -> LoadedConfig:
    """As `load_config`, for a text that stands in ``path``, or is to stand there."""
    source = STDIN_SHOWN if str(path) == STDIN else str(path)
    tree = parse(text, source)
    if not isinstance(tree.value, dict):
        what = "a list" if isinstance(tree.value, list) else shown(tree.value)
        message = f"the file holds {what}, not the blocks of a configuration"
        raise ConfigError(Problem(message, where=tree.where(""), allowed=", ".join(_TOP)))
    raw, given, problems = _overridden(tree.value, overrides)
    problems = [*tree.problems, *problems]
    told = {problem.key for problem in problems}
    notices = Notices()
    try:
        config = SmartSearchConfig.model_validate(_with_trace_path(raw, path.parent), context=notices)
    except ConfigError as error:
        # What YAML could not read is null below; saying so again would only confuse.
        problems += [
            _located(problem, tree, given)
            for problem in error.problems
            if problem.key not in told or problem.message == NO_SUCH_SETTING
        ]
    if problems:
        raise ConfigError(_capped(problems, source))
    warnings = tuple(str(_located(notice, tree, given)) for notice in notices.found)
    return LoadedConfig(config, path, warnings, text, tree, given)


def _capped(problems: Sequence[Problem], source: str) -> Sequence[Problem]:
    if len(problems) <= _MOST_PROBLEMS:
        return problems
    more = Problem(f"and {len(problems) - _MOST_PROBLEMS} more problems", where=source)
    return [*problems[:_MOST_PROBLEMS], more]


def config_from_mapping(mapping: Mapping[str, object]) -> SmartSearchConfig:
    """A configuration from Python values of the YAML's form. Raises ConfigError with every problem.

    A relative ``trace_path`` is left relative to the current folder. What is accepted with a change
    (duplicate entries) is told as a ``ConfigWarning``.
    """
    return SmartSearchConfig.model_validate(mapping)


_MOST_PROBLEMS: Final = 50
_TOP: Final = ("search_space", "workload", "goal", "sweep")


def _with_trace_path(raw: dict[str, object], folder: Path) -> dict[str, object]:
    workload = raw.get("workload")
    trace = workload.get("trace_path") if isinstance(workload, dict) else None
    if not isinstance(workload, dict) or not isinstance(trace, str) or not trace.strip() or "\0" in trace:
        return raw
    return {**raw, "workload": {**workload, "trace_path": str((folder / trace).absolute())}}


# --- overrides -------------------------------------------------------------------------------------------

_SET: Final = "--set"
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def _overridden(
    value: dict[str, object], overrides: Sequence[str]
) -> tuple[dict[str, object], dict[str, str], list[Problem]]:
    """The mapping with the overrides applied, what was set by key, and what is wrong with it."""
    raw = copy.deepcopy(value)
    given: dict[str, str] = {}
    problems: list[Problem] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not _KEY.fullmatch(key):
            problems.append(
                Problem(
                    "an override is written block.key=value",
                    where=f"{_SET} {override}",
                    allowed="for example search_space.gpu_budget=8",
                )
            )
            continue
        problem = _unknown_key(key)
        try:
            new = parse_value(text, _SET) if text.strip() else None
        except ConfigError as error:
            problems.extend(replace(p, key=key, where=_SET) for p in error.problems)
            continue
        problem = problem or _put(raw, key, new)
        if problem:
            problems.append(problem)
        given[key] = text
    workload = raw.get("workload")
    if given.keys() & {"workload", "workload.trace_path"} and isinstance(workload, dict):
        trace = workload.get("trace_path")
        if isinstance(trace, str) and trace.strip() and "\0" not in trace:
            workload["trace_path"] = str(Path(trace).absolute())
    return raw, given, problems


def _unknown_key(key: str) -> Problem | None:
    block, _, name = key.rpartition(".")
    if not block:
        if name in SETTINGS:
            return None
        homes = [b for b, settings in SETTINGS.items() if name in settings]
        near = f"{homes[0]}.{name}" if homes else (nearest(name, _TOP) or "")
        return Problem("no such setting", key, _SET, allowed="a block and a key: block.key", suggestion=near)
    if block in SETTINGS and name in SETTINGS[block]:
        return None
    every = [f"{b}.{n}" for b, settings in SETTINGS.items() for n in settings]
    close = nearest(name, SETTINGS[block]) if block in SETTINGS else None
    suggestion = f"{block}.{close}" if close else (nearest(key, every) or "")
    return Problem("no such setting", key, _SET, suggestion=suggestion)


def _put(raw: dict[str, object], key: str, value: object) -> Problem | None:
    *blocks, name = key.split(".")
    inner = raw
    for block in blocks:
        below = inner.get(block)
        if below is None:
            below = inner[block] = {}
        if not isinstance(below, dict):
            return Problem(f"{block} is not a block of settings in the file", key, _SET)
        inner = below
    inner[name] = value
    return None


def _located(problem: Problem, tree: YamlTree, given: Mapping[str, str]) -> Problem:
    """The problem with ``file:line``, or with the override that caused it."""
    key = problem.key
    while key:
        if key in given:
            return replace(problem, where=_SET)
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return _with_overrides(replace(problem, where=tree.where(problem.key)), given)


_WORD: Final = re.compile(r"\w[\w./-]*")


def _with_overrides(problem: Problem, given: Mapping[str, str]) -> Problem:
    """The problem, whose place is in a file, with the overrides it may come from: those of settings inside
    the one it is about, and those whose setting or value it speaks of."""
    named = {word.rstrip(".") for word in _WORD.findall(problem.message)}
    told = named | {word.rstrip(".") for word in _WORD.findall(f"{problem.allowed} {problem.remedy}")}

    def concerns(key: str, text: str) -> bool:
        inside = bool(problem.key) and key.startswith(f"{problem.key}.")
        value = text.strip(" '\"")
        return (
            inside
            or not told.isdisjoint((key, key.rpartition(".")[2]))
            or (value[:1].isalpha() and value in named)
        )

    concerned = "".join(f" and {_SET} {key}" for key, text in given.items() if concerns(key, text))
    return replace(problem, where=problem.where + concerned)
