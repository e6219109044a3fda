"""How a sweep is run, as far as its configuration does not say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spica.errors import InputError, Problem

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: The least and the most of a run's options, the same as on the command line. In no time at all nothing could
#: be measured.
BOUNDS: Final = {
    "jobs": (1, 1024),
    "seed": (0, 2**32 - 1),
    "max_minutes": (0.001, 10**6),
    "memory_gb": (0.1, 10**6),
}
_UNITS: Final = {"max_minutes": " minutes", "memory_gb": " GiB"}


@contextmanager
def naming_options(options: Mapping[str, str]) -> Iterator[None]:
    """While inside, errors name the command's option where they name a setting (the keys of ``options``)."""
    try:
        yield
    except InputError as error:
        raise type(error)([replace(p, key=options.get(p.key, p.key)) for p in error.problems]) from None


def options_of(kind: type[DataclassInstance] | DataclassInstance) -> dict[str, str]:
    """The options of a command that are called like the fields: ``max_minutes`` -> ``--max-minutes``."""
    return {field.name: f"--{field.name.replace('_', '-')}" for field in fields(kind)}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a sweep is run, as far as its configuration does not say.

    ``out``: the run folder (None: ``runs/<name>-<time>``). ``jobs``: replays at once (None: from the config
    and the cores). ``seed``: overrides ``sweep.random_seed``. ``max_minutes``: time for the whole sweep.
    ``memory_gb``: resident memory of one worker, in GiB (None: a share of the machine's). ``resume``: a run
    folder to continue; ``force`` does so although the configuration or the versions differ. Raises InputError
    for numbers out of ``BOUNDS``.
    """

    out: Path | None = None
    jobs: int | None = None
    seed: int | None = None
    overrides: tuple[str, ...] = ()
    max_minutes: float | None = None
    memory_gb: float | None = None
    resume: Path | None = None
    force: bool = False

    def __post_init__(self) -> None:
        problems = [
            Problem(f"{value} is out of range", name, allowed=f"{low} to {high}{_UNITS.get(name, '')}")
            for name, (low, high) in BOUNDS.items()
            if (value := getattr(self, name)) is not None and not low <= value <= high
        ]
        if problems:
            raise InputError(problems)
