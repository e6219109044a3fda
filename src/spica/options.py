"""How a sweep is run, as far as its configuration does not say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spica.errors import InputError, Problem

#: The least and the most of a run's options, the same as on the command line.
BOUNDS: Final = {
    "jobs": (1, 1024),
    "seed": (0, 2**32 - 1),
    "max_minutes": (0, 10**6),
    "memory_gb": (0.1, 10**6),
}


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
            Problem(f"{value} is out of range", name, allowed=f"{low:g} to {high}")
            for name, (low, high) in BOUNDS.items()
            if (value := getattr(self, name)) is not None and not low <= value <= high
        ]
        if problems:
            raise InputError(problems)
