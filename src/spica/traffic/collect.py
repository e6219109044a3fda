"""Reading single fields, and gathering every problem of a file before one error is raised."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from spica.errors import Problem, TraceError, nearest

#: Problems shown in full; the rest are counted.
SHOWN: Final = 20
#: Longer prompts or outputs than this are taken for a mistake (the longest contexts served are about 10^7).
MAX_TOKENS: Final = 10_000_000
#: Arrivals beyond this many milliseconds (some 300,000 years) are taken for a mistake.
MAX_MS: Final = 1e16
MAX_HASH: Final = 2**64 - 1

_WHOLE = re.compile(r"[+-]?\d{1,30}(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class Gathered:
    """The problems of one file. Only the first few are kept; the others are counted."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.count = 0
        self._kept: list[Problem] = []

    def add(
        self,
        line: int,
        message: str,
        *,
        key: str = "",
        suggestion: str = "",
        allowed: str = "",
        remedy: str = "",
    ) -> None:
        """Note a problem at a line (0: of the file as a whole)."""
        self.count += 1
        if len(self._kept) < SHOWN:
            where = f"{self.source}:{line}" if line else self.source
            self._kept.append(
                Problem(message, key, where, allowed=allowed, suggestion=suggestion, remedy=remedy)
            )

    def raise_if_any(self) -> None:
        """TraceError with all that was gathered, if anything was."""
        if not self.count:
            return
        hidden = self.count - len(self._kept)
        if hidden:
            self._kept.append(Problem(f"and {hidden} more problems", where=self.source))
        raise TraceError(self._kept)


def shown(value: object, width: int = 60) -> str:
    """A value as it may be shown in a message: short, on one line."""
    try:
        text = repr(value)
    except ValueError:  # an int too long to print
        return "a number of thousands of digits"
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _missing(gathered: Gathered, line: int, key: str, row: Mapping[str, object]) -> None:
    near = nearest(key, [k for k in row if k])
    gathered.add(line, "missing", key=key, suggestion=near or "")


def _present(gathered: Gathered, line: int, row: Mapping[str, object], key: str, allowed: str) -> object:
    """The value of ``key``; None after noting that it is missing or empty."""
    value = row.get(key)
    if value is not None and value != "":
        return value
    if key in row:
        gathered.add(line, "empty", key=key, allowed=allowed)
    else:
        _missing(gathered, line, key, row)
    return None


def read_tokens(gathered: Gathered, line: int, row: Mapping[str, object], key: str) -> int | None:
    """A token count (whole, 0 to MAX_TOKENS), also from a CSV cell. None after noting a problem."""
    value = _present(gathered, line, row, key, "a whole number of tokens")
    if value is None:
        return None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value.strip().partition(".")[0])
    elif isinstance(value, float) and value.is_integer() and abs(value) <= MAX_TOKENS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        gathered.add(line, f"{shown(value)} is not a whole number of tokens", key=key)
    elif value < 0:
        gathered.add(line, f"{shown(value)} is negative", key=key)
    elif value > MAX_TOKENS:
        gathered.add(line, f"{shown(value)} is no believable token count, above {MAX_TOKENS}", key=key)
    else:
        return value
    return None


def read_number(gathered: Gathered, line: int, row: Mapping[str, object], key: str) -> float | None:
    """A finite number, >= 0; a text is read as in a CSV cell. None after noting a problem."""
    value = _present(gathered, line, row, key, "a number")
    if value is None:
        return None
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        gathered.add(line, f"{shown(value)} is not a number", key=key)
    elif abs(value) > MAX_MS or not math.isfinite(value):
        gathered.add(line, f"{shown(value)} is not a finite, believable time", key=key)
    elif value < 0:
        gathered.add(line, f"{shown(value)} is negative", key=key, allowed="times from 0 on")
    else:
        return float(value)
    return None


def read_session(gathered: Gathered, line: int, value: object, key: str) -> str | None:
    """A session id: text or a whole number; blank or missing is None."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    gathered.add(line, f"{shown(value)} is not a session id", key=key, allowed="text")
    return None


def read_hashes(
    gathered: Gathered, line: int, value: object, key: str, tokens: int | None, block: int
) -> tuple[int, ...] | None:
    """Block ids: unsigned 64-bit, one per ``block`` prompt tokens. None if absent, or a problem was noted."""
    if value is None:
        return None
    if not isinstance(value, list):
        gathered.add(line, f"{shown(value)} is not a list of ids", key=key)
        return None
    for i, one in enumerate(value):
        if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one <= MAX_HASH:
            gathered.add(line, f"entry {i}, {shown(one)}, is not an unsigned 64-bit whole number", key=key)
            return None
    if tokens is None:
        return None
    need = math.ceil(tokens / block)
    if len(value) != need:
        fits = [b for b in (16, 32, 64, 128, 256, 512, 1024) if math.ceil(tokens / b) == len(value)]
        gathered.add(
            line,
            f"{len(value)} ids for an input of {tokens} tokens, which takes {need} blocks of {block}",
            key=key,
            remedy=f"the count fits blocks of {fits[0]} tokens" if fits else "",
        )
        return None
    return tuple(value)
