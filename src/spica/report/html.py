"""The HTML report: one file that needs no network. Every text that comes from a run is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files

from spica.goals.targets import goal as goal_row
from spica.report.charts import (
    front_chart,
    per_gpu,
    per_user,
    progress_chart,
    tradeoff_chart,
    volume_chart,
    workers_chart,
)
from spica.report.data import Leader, NotSearched, RunReport
from spica.report.insight import KnobEffect, knob_effects, lost_text, why_best, why_none
from spica.report.numbers import (
    batching_text,
    candidate_text,
    duration,
    in_sla,
    load_text,
    number,
    parallel_text,
    percent,
    policy_text,
    router_text,
    sla_text,
    values_text,
)
from spica.report.tables import outcome_counts
from spica.report.terminal import headline

#: Rows of the table of candidates; the CSV has all.
TOP = 25

# No network, no frames, no forms: only what stands in the file runs.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def report_html(report: RunReport) -> str:
    """The page."""
    from plotly.offline import get_plotlyjs

    title = f"{report.model} on {report.hardware}"
    heads = [headline(report), sla_text(report.scoring.sla)]
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            *(f'<p class="lead">{escape(line)}</p>' for line in heads if line is not None),
            *_damage(report),
            *_best(report),
            *_pictures(report),
            *_candidates(report),
            *_knobs(report),
            *_others(report),
            *_not_searched(report),
            *_run(report),
        ]
    )
    style = files("spica.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n"
        f"<script>{get_plotlyjs()}</script>\n</head>\n<body><main>\n{body}\n</main></body></html>\n"
    )


def _damage(report: RunReport) -> Iterable[str]:
    if report.damage:
        lines = "".join(f"<li>{escape(line)}</li>" for line in report.damage)
        yield f"<h2>The record is damaged</h2><p>This page rests on what is intact.</p><ul>{lines}</ul>"


def _best(report: RunReport) -> Iterable[str]:
    best = report.best
    if best is None:
        yield f'<div class="best"><div class="value">{escape(why_none(report))}</div></div>'
    else:
        kind = "Balanced point of the front" if report.scoring.is_pareto else "Best deployment"
        reasons = "".join(f"<li>{escape(line)}</li>" for line in why_best(report))
        yield (
            f'<div class="best"><div>{kind}</div>'
            f'<div class="value">{escape(values_text(best.values, report.objectives))}</div>'
            f'<div class="what">{escape(candidate_text(best.config))}</div><ul>{reasons}</ul></div>'
        )
    if report.lost:
        rows = "".join(f"<li>{escape(trial)}: {escape(reason)}</li>" for trial, reason in report.lost)
        yield f'<div class="lost"><p>{escape(lost_text(report))}</p><ul>{rows}</ul></div>'
    yield _tiles(report)


def _tiles(report: RunReport) -> str:
    counts = outcome_counts(report)
    tiles = [(str(len(report.leaders)), "candidates measured")]
    if counts.get("cache_hit"):
        tiles.append((str(counts["cache_hit"]), "suggestions already known"))
    tiles += [(str(n), name) for name, n in counts.items() if name not in ("feasible", "cache_hit")]
    best = report.best
    if best is not None:
        if report.scoring.sla is not None:
            tiles.append((percent(in_sla(best.metrics)), "of the requests of the best in SLA"))
        for key, title in (("mean_ttft_ms", "mean TTFT"), ("mean_itl_ms", "mean ITL")):
            if key in best.metrics:
                tiles.append((number(best.metrics[key]), f"{title} of the best, ms"))
        tiles.append((f"{best.avg_gpu:.4g}", "GPUs of the best"))
    if report.extras.wall is not None:
        tiles.append((duration(report.extras.wall), "wall time"))
    cells = "".join(f'<div class="tile"><b>{escape(v)}</b><span>{escape(t)}</span></div>' for v, t in tiles)
    return f'<div class="tiles">{cells}</div>'


def _plot(element: str, figure: str) -> str:
    return (
        f'<div id="{element}"></div>\n<script>{{ const f = {figure};\n'
        f'Plotly.newPlot("{element}", f.data, f.layout, {{responsive: true, displaylogo: false}});'
        " }</script>"
    )


def _pictures(report: RunReport) -> Iterable[str]:
    if not report.leaders:
        return
    workers = "" if report.best is None else workers_chart(report.best)
    if workers:
        yield "<h2>Workers of the best deployment</h2>"
        yield _plot("workers", workers)
        yield "<p class='note'>Starting and draining workers hold their GPUs, and are counted.</p>"
    if report.scoring.is_pareto:
        yield "<h2>The front</h2>"
        yield _plot("front", front_chart(report))
        volume = volume_chart(report)
        if volume:
            yield "<h2>Progress</h2>"
            yield _plot("volume", volume)
        return
    yield "<h2>Progress</h2>"
    yield _plot("progress", progress_chart(report))
    yield "<h2>Speed for one user against work per GPU</h2>"
    yield _plot("tradeoff", tradeoff_chart(report))


def _table(columns: Sequence[str], rows: Iterable[str], numeric: Sequence[str] = (), kind: str = "") -> str:
    head = "".join(f'<th class="{"n" if c in numeric else ""}">{escape(c)}</th>' for c in columns)
    inner = "\n".join(rows)
    return f'<div class="scroll {kind}"><table><tr>{head}</tr>\n{inner}\n</table></div>'


def _candidates(report: RunReport) -> Iterable[str]:
    if not report.leaders:
        return
    numbers = _number_columns(report)
    numeric = [title for title, _ in numbers]
    columns = ["#", "mode", "backend", "workers", "batching", "router", "planner", *numeric]
    share = "" if report.scoring.sla is None else " In SLA: the requests that met it."
    yield (
        f"<h2>Candidates</h2>\n<p class='note'>The first {min(TOP, len(report.leaders))} of "
        f"{len(report.leaders)}; all of them are in candidates.csv. Workers and batching (batched tokens / "
        "sequences) of a disaggregated candidate: prefill, then decode. GPUs: average over the replay."
        f"{share}</p>"
    )
    rows = (_candidate(report, leader, numbers) for leader in report.leaders[:TOP])
    yield _table(columns, rows, ["#", *numeric], "candidates")


NumberColumn = tuple[str, Callable[[Leader], str]]


def _number_columns(report: RunReport) -> list[NumberColumn]:
    """Heading and content of the numeric columns; those with nothing to tell are left out."""
    columns: list[NumberColumn] = [("GPUs", lambda c: f"{c.avg_gpu:.4g}")]
    if any(load_text(leader.config) for leader in report.leaders):  # each candidate has its own load
        columns.append(("in flight", lambda c: (load_text(c.config) or "-").removesuffix(" in flight")))
    columns += [(goal_row(name).unit, _value(at)) for at, name in enumerate(report.objectives)]
    if report.scoring.sla is not None:
        columns.append(("in SLA", lambda c: percent(in_sla(c.metrics))))
    columns.append(("mean TTFT ms", _metric("mean_ttft_ms")))
    if any("p95_ttft_ms" in leader.metrics for leader in report.leaders):
        columns.append(("p95 TTFT ms", _metric("p95_ttft_ms")))
    columns.append(("mean ITL ms", _metric("mean_itl_ms")))
    if "throughput_per_gpu" not in report.objectives:
        columns.append(("tok/s/GPU", lambda c: number(per_gpu(c))))
    if "throughput_per_user" not in report.objectives:
        columns.append(("tok/s/user", lambda c: number(per_user(c))))
    return columns


def _metric(key: str) -> Callable[[Leader], str]:
    return lambda leader: number(leader.metrics.get(key))


def _value(at: int) -> Callable[[Leader], str]:
    """The objective at that place, with its spread where it was measured repeatedly."""

    def text(leader: Leader) -> str:
        value = number(leader.values[at])
        return f"{value} ± {number(leader.std[at])}" if leader.std else value

    return text


def _candidate(report: RunReport, leader: Leader, numbers: Sequence[NumberColumn]) -> str:
    config = leader.config
    star = " ★" if leader.key == report.knee else ("" if not leader.on_front else " ●")
    words = [config["deployment_mode"], config["backend"], parallel_text(config), batching_text(config)]
    words += [router_text(config), policy_text(config) or "static"]
    cells = f'<td class="n">{leader.rank}{star}</td>'
    cells += "".join(f'<td class="code">{escape(str(word))}</td>' for word in words)
    cells += "".join(f'<td class="n">{escape(text(leader))}</td>' for _, text in numbers)
    mark = ' class="first"' if report.best is not None and leader.key == report.best.key else ""
    return f"<tr{mark}>{cells}</tr>"


def _knobs(report: RunReport) -> Iterable[str]:
    effects = knob_effects(report)
    if not effects:
        return
    unit = goal_row(report.objectives[0]).unit
    yield "<h2>What the knobs did</h2>"
    yield (
        "<p class='note'>The best and the mean of the measured candidates per value, the most telling knob "
        "first. The search looks harder where results are good, so means flatter good values.</p>"
    )
    rows = (row for effect in effects for row in _knob(effect))
    yield _table(
        ["knob", "value", "candidates", f"best, {unit}", "", "mean"], rows, ["candidates", "mean"], "knobs"
    )


def _knob(effect: KnobEffect) -> Iterable[str]:
    top = max(abs(v.best) for v in effect.values) or 1.0
    for index, value in enumerate(effect.values):
        name = escape(effect.knob) if index == 0 else ""
        width = round(160 * abs(value.best) / top)
        yield (
            f'<tr><td class="code">{name}</td><td class="code">{escape(value.value)}</td>'
            f'<td class="n">{value.count}</td><td class="n">{number(value.best)}</td>'
            f'<td><span class="bar" style="width:{width}px"></span></td>'
            f'<td class="n">{number(value.mean)}</td></tr>'
        )


def _others(report: RunReport) -> Iterable[str]:
    if not report.reasons:
        return
    yield "<h2>Why others fell</h2>"
    rows = (
        f'<tr><td class="n">{r.count}</td><td>{escape(r.branch)}</td>'
        f'<td><span class="tag {escape(r.outcome)}">{escape(r.outcome)}</span></td>'
        f"<td>{escape(r.reason)}</td></tr>"
        for r in report.reasons
    )
    yield _table(["times", "branch", "outcome", "reason"], rows, ["times"])


def _not_searched(report: RunReport) -> Iterable[str]:
    if not report.not_searched and not report.shapes_dropped:
        return
    yield "<h2>What was not searched</h2>"
    if report.not_searched:
        yield _ruled_out(report.not_searched)
    if report.shapes_dropped:
        yield f"<details><summary>{len(report.shapes_dropped)} worker shapes ruled out</summary>"
        yield _ruled_out(report.shapes_dropped)
        yield "</details>"


def _ruled_out(items: Sequence[NotSearched]) -> str:
    rows = (
        f'<tr><td class="code">{escape(i.what)}</td><td>{escape(i.reason)}</td>'
        f"<td>{escape(i.detail)}</td></tr>"
        for i in items
    )
    return _table(["what", "reason", ""], rows, kind="ruled")


def _run(report: RunReport) -> Iterable[str]:
    yield "<h2>The run</h2>"
    rows = (
        f'<tr><td class="code">{escape(b.name)}</td><td class="n">{b.rounds}</td>'
        f'<td class="n">{b.suggestions}</td>'
        f'<td class="n">{b.replays}</td><td class="n">{b.cache_hits}</td><td class="n">{b.feasible}</td>'
        f"<td>{escape(b.stopped)}</td></tr>"
        for b in report.branches
    )
    numeric = ["rounds", "suggestions", "replays", "already known", "feasible"]
    yield _table(["branch", *numeric, "ended"], rows, numeric)
    extras = report.extras
    notes = [f"{n} replays saved: {reason}" for reason, n in extras.saved]
    notes += [f"confirmation: {text}" for text in extras.comparisons]
    notes += [f"warning: {text}" for text in extras.warnings]
    if extras.stop:
        notes.append(f"the sweep was stopped early: {extras.stop}")
    if extras.suggesting is not None and extras.evaluating is not None:
        spent = f"{duration(extras.suggesting)} suggesting, {duration(extras.evaluating)} evaluating"
        notes.append(f"{spent} (all workers together)")
    if notes:
        yield "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield f"<p class='note'>Run {escape(report.name)}, seed {report.seed}. {escape(versions)}.</p>"
    yield f"<details><summary>Configuration</summary><pre>{escape(report.config_text)}</pre></details>"
