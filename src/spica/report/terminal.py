"""The result of a sweep on a terminal of 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from spica.goals.targets import goal as goal_row
from spica.report.data import Leader, RunReport
from spica.report.insight import lost_text, why_best, why_none
from spica.report.numbers import (
    batching_text,
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

TOP = 10
#: Columns that a deployment needs beside the numbers: the shapes of a disaggregated one in two lines.
BESIDE = 22
#: Lines about damage of the record; a whole page of them tells no more.
DAMAGE_SHOWN = 10
#: Lines about lost trials; the page has all of them.
LOST_SHOWN = 10


def result_view(report: RunReport, *, top: int = TOP) -> RenderableType:
    """Headline and SLA, the first ``top`` candidates, why the first one, what became of the others."""
    heads = [headline(report), sla_text(report.scoring.sla)]
    parts: list[RenderableType] = [Text(line, style="bold") for line in heads if line is not None]
    parts.append(Text())
    if report.leaders:
        parts.append(_Candidates(report, top))
    parts += [Text(line) for line in _below(report, top)]
    return Group(*parts)


def headline(report: RunReport) -> str:
    """What was asked: model, GPUs, traffic, goal."""
    goal = " and ".join(goal_row(name).title for name in report.objectives)
    return (
        f"{report.model} on up to {report.gpu_budget} x {report.hardware}; {report.traffic}; "
        f"{'trade-off of' if report.scoring.is_pareto else 'best'} {goal}"
    )


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The first ``top`` candidates: the numbers, and beside them what each one is; below them where the
    numbers leave too little room."""

    report: RunReport
    top: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers = self._table(_columns(self.report), with_what=False)
        if options.max_width - Measurement.get(console, options, numbers).maximum >= BESIDE:
            yield self._table(_columns(self.report), with_what=True)
        else:
            yield numbers
            yield Text()
            yield self._table([], with_what=True)

    def _table(self, columns: list[str], *, with_what: bool) -> Table:
        report = self.report
        table = Table(box=None, pad_edge=False, padding=(0, 1), show_edge=False)
        table.add_column("#", justify="right", no_wrap=True, style="bold")
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        if with_what:
            table.add_column("deployment", overflow="fold")
        shown = report.front if report.scoring.is_pareto else report.leaders
        for leader in shown[: self.top]:
            mark = "*" if leader.key == report.knee else ""
            what = [_what(leader, between="\n" if columns else ", ")] if with_what else []
            table.add_row(f"{mark}{leader.rank}", *(_numbers(report, leader) if columns else []), *what)
        return table


def _with_rate(report: RunReport) -> bool:
    """Whether tok/s/GPU has a column of its own: it is no objective, and 80 columns have room for it."""
    crowded = report.scoring.sla is not None and report.scoring.is_pareto
    return "throughput_per_gpu" not in report.objectives and not crowded


def _columns(report: RunReport) -> list[str]:
    """Headings of the numbers; two lines where one would be wider than what stands below it."""
    units = [goal_row(name).unit.replace("good ", "good\n") for name in report.objectives]
    share = [] if report.scoring.sla is None else ["in\nSLA"]
    rate = ["tok/s\n/GPU"] if _with_rate(report) else []
    return [*units, *share, "GPUs", "mean\nTTFT ms", "mean\nITL ms", *rate]


def _numbers(report: RunReport, leader: Leader) -> list[str]:
    """The numbers of a candidate, one per heading of ``_columns``; a spread stands below its value."""
    spread = leader.std or (None,) * len(leader.values)
    values = [
        number(v) if s is None else f"{number(v)}\n±{number(s)}"
        for v, s in zip(leader.values, spread, strict=True)
    ]
    share = [] if report.scoring.sla is None else [percent(in_sla(leader.metrics))]
    gpus = f"{leader.avg_gpu:.1f}" if abs(leader.avg_gpu - leader.used_gpus) > 0.05 else str(leader.used_gpus)
    latencies = [number(leader.metrics.get(key)) for key in ("mean_ttft_ms", "mean_itl_ms")]
    rate = leader.metrics.get("output_throughput_tok_s")
    per_gpu = None if rate is None or leader.avg_gpu <= 0 else rate / leader.avg_gpu
    return [*values, *share, gpus, *latencies, *([number(per_gpu)] if _with_rate(report) else [])]


def _what(leader: Leader, *, between: str) -> Text:
    config = leader.config
    lines = f"{config['deployment_mode']} {config['backend']} {parallel_text(config)}{between}"
    lines += f"batch {batching_text(config)}, {router_text(config)}"
    for more in (policy_text(config), load_text(config)):
        if more is not None:
            lines += f", {more}"
    return Text(lines)


def _volumes(report: RunReport) -> Iterator[str]:
    """The hypervolume of a Pareto goal's front as it grew, round by round."""
    rounds = report.extras.hypervolumes
    if rounds:
        units = " x ".join(goal_row(name).unit for name in report.objectives)
        grown = ", ".join(f"{volume:,.0f} ({replays} replays)" for replays, volume in rounds)
        yield f"  hypervolume per round, {units}: {grown}"


def _below(report: RunReport, top: int) -> Iterator[str]:
    yield ""
    if report.damage:
        yield f"The record is damaged; what follows rests on what is intact. Left out ({len(report.damage)}):"
        yield from (f"  {line}" for line in report.damage[:DAMAGE_SHOWN])
        if len(report.damage) > DAMAGE_SHOWN:
            yield f"  and {len(report.damage) - DAMAGE_SHOWN} more"
    best = report.best
    if best is None:
        yield why_none(report)
    else:
        mark = " (* in the table)" if report.scoring.is_pareto else ""
        yield f"Best{mark}: {values_text(best.values, report.objectives)}"
        for line in why_best(report):
            yield f"  {line}"
    if report.lost:
        yield lost_text(report)
        yield from (f"  {trial}: {reason}" for trial, reason in report.lost[:LOST_SHOWN])
        if len(report.lost) > LOST_SHOWN:
            yield f"  and {len(report.lost) - LOST_SHOWN} more, in the report"
    yield from _volumes(report)
    hidden = len(report.front if report.scoring.is_pareto else report.leaders) - top
    if hidden > 0:
        yield f"  {hidden} more candidates are in the report"
    yield ""
    counts = ", ".join(f"{count} {name}" for name, count in outcome_counts(report).items())
    yield f"{len(report.trials)} suggestions: {counts or 'none'}"
    for reason in report.reasons[:5]:
        yield f"  {reason.count} x {reason.branch} {reason.outcome}: {reason.reason}"
    if len(report.reasons) > 5:
        yield f"  and {len(report.reasons) - 5} other reasons in the report"
    if report.extras.wall is not None:
        suggesting, evaluating = report.extras.suggesting or 0.0, report.extras.evaluating or 0.0
        yield (
            f"{duration(report.extras.wall)} in all; {duration(suggesting)} suggesting, "
            f"{duration(evaluating)} evaluating (all workers together)"
        )
