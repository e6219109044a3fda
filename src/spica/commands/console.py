"""Printing for people and for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from spica.text import printable

Json = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None


class _Plain(Console):
    """A console on which no text can do anything but be read: colours are Spica's own, escape sequences in
    what a record or a trace says are not."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text, lines=True), segment.style)


def out() -> Console:
    """Results, on stdout. Text is printed as it is: no markup, no guessed highlights."""
    return _Plain(markup=False, highlight=False, emoji=False)


def err() -> Console:
    """Progress and warnings, on stderr."""
    return _Plain(stderr=True, markup=False, highlight=False, emoji=False)


def print_json(value: Json) -> None:
    """One JSON document on stdout. Numbers that are not finite are a fault, not JSON."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def human_bytes(count: float) -> str:
    """Bytes in GiB, as memory sizes are read: ``141.0 GiB``."""
    return f"{count / 2**30:.1f} GiB"


def print_whole(table: Table) -> None:
    """A table on stdout as wide as it is: a name is neither cut nor folded, so that it can be copied and
    found. A narrower terminal breaks the lines itself."""
    console = out()
    roomy = console.options.update(max_width=10_000)
    console.width = max(console.width, Measurement.get(console, roomy, table).maximum)
    console.print(table, crop=False)
