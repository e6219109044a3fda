"""Printing for people and for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

Json = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None


def out() -> Console:
    """Results, on stdout. Text is printed as it is: no markup, no guessed highlights."""
    return Console(markup=False, highlight=False, emoji=False)


def err() -> Console:
    """Progress and warnings, on stderr."""
    return Console(stderr=True, markup=False, highlight=False, emoji=False)


def print_json(value: Json) -> None:
    """One JSON document on stdout. Numbers that are not finite are a fault, not JSON."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def human_bytes(count: float) -> str:
    """Bytes in GiB, as memory sizes are read: ``141.0 GiB``."""
    return f"{count / 2**30:.1f} GiB"
