"""The pictures of the HTML report, as plotly figures in JSON that is safe inside a script element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from spica.goals.targets import goal as goal_row
from spica.report.data import Leader, RunReport
from spica.report.numbers import candidate_text, values_text

COLORS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2")
FRONT = "#111827"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def safe_json(figure: Any) -> str:
    """The figure's JSON with nothing in it that could end or open a script element or a comment."""
    text: str = figure.to_json()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _figure(x_title: str, y_title: str, height: int = 420) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 70, "r": 20, "t": 20, "b": 55},
        font={"family": FONT, "size": 13, "color": "#1f2937"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hoverlabel={"align": "left"},
    )
    figure.update_xaxes(title_text=x_title, zeroline=False)
    figure.update_yaxes(title_text=y_title, zeroline=False)
    return figure


def _axis(objective: str) -> str:
    measure = goal_row(objective)
    return f"{measure.title} ({measure.unit})"


def _hover(report: RunReport, leader: Leader) -> str:
    """Shown by the pointer; plotly reads a little HTML here, so everything is escaped."""
    parts = [
        f"rank {leader.rank}",
        candidate_text(leader.config),
        values_text(leader.values, report.objectives),
    ]
    return "<br>".join(escape(part) for part in parts)


def _points(
    figure: Any, report: RunReport, leaders: Sequence[Leader], name: str, color: str, axes: Any
) -> None:
    x_of, y_of = axes
    shown = [c for c in leaders if math.isfinite(x_of(c)) and math.isfinite(y_of(c))]
    figure.add_scatter(
        x=[x_of(c) for c in shown],
        y=[y_of(c) for c in shown],
        mode="markers",
        name=escape(name),
        marker={"color": color, "size": 8, "opacity": 0.75, "line": {"width": 0.5, "color": "white"}},
        text=[_hover(report, c) for c in shown],
        hovertemplate="%{text}<extra></extra>",
    )


def _by_kind(leaders: Sequence[Leader]) -> list[tuple[str, str, list[Leader]]]:
    """Groups of mode and backend with their colours, in a fixed order."""
    groups: dict[str, list[Leader]] = {}
    for leader in leaders:
        kind = f"{leader.config['deployment_mode']} {leader.config['backend']}"
        groups.setdefault(kind, []).append(leader)
    return [(kind, COLORS[i % len(COLORS)], groups[kind]) for i, kind in enumerate(sorted(groups))]


def progress_chart(report: RunReport) -> str:
    """Every measured candidate in the order of measuring, and the best so far (single target)."""
    figure = _figure("replay, in the order of finishing", _axis(report.objectives[0]))
    for kind, color, leaders in _by_kind(report.leaders):
        _points(figure, report, leaders, kind, color, (lambda c: c.order, lambda c: c.values[0]))
    better = max if report.scoring.maximize[0] else min
    x: list[int] = []
    y: list[float] = []
    for leader in sorted(report.leaders, key=lambda c: c.order):
        if math.isfinite(leader.values[0]):
            x.append(leader.order)
            y.append(better(y[-1], leader.values[0]) if y else leader.values[0])
    line = {"shape": "hv", "color": FRONT, "width": 2}
    figure.add_scatter(x=x, y=y, mode="lines", name="best so far", line=line, hoverinfo="skip")
    return safe_json(figure)


def front_chart(report: RunReport) -> str:
    """The plane of the last and the first objective, with the front and its knee (Pareto)."""
    first, last = report.objectives[0], report.objectives[-1]
    figure = _figure(_axis(last), _axis(first), 480)
    axes = (lambda c: c.values[-1], lambda c: c.values[0])
    for kind, color, leaders in _by_kind([c for c in report.leaders if not c.excluded_by_sla]):
        _points(figure, report, leaders, kind, color, axes)
    excluded = [c for c in report.leaders if c.excluded_by_sla]
    if excluded:
        _points(figure, report, excluded, "no request met the SLA", "#9ca3af", axes)
    front = report.front
    figure.add_scatter(
        x=[c.values[-1] for c in front],
        y=[c.values[0] for c in front],
        mode="lines+markers",
        name="front",
        line={"color": FRONT, "width": 2},
        marker={"color": FRONT, "size": 9, "symbol": "circle-open", "line": {"width": 2}},
        hoverinfo="skip",
    )
    if report.best is not None:
        figure.add_scatter(
            x=[report.best.values[-1]],
            y=[report.best.values[0]],
            mode="markers",
            name="knee",
            marker={"color": "#facc15", "size": 17, "symbol": "star", "line": {"width": 1.5, "color": FRONT}},
            hoverinfo="skip",
        )
    return safe_json(figure)


def tradeoff_chart(report: RunReport) -> str:
    """Speed per user against throughput per GPU: where each candidate stands whatever the goal is."""
    figure = _figure(_axis("throughput_per_user"), _axis("throughput_per_gpu"))
    axes = (per_user, per_gpu)
    for kind, color, leaders in _by_kind(report.leaders):
        _points(figure, report, leaders, kind, color, axes)
    best = report.best
    if best is not None and math.isfinite(per_user(best)) and math.isfinite(per_gpu(best)):
        figure.add_scatter(
            x=[per_user(best)],
            y=[per_gpu(best)],
            mode="markers",
            name="best",
            marker={"color": "#facc15", "size": 17, "symbol": "star", "line": {"width": 1.5, "color": FRONT}},
            hoverinfo="skip",
        )
    return safe_json(figure)


def workers_chart(leader: Leader) -> str:
    """The workers of a candidate over its replay, per role; empty text when no planner moved them."""
    if len(leader.timeline) < 2:
        return ""
    figure = _figure("seconds into the replay", "workers", 300)
    end = leader.metrics.get("duration_ms", leader.timeline[-1].at_s * 1000) / 1000
    disagg = leader.config.get("deployment_mode") == "disagg"
    roles = (("prefill", "#e08e2b"), ("decode", "#2563eb")) if disagg else (("decode", "#2563eb"),)
    for role, color in roles:
        counts = [getattr(r, role) for r in leader.timeline]
        figure.add_scatter(
            x=[*(r.at_s for r in leader.timeline), end],
            y=[*counts, counts[-1]],
            mode="lines",
            name=role if disagg else "workers",
            line={"shape": "hv", "color": color, "width": 2},
        )
    figure.update_yaxes(rangemode="tozero", dtick=1)
    return safe_json(figure)


def per_user(leader: Leader) -> float:
    """Mean output tokens per second that one user sees; NaN when the replay does not report it."""
    return leader.metrics.get("mean_output_token_throughput_per_user", math.nan)


def per_gpu(leader: Leader) -> float:
    """Output tokens per second and average GPU; NaN when unknown."""
    rate = leader.metrics.get("output_throughput_tok_s", math.nan)
    return rate / leader.avg_gpu if leader.avg_gpu > 0 else math.nan


def volume_chart(report: RunReport) -> str:
    """Hypervolume of the front against replays (Pareto); empty text when none was recorded."""
    if not report.extras.hypervolumes:
        return ""
    units = " x ".join(goal_row(name).unit for name in report.objectives)
    figure = _figure("replays", f"hypervolume of the front<br>({units})", 280)
    figure.add_scatter(
        x=[n for n, _ in report.extras.hypervolumes],
        y=[v for _, v in report.extras.hypervolumes],
        mode="lines+markers",
        line={"shape": "hv", "color": FRONT, "width": 2},
        showlegend=False,
    )
    return safe_json(figure)
