"""What stands beside the ledger: how the sweep went, and what was ruled out before it.

Neither decides a result, and either may be missing, cut off or somebody else's: a file that is not what a
sweep writes counts as missing.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, FiniteFloat, NonNegativeInt, ValidationError

from spica.text import printable

#: No side file of a sweep comes near this (bytes).
LARGEST: Final = 64 * 2**20

Text = Annotated[str, AfterValidator(printable)]


class _File(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Timings(_File):
    """Seconds."""

    suggesting: FiniteFloat | None = None
    evaluating: FiniteFloat | None = None
    wall: FiniteFloat | None = None


class SummaryFile(_File):
    """``summary.json``. Hypervolumes are pairs of replays and volume, savings of reason and count."""

    stop: Text = ""
    timings: Timings = Timings()
    branch_ends: dict[Text, Text] = {}
    saved: list[tuple[Text, NonNegativeInt]] = []
    hypervolumes: list[tuple[NonNegativeInt, FiniteFloat]] = []
    comparisons: list[Text] = []
    warnings: list[Text] = []


class RuledOut(_File):
    what: Text
    reason: Text
    detail: Text = ""


class SpaceFile(_File):
    """The part of ``space.json`` that reports show."""

    not_searched: list[RuledOut] = []
    shapes_dropped: list[RuledOut] = []


def read_small(path: Path) -> str | None:
    """The text of a plain file of at most ``LARGEST`` bytes; None for anything else (a link, a pipe)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST:
            return None
        return file.read().decode(errors="replace")


def read_summary(path: Path) -> SummaryFile:
    """What ``path`` says, or nothing."""
    text = read_small(path)
    try:
        # JSON has lists only, which the strict mode takes for tuples when it reads the JSON itself.
        return SummaryFile() if text is None else SummaryFile.model_validate_json(text)
    except ValidationError:
        return SummaryFile()


def read_space(path: Path) -> SpaceFile:
    """What ``path`` says, or nothing."""
    text = read_small(path)
    try:
        return SpaceFile() if text is None else SpaceFile.model_validate_json(text)
    except ValidationError:
        return SpaceFile()


def read_json(path: Path) -> object:
    """The JSON in ``path``; None when it is not there or none."""
    text = read_small(path)
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None
