"""The ``sweep`` block: how the search is run."""

from __future__ import annotations

import os
from typing import ClassVar

from spica.config.block import Block, BlockError, Converted
from spica.config.settings import default
from spica.errors import Problem
from spica.knobs.setting import Setting

#: Candidates measured at once where there are cores enough for them.
DEFAULT_PARALLEL_EVALS = 16


class Confirm(Block):
    """Measure the ``top`` leaders ``repeats`` times again, and rank them by their means."""

    path: ClassVar[str] = "sweep.confirm"

    top: int = default("sweep.confirm", "top")
    repeats: int = default("sweep.confirm", "repeats")


class SweepOptions(Block):
    """Run control. Raises ConfigError.

    ``parallel_evals`` and ``candidates_per_round`` are None where the file leaves them open; the
    ``resolved_`` properties give the numbers for this machine.
    """

    path: ClassVar[str] = "sweep"

    max_rounds: int = default("sweep", "max_rounds")
    parallel_evals: int | None = None
    candidates_per_round: int | None = None
    random_seed: int = default("sweep", "random_seed")
    max_eval_seconds: float | None = default("sweep", "max_eval_seconds")
    confirm: Confirm | None = None

    @classmethod
    def convert(cls, setting: Setting, value: object, key: str, notices: list[Problem]) -> Converted | None:
        if setting.name != "confirm":
            return None
        try:
            return Confirm.model_validate(value), ()
        except BlockError as error:
            return None, error.problems

    @property
    def resolved_parallel_evals(self) -> int:
        """Candidates measured at once: as set, else 16 or the machine's cores, whichever is less."""
        return self.parallel_evals or min(DEFAULT_PARALLEL_EVALS, os.cpu_count() or 1)

    @property
    def resolved_candidates_per_round(self) -> int:
        """Unique successful candidates per round: as set, else as many as are measured at once."""
        return self.candidates_per_round or self.resolved_parallel_evals
