"""Text from elsewhere (a record, a trace's name, a component's message), made safe to show."""

from __future__ import annotations

import unicodedata
from typing import Final

#: Unicode categories that a terminal, a page or a table must not get: control characters (escape sequences
#: begin with one), format characters (they can turn the direction of what follows), half characters.
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: Cells that begin so are formulas to a spreadsheet. Source: OWASP, "CSV injection".
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str, *, lines: bool = False) -> str:
    """``text`` with every control, format and half character as a ``?``; tabs become blanks.

    ``lines`` keeps line breaks; otherwise they become blanks, so that one message stays one line.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character, lines) for character in text)


def is_printable(text: str) -> bool:
    """Whether ``printable`` would leave ``text`` as it is."""
    return printable(text) == text


def _shown(character: str, lines: bool) -> str:
    if character == "\n" and lines:
        return character
    if character in "\n\t\r":
        return " "
    return "?" if unicodedata.category(character) in _UNSAFE else character


def cell(text: str) -> str:
    """``text`` for a cell of a CSV file: a quote before what a spreadsheet would take for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
