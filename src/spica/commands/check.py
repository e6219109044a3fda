"""``spica check``: what a sweep of a configuration would search."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from spica.branches.space import space_json
from spica.commands.console import err, out, print_json
from spica.config.load import load_config
from spica.errors import EXIT_OK
from spica.goals.targets import goal as goal_row
from spica.report.collect import traffic_text
from spica.report.space import space_view
from spica.sweep.prepare import prepare, scoring_of_goal


def check_command(path: Path, overrides: tuple[str, ...], verbose: bool, as_json: bool) -> int:
    """Load, enumerate and show; nothing is replayed. The exit code."""
    loaded = load_config(path, overrides)
    with loaded.locating():
        prepared = prepare(loaded.config)
    warnings = (*loaded.warnings, *prepared.warnings)
    if as_json:
        document = space_json(prepared.plan)
        document["warnings"] = list(warnings)
        document["config"] = str(path)
        print_json(document)
        return EXIT_OK
    space, goal = loaded.config.search_space, scoring_of_goal(loaded.config)
    console = out()
    console.print(
        Text(f"{space.model_name} on up to {space.gpu_budget} x {space.hardware_sku}", style="bold")
    )
    console.print(f"traffic: {traffic_text(loaded.config.workload.model_dump(mode='json'))}")
    titles = " and ".join(goal_row(name).title for name in goal.targets)
    console.print(f"goal: {'the trade-off of ' if goal.is_pareto else ''}{titles}")
    source = "context_length" if space.context_length else "the model's maximum"
    console.print(f"KV caches must hold {prepared.plan.max_seq_len} tokens ({source})\n")
    console.print(space_view(prepared.plan, verbose=verbose))
    for warning in warnings:
        err().print(Text(f"warning: {warning}", style="yellow"))
    return EXIT_OK
