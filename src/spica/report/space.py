"""What will be searched, and what was left out: for people, at the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spica.branches import Branch, BranchPlan, Dimension
from spica.branches.space import bytes_text, rejected_shapes


def space_view(plan: BranchPlan, *, verbose: bool) -> RenderableType:
    """The plan for people. ``verbose`` spells out every dropped shape with its bytes."""
    parts: list[RenderableType] = []
    for branch in plan.branches:
        parts += [_branch_head(branch), _dimensions(branch.dimensions), Text()]
    if plan.dropped:
        parts += [Text("Not searched", style="bold")]
        parts += [Text(f"  {line}") for line in dropped_lines(plan)]
        parts.append(Text())
    parts += _shapes(plan, verbose)
    return Group(*parts)


def dropped_lines(plan: BranchPlan) -> list[str]:
    """Everything left out, what has one kind and reason on one line."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for dropped in plan.dropped:
        grouped.setdefault((dropped.kind, dropped.reason), []).append(dropped.what)
    return [f"{kind} {', '.join(what)}: {reason}" for (kind, reason), what in grouped.items()]


def _branch_head(branch: Branch) -> Text:
    backends = ", ".join(f"{s.backend} {s.version}: {s.configs}" for s in branch.summaries)
    text = Text(f"{branch.mode}", style="bold")
    text.append(
        f"  {len(branch.pool)} parallel config{'s' if len(branch.pool) != 1 else ''} ({backends})",
        style="not bold",
    )
    return text


def _dimensions(dimensions: Sequence[Dimension]) -> RenderableType:
    if not dimensions:
        return Text("  a single candidate, nothing to search")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("  dimension", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("values", overflow="fold")
    for d in dimensions:
        values = _list(d, " .. " if d.kind == "float" else ", ")
        table.add_row(f"  {d.name}", _value(d.default), values)
    return table


def _list(dimension: Dimension, between: str) -> str:
    return between.join(_value(v) for v in dimension.values) + (" (log)" if dimension.log else "")


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) and not value.is_integer() else _whole(value)


def _whole(value: object) -> str:
    return str(int(value)) if isinstance(value, float) else str(value)


def _shapes(plan: BranchPlan, verbose: bool) -> list[RenderableType]:
    rejected = list(rejected_shapes(plan))
    if not rejected:
        return []
    parts: list[RenderableType] = [Text(f"{len(rejected)} worker shapes ruled out", style="bold")]
    if verbose:
        for where, shape in rejected:
            parts.append(Text(f"  {where} {shape}"))
            if detail := bytes_text(shape):
                parts.append(Text(f"      {detail}"))
        return parts
    counts = Counter((where, kind(shape.reason)) for where, shape in rejected)
    first = {(where, kind(shape.reason)): shape for where, shape in reversed(rejected)}
    for key, count in counts.most_common():
        example = "" if count == 1 else "such as "
        parts.append(Text(f"  {count} x {key[0]}, {example}{first[key]}"))
    parts.append(Text("  --verbose shows each with its bytes"))
    return parts


def kind(reason: str) -> str:
    """A reason without its numbers, so that like ones can be counted together."""
    words = ["N" if any(c.isdigit() for c in word) else word for word in reason.split()]
    return " ".join(words)
