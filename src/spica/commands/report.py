"""``spica report``: write a run's reports again and show its result."""

from __future__ import annotations

from pathlib import Path

from spica.commands.console import err, out, print_json
from spica.errors import EXIT_NOTHING_FEASIBLE, EXIT_OK
from spica.report.again import report_run
from spica.report.tables import candidates_json
from spica.report.terminal import result_view


def report_command(folder: Path, as_json: bool, *, intact: bool = False) -> int:
    """The exit code: 1 when nothing in the run is feasible, or meets the SLA."""
    report, kept = report_run(folder, intact=intact)
    if kept:
        err().print(f"warning: {kept}")
    if as_json:
        print_json({"folder": str(folder), **candidates_json(report)})
    else:
        out().print(result_view(report))
        if not kept:
            out().print(f"\nreport      {folder / 'report.html'}", soft_wrap=True)
    return EXIT_OK if report.best else EXIT_NOTHING_FEASIBLE
