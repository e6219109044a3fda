"""Every error a user can meet, with what was given, where, and how to put it right.

An error never reaches the screen as a traceback: the command line prints ``str(error)`` and leaves with
``error.exit_code``. Exit codes: 0 results, 1 ran but nothing feasible, 2 bad input, 3 environment or stack
problem, 130 interrupted.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

EXIT_OK = 0
EXIT_NOTHING_FEASIBLE = 1
EXIT_BAD_INPUT = 2
EXIT_STACK = 3
EXIT_INTERRUPTED = 130

#: What the disk does, whoever asks it to write.
DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS})


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to ``name``, or None when nothing is close.

    Case, ``-``, ``_``, ``/`` and ``.`` are ignored, and a known name that is a prefix of the given one counts
    as close (``H100-SXM5-80GB`` -> ``h100_sxm``).
    """

    def plain(text: str) -> str:
        return "".join(c for c in text.lower() if c.isalnum())

    by_plain = {plain(k): k for k in known}
    given = plain(name)
    if not given:
        return None
    if given in by_plain:
        return by_plain[given]
    prefixes = [p for p in by_plain if len(p) >= 4 and (given.startswith(p) or p.startswith(given))]
    if prefixes:
        return by_plain[max(prefixes, key=lambda p: difflib.SequenceMatcher(None, given, p).ratio())]
    close = difflib.get_close_matches(given, list(by_plain), n=1, cutoff=0.6)
    return by_plain[close[0]] if close else None


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input.

    ``where`` is ``file:line`` when known, ``key`` the dotted path of the setting
    (``search_space.gpu_budget``), ``message`` what was given and why it cannot be, ``allowed`` what may stand
    there, ``suggestion`` the nearest valid name, ``remedy`` what to do.
    """

    message: str
    key: str = ""
    where: str = ""
    allowed: str = ""
    suggestion: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        head = ": ".join(part for part in (self.where, self.key, self.message) if part)
        tail = []
        if self.suggestion:
            tail.append(f"did you mean '{self.suggestion}'?")
        if self.allowed:
            tail.append(f"allowed: {self.allowed}")
        if self.remedy:
            tail.append(self.remedy)
        return head + "".join(f"\n    {line}" for line in tail)


class SpicaError(Exception):
    """Base of all errors Spica raises on purpose."""

    exit_code = EXIT_BAD_INPUT

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n    {self.remedy}" if self.remedy else self.message


class InputError(SpicaError):
    """One or more things wrong with what the user gave; all of them are reported at once."""

    def __init__(self, problems: Problem | Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class ConfigError(InputError):
    """The YAML configuration (or a ``--set`` override) is not a valid SmartSearchConfig."""


class TraceError(InputError):
    """A request trace cannot be read as what it claims to be."""


class NoPerfDatabase(InputError):
    """No performance data for a SKU, a model, or a backend on a SKU; there is no default to fall back on."""


class PinError(InputError):
    """A pinned parallel config that no backend can run."""


class NoViableParallelConfig(SpicaError):
    """No worker shape fits the budget; ``min_gpus`` is the smallest budget at which one would, if known."""

    exit_code = EXIT_NOTHING_FEASIBLE

    def __init__(self, message: str, *, min_gpus: int | None = None, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.min_gpus = min_gpus


class LedgerError(SpicaError):
    """A run folder that cannot be opened, resumed or trusted."""


class StackError(SpicaError):
    """The installed components do not work (together): a missing package, a schema mismatch, a full disk."""

    exit_code = EXIT_STACK


class SweepInterrupted(SpicaError):
    """The user asked the sweep to stop; what was measured so far is in the run folder."""

    exit_code = EXIT_INTERRUPTED


def unwritable(path: object, error: OSError, *, key: str = "") -> SpicaError:
    """The error to raise for a file that the user named and that cannot be written: a full or failing disk is
    a StackError, anything else (no such folder, no permission) the user's input."""
    why = error.strerror or str(error)
    if error.errno in DISK_ERRORS - {errno.EROFS}:
        return StackError(f"cannot write {path}: {why}", remedy="free some space, or name a file elsewhere")
    return InputError(
        Problem(
            f"cannot write {path}: {why}", key, remedy="name a file in a folder that exists and is writable"
        )
    )
