"""``spica predictors``: the load-predictor sub-sweep alone."""

from __future__ import annotations

import math
from pathlib import Path

from rich.table import Table
from rich.text import Text

from spica.commands.console import err, out, print_json
from spica.config.load import load_config
from spica.errors import InputError, Problem, unwritable
from spica.evaluate.pool import default_jobs
from spica.planner.predictor_sweep import LossRow, PredictorSweepResult
from spica.record.runfolder import write_text
from spica.report.numbers import number
from spica.report.predictor_page import predictor_plot
from spica.sweep.prepare import choose_predictors, read_workload_trace


def predictors_command(
    path: Path, overrides: tuple[str, ...], html: Path | None, jobs: int | None, as_json: bool
) -> None:
    """Score the predictors on the configuration's trace, for the intervals its policies use."""
    if html is not None and not html.parent.is_dir():
        raise InputError(Problem(f"there is no folder {html.parent}", "--html", remedy="make it first"))
    loaded = load_config(path, overrides)
    for warning in loaded.warnings:
        err().print(Text(f"warning: {warning}", style="yellow"))
    with loaded.locating():
        trace = read_workload_trace(loaded.config)

    def progress(done: int, total: int) -> None:
        err().print(f"{done}/{total} predictors scored", end="\r" if err().is_terminal else "\n")

    result = choose_predictors(loaded.config, trace, jobs=jobs or default_jobs(), progress=progress)
    if as_json:
        print_json({"reason": result.reason, "losses": [_row_json(row) for row in result.table()]})
    else:
        _show(result)
    if html is not None:
        try:
            write_text(html, predictor_plot(result))
        except OSError as error:
            raise unwritable(html, error, key="--html") from None
        err().print(f"plot in {html}")


def _row_json(row: LossRow) -> dict[str, str | int | float | bool | None]:
    return {
        "interval_s": row.interval_s,
        "predictor": row.predictor,
        "loss": row.loss if math.isfinite(row.loss) else None,
        "versus_constant": row.versus_constant,
        "windows": row.windows,
        "candidate": row.candidate,
        "winner": row.winner,
        "cause": row.cause,
        "note": row.note,
    }


def _show(result: PredictorSweepResult) -> None:
    console = out()
    if not result.intervals:
        console.print(f"nothing to choose: {result.reason}")
        return
    for one in result.intervals:
        console.print(f"interval {one.interval_s} s: {one.winner.name} ({one.reason})")
    rows = result.table()
    if not rows:
        return
    table = Table(box=None, pad_edge=False)
    for name in ("interval", "predictor", "loss", "vs constant", "windows"):
        table.add_column(name, justify="left" if name == "predictor" else "right", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in rows:
        versus = "-" if row.versus_constant is None else f"{row.versus_constant:.3f}"
        remark = row.cause or row.note or ("baseline" if not row.candidate else "")
        name = f"{'*' if row.winner else ' '} {row.predictor}"
        cells = [f"{row.interval_s} s", name, number(row.loss), versus, str(row.windows), remark]
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
