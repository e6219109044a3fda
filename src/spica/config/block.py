"""What the blocks of a configuration have in common: checking against the settings, all problems at once.

A block is a frozen pydantic model. Its fields are checked against ``SETTINGS`` before pydantic sees them, so
that every message names the key, what was given and what is allowed; the rules between fields run afterwards
over the fields that are sound.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationInfo, model_validator

from spica.config.settings import SETTINGS
from spica.config.values import check_list, check_scalar, shown
from spica.errors import ConfigError, Problem, nearest
from spica.knobs.setting import Setting, ValueType


class ConfigWarning(UserWarning):
    """Something in a configuration that is accepted, but not as it was written."""


@dataclass(frozen=True, slots=True)
class Notices:
    """Gathers what was accepted with a change; given as validation context by the loader."""

    found: list[Problem] = field(default_factory=list)


class BlockError(ConfigError):
    """What is wrong with one block, and the block made of its sound fields for further checks.

    ``unsound`` names the fields that were left at their default because of a problem.
    """

    def __init__(self, problems: Iterable[Problem], block: Block, unsound: frozenset[str]) -> None:
        super().__init__(tuple(problems))
        self.block = block
        self.unsound = unsound


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition between fields. It is skipped while one of the fields it ``reads`` is unsound."""

    reads: tuple[str, ...]
    check: Callable[[Any], Iterator[Problem]]


Converted = tuple[object, tuple[Problem, ...]]


class Block(BaseModel):
    """Base of the blocks. Raises ConfigError, never pydantic's own error, with every problem found."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    #: Dotted name of the block, the key of its settings.
    path: ClassVar[str]
    rules: ClassVar[tuple[Rule, ...]] = ()
    #: Values that let a block with a missing required field be built for further checks.
    stand_ins: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def convert(cls, setting: Setting, value: object, key: str, notices: list[Problem]) -> Converted | None:
        """Blocks with fields that are neither scalars nor lists of scalars convert them here."""
        return None

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            allowed = ", ".join(SETTINGS[cls.path])
            message = f"{shown(value)} is not a block of settings"
            raise BlockError([Problem(message, cls.path, allowed=allowed)], cls.bare(), frozenset({"*"}))
        notices: list[Problem] = []
        sound, problems, unsound = _sound_fields(cls, value, notices)
        block = handler(sound)
        for rule in cls.rules:
            if not unsound.intersection(rule.reads):
                problems.extend(rule.check(block))
        if problems:
            raise BlockError(problems, block, frozenset(unsound))
        _tell(notices, info)
        return block

    @classmethod
    def bare(cls) -> Block:
        """A block of defaults to go on checking with when nothing of the given one can be used."""
        return cls.model_construct(None, **cls.stand_ins)


NO_SUCH_SETTING: Final = "no such setting"
_MOST_UNKNOWN: Final = 20
_MANY: Final = 20


def _sound_fields(
    cls: type[Block], given: Mapping[str, object], notices: list[Problem]
) -> tuple[dict[str, object], list[Problem], set[str]]:
    """The fields as the schema holds them, with defaults for those absent or unsound; what is wrong."""
    settings = SETTINGS[cls.path]
    problems = list(unknown_keys(given, settings, cls.path))
    sound: dict[str, object] = {}
    unsound: set[str] = set()
    for name, setting in settings.items():
        key = f"{cls.path}.{name}"
        wrong: tuple[Problem, ...] = ()
        if name in given:
            sound[name], wrong = _converted(cls, setting, given[name], key, notices)
        elif setting.required:
            wrong = (Problem("this setting is required", key, allowed=setting.allowed),)
        if wrong:
            problems.extend(wrong)
            unsound.add(name)
        if wrong or name not in given:
            fallback = cls.stand_ins.get(name, setting.default)
            sound[name] = _converted(cls, setting, fallback, key, [])[0]
    return sound, problems, unsound


def unknown_keys(given: Mapping[str, object], known: Iterable[str], path: str) -> Iterator[Problem]:
    """One problem per key that does not exist, with the nearest one that does."""
    names = tuple(known)
    unknown = [name for name in given if name not in names]
    if len(unknown) > _MOST_UNKNOWN:
        yield Problem(f"{len(unknown)} settings here do not exist; the first few follow", path)
    for name in unknown[:_MOST_UNKNOWN]:
        key = f"{path}.{name}" if path else str(name)
        near = nearest(str(name), names) or ""
        # Forty knobs after a clear suggestion would drown it, and once is enough.
        if len(names) < _MANY or (not near and name == unknown[0]):
            allowed = ", ".join(names)
        else:
            allowed = "what `python -m spica.knobs` lists"
        homes = [home for home, settings in SETTINGS.items() if name in settings]
        remedy = f"it belongs to {homes[0]}" if homes else ""
        yield Problem(NO_SUCH_SETTING, key, suggestion=near, allowed=allowed, remedy=remedy)


def _converted(
    cls: type[Block], setting: Setting, value: object, key: str, notices: list[Problem]
) -> Converted:
    if value is None and setting.optional:
        return None, ()
    if not setting.is_list:
        own = cls.convert(setting, value, key, notices)
        if own is not None:
            return own
        checked, problem = check_scalar(setting, value, key)
        return checked, (problem,) if problem else ()
    return _converted_list(cls, setting, value, key, notices)


def _converted_list(
    cls: type[Block], setting: Setting, value: object, key: str, notices: list[Problem]
) -> Converted:
    may_be_empty = setting.default == () and isinstance(value, (list, tuple)) and not value
    entries, problem = ((), None) if may_be_empty else check_list(setting, value, key)
    if entries is None or problem is not None:
        return value, (problem,) if problem else ()
    problems: list[Problem] = []
    kept: list[object] = []
    for index, entry in enumerate(entries):
        at = f"{key}[{index}]"
        own = cls.convert(setting, entry, at, notices)
        if own is None:
            checked, objection = check_scalar(setting, entry, at, alone=len(entries) == 1)
            own = checked, (objection,) if objection else ()
        problems.extend(own[1])
        if own[1]:
            continue
        if own[0] in kept:
            notices.append(Problem(f"{shown(entry)} is listed twice; the second one is dropped", at))
        else:
            kept.append(own[0])
    return tuple(kept), tuple(problems)


def _tell(notices: Iterable[Problem], info: ValidationInfo) -> None:
    for notice in notices:
        if isinstance(info.context, Notices):
            info.context.found.append(notice)
        else:
            warnings.warn(str(notice), ConfigWarning, stacklevel=4)


def is_composite(setting: Setting) -> bool:
    """Whether entries of the setting are preset ids or dicts."""
    return setting.type is ValueType.DICT and setting.is_list and bool(setting.choices)
