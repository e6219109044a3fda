"""The frame of a small HTML page with plots, which needs no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

_STYLE: Final = """
body { margin: 0 auto; max-width: 1200px; padding: 24px; color: #1f2937; }
body { font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 24px 0 6px; }
table { border-collapse: collapse; font-size: 13.5px; margin: 0 0 12px; }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid #e5e7eb; vertical-align: top; }
th { font-weight: 600; color: #6b7280; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.side { display: flex; flex-wrap: wrap; gap: 0 56px; }
"""


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), texts: int = 1) -> str:
    """Escaped cells in rows; the columns after the first ``texts`` are numbers, to the right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        numbers = ["" if i < texts else ' class="n"' for i in range(len(row))]
        return "".join(f"<{tag}{n}>{escape(c)}</{tag}>" for c, n in zip(row, numbers, strict=True))

    lines = [f"<tr>{cells('th', head)}</tr>"] if head else []
    lines += [f"<tr>{cells('td', row)}</tr>" for row in rows]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def page(title: str, body: str) -> str:
    """A whole document; ``title`` is escaped, ``body`` is HTML."""
    name = escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{name}</h1>\n{body}\n</body></html>\n"
    )
