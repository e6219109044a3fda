"""Forecast against actual, as one HTML page that needs no network."""

from __future__ import annotations

from typing import Any, Final

from spica.planner.predictor_sweep import IntervalResult, PredictorScore, PredictorSweepResult
from spica.report.page import page, table

_SERIES: Final = (
    ("requests", "requests per window", "requests"),
    ("isl", "mean prompt length", "tokens"),
    ("osl", "mean output length", "tokens"),
)
_COLORS: Final = (
    "#1f77b4",
    "#d62728",
    "#2ca02c",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)


def _add(
    figure: Any, result: IntervalResult, score: PredictorScore, row: int, series: str, color: str
) -> None:
    shown = score.spec == result.winner or score.spec.load_predictor == "constant"
    figure.add_scatter(
        x=[w.start_s for w in score.forecasts],
        y=[getattr(w, series) for w in score.forecasts],
        name=f"{score.spec.name} ({score.loss:.4g})",
        legendgroup=score.spec.name,
        showlegend=row == 1,
        visible=True if shown else "legendonly",
        mode="lines",
        line={"color": color, "dash": "solid" if score.spec == result.winner else "dot"},
        row=row,
        col=1,
    )


def _figure(result: IntervalResult) -> Any:
    from plotly.subplots import make_subplots

    titles = [title for _, title, _ in _SERIES]
    figure = make_subplots(
        rows=len(_SERIES), cols=1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.08
    )
    for row, (series, _, unit) in enumerate(_SERIES, start=1):
        figure.update_yaxes(title_text=unit, row=row, col=1)
        figure.add_scatter(
            x=[w.start_s for w in result.windows],
            y=[getattr(w, series) for w in result.windows],
            name="actual",
            legendgroup="actual",
            showlegend=row == 1,
            mode="lines+markers",
            line={"color": "black", "width": 2},
            row=row,
            col=1,
        )
        for index, score in enumerate(s for s in result.scores if s.forecasts):
            _add(figure, result, score, row, series, _COLORS[index % len(_COLORS)])
    if result.windows and result.warmup:
        edge = result.windows[min(result.warmup, len(result.windows) - 1)].start_s
        figure.add_vrect(
            x0=result.windows[0].start_s, x1=edge, fillcolor="lightgrey", opacity=0.4, line_width=0
        )
    figure.update_layout(
        height=800,
        template="plotly_white",
        hovermode="x unified",
        margin={"t": 40},
        legend_title="forecast, mean loss<br>(click to show or hide)",
    )
    figure.update_xaxes(title_text="seconds into the trace", row=len(_SERIES), col=1)
    return figure


def _losses(result: PredictorSweepResult, interval_s: int) -> str:
    rows = [
        (
            row.predictor + (" (winner)" if row.winner else ""),
            row.cause or row.note or ("" if row.candidate else "baseline"),
            f"{row.loss:.4g}",
            "-" if row.versus_constant is None else f"{row.versus_constant:.3f}",
            str(row.windows),
        )
        for row in result.table()
        if row.interval_s == interval_s
    ]
    return table(rows, ("predictor", "", "mean loss", "loss / constant's", "windows"), texts=2)


def predictor_plot(result: PredictorSweepResult) -> str:
    """A page with the losses and one figure per swept interval: the trace's windows and each predictor's
    forecasts.

    The winner and the constant baseline are shown, the others can be switched on in the legend. A result
    without swept intervals gives a page that says why.
    """
    from html import escape

    parts: list[str] = []
    for one in result.intervals:
        if one.scores:
            first = not parts
            parts += (
                f"<h2>Every {one.interval_s} s: {escape(one.winner.name)} ({escape(one.reason)})</h2>",
                _losses(result, one.interval_s),
                "<p>Grey windows are warm-up, and not scored.</p>" if one.warmup else "",
                _figure(one).to_html(full_html=False, include_plotlyjs=first),
            )
    return page(
        "Load predictors: forecast and actual",
        "\n".join(parts) or f"<p>Nothing was swept: {escape(result.reason)}.</p>",
    )
