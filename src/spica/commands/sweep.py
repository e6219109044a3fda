"""``spica sweep``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from spica.api import Run, RunOptions, run, source_of
from spica.commands.console import err, out, print_json
from spica.errors import EXIT_NOTHING_FEASIBLE, EXIT_OK, SweepInterrupted
from spica.facts import sku_facts
from spica.report.live import LiveProgress
from spica.report.tables import candidates_json
from spica.report.terminal import result_view
from spica.report.write import deployed
from spica.ship.launch import fits_one_node
from spica.sweep import raise_if_interrupted
from spica.sweep.prepare import scoring_of_goal


@dataclass(frozen=True, slots=True)
class SweepCommand:
    """The arguments of ``spica sweep``."""

    config: Path | None
    as_json: bool
    options: RunOptions = field(default_factory=RunOptions)


def sweep_command(command: SweepCommand) -> int:
    """Run the sweep, show the result, return the exit code."""
    source = source_of(command.config, command.options)
    try:
        with LiveProgress(err(), scoring_of_goal(source.config).targets) as live:
            done = run(source, command.options, live)
    except KeyboardInterrupt:
        # Once the search runs, an interrupt is no exception but a request, see ``spica.sweep.interrupts``.
        kept = "nothing was written" if command.options.resume is None else "the run is as it was"
        raise SweepInterrupted(f"interrupted before anything was measured; {kept}") from None
    show(done, command.as_json)
    raise_if_interrupted(done.result, str(done.folder))
    return EXIT_OK if done.result.best else EXIT_NOTHING_FEASIBLE


def show(done: Run, as_json: bool) -> None:
    """The result on stdout."""
    if as_json:
        print_json({"folder": str(done.folder), **candidates_json(done.report)})
        return
    console = out()
    console.print(result_view(done.report))
    lines = ["", f"report      {done.folder / 'report.html'}"]
    best = deployed(done.report)
    if best:
        own = done.folder / "deploy" / f"rank-{best[0].rank}"
        lines.append(f"deploy it   kubectl apply -f {own / 'graph.yaml'}")
        if fits_one_node(best[0].config, sku_facts(done.report.hardware).gpus_per_node):
            lines.append(f"            or, on one node: sh {own / 'launch.sh'}")
        lines.append(f"again       spica sweep {own / 'repin.yaml'}")
    for line in lines:
        console.print(line, soft_wrap=True)  # a path stays whole, to be copied
