"""A trace's description for the terminal, and as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from spica.report.page import page, table
from spica.traffic.info import PERCENTILES, Distribution, TraceInfo

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spica.traffic.model import Trace

_BARS: Final = "▁▂▃▄▅▆▇█"


def bars(counts: Sequence[int]) -> str:
    """One character per count: a blank for 0, else a bar whose height is the count's share of the largest."""
    top = max(counts, default=0)
    return "".join(" " if c == 0 else _BARS[min(len(_BARS) - 1, c * len(_BARS) // (top + 1))] for c in counts)


def _facts(info: TraceInfo) -> list[tuple[str, str]]:
    rate = "all at once" if info.rate_rps is None else f"{info.rate_rps:.4g} requests/s"
    burst = f"peak window {info.peak_to_mean:.2f} x the mean"
    if info.interarrival_cv is not None:
        burst = f"gaps vary by {info.interarrival_cv:.2f} of their mean (Poisson: 1), {burst}"
    reuse = "no prefix information (hash_ids)"
    if info.reuse_ratio is not None:
        reuse = f"{100 * info.reuse_ratio:.1f}% of prompt tokens at an infinite cache"
        if info.rows_with_hashes < info.requests:
            reuse += f" ({info.requests - info.rows_with_hashes} rows say nothing)"
    facts = [
        ("format", info.format),
        ("requests", f"{info.requests:,}"),
        ("span", f"{info.span_s:.3f} s"),
        ("rate", rate),
        ("prompt tokens", f"{info.prompt_tokens:,}"),
        ("output tokens", f"{info.output_tokens:,}"),
        ("prefix reuse", reuse),
        ("burstiness", burst),
    ]
    if info.sessions:
        facts.append(("sessions", f"{info.sessions}"))
    return facts


def _lengths(info: TraceInfo) -> list[tuple[str, Distribution]]:
    return [("prompt", info.input_length), ("output", info.output_length), ("both", info.total_length)]


def _length_rows(info: TraceInfo) -> list[tuple[str, list[str]]]:
    """A statistic per row, with its value for prompts, outputs and both."""
    columns = [one for _, one in _lengths(info)]
    rows = [("mean", [f"{d.mean:.1f}" for d in columns]), ("min", [str(d.minimum) for d in columns])]
    rows += [(f"p{p}", [f"{d.percentile(p):.0f}" for d in columns]) for p in PERCENTILES]
    return [*rows, ("max", [str(d.maximum) for d in columns])]


def render_info(info: TraceInfo) -> RenderableType:
    """Tables of facts, lengths and context fits, and a small picture of the arrival rate."""
    from rich.box import SIMPLE
    from rich.columns import Columns
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = Table(show_header=False, box=None, title=Text(info.source), title_justify="left")
    for name, value in _facts(info):
        facts.add_row(name, Text(value))
    lengths = Table(title="tokens per request", title_justify="left", box=SIMPLE)
    for column in ("", *(name for name, _ in _lengths(info))):
        lengths.add_column(column, justify="right", no_wrap=True)
    for label, values in _length_rows(info):
        lengths.add_row(label, *values)
    fits = Table(title="requests that fit", title_justify="left", box=SIMPLE)
    fits.add_column("context", justify="right")
    fits.add_column("fit", justify="right")
    for length, share in info.fits:
        fits.add_row(str(length), f"{100 * share:.1f}%")
    picture = Text(
        f"arrivals per {info.window_s:g} s, up to {max(info.counts)}:\n|{bars(info.counts)}|", no_wrap=True
    )
    notes = [Text(f"note: {note}") for note in info.notes]
    tables = Columns([lengths, fits], padding=(0, 4))
    return Group(facts, Text(), tables, picture, *notes)


def _figure(trace: Trace, info: TraceInfo) -> Any:
    from plotly.subplots import make_subplots

    origin = trace.requests[0].arrival_ms
    asked = [0] * len(info.counts)
    for row in trace.requests:
        asked[int((row.arrival_ms - origin) / (info.window_s * 1000))] += row.total_tokens
    times = [(i + 0.5) * info.window_s for i in range(len(info.counts))]
    titles = (
        f"requests per {info.window_s:g} s",
        f"tokens asked for (prompt and output) per {info.window_s:g} s",
        "prompt lengths",
        "output lengths",
    )
    figure = make_subplots(rows=2, cols=2, subplot_titles=titles, vertical_spacing=0.16)
    figure.add_bar(x=times, y=list(info.counts), row=1, col=1)
    figure.add_bar(x=times, y=asked, row=1, col=2)
    figure.add_histogram(x=[r.input_length for r in trace.requests], nbinsx=50, row=2, col=1)
    figure.add_histogram(x=[r.output_length for r in trace.requests], nbinsx=50, row=2, col=2)
    for column in (1, 2):
        figure.update_xaxes(title_text="seconds after the first arrival", row=1, col=column)
        figure.update_xaxes(title_text="tokens", row=2, col=column)
        figure.update_yaxes(title_text="requests", row=2, col=column)
    figure.update_yaxes(title_text="requests", row=1, col=1)
    figure.update_yaxes(title_text="tokens", row=1, col=2)
    figure.update_layout(
        showlegend=False, height=760, template="plotly_white", bargap=0.05, margin={"t": 60, "l": 70, "r": 20}
    )
    return figure


def trace_html(trace: Trace, info: TraceInfo) -> str:
    """A page that needs no network: the facts, arrivals and tokens over time, and the length histograms."""
    from html import escape

    lengths = [(label, *values) for label, values in _length_rows(info)]
    fits = [(f"{length:,}", f"{100 * share:.1f}%") for length, share in info.fits]
    notes = "\n".join(f"<li>{escape(note)}</li>" for note in info.notes)
    parts = (
        table(_facts(info), texts=2),
        f"<ul>\n{notes}\n</ul>" if notes else "",
        _figure(trace, info).to_html(full_html=False, include_plotlyjs=True),
        '<div class="side"><div><h2>Tokens per request</h2>',
        table(lengths, ("", *(name for name, _ in _lengths(info)))),
        "</div><div><h2>Requests that fit a context length</h2>",
        table(fits, ("context, tokens", "fit")),
        "</div></div>",
    )
    return page(info.source, "\n".join(parts))
