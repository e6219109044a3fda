"""Writing all reports of a run folder from its ledger; can be repeated at any time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from spica.record.runfolder import temporary_folder, write_bytes, write_text
from spica.report.data import Leader, RunReport
from spica.report.html import report_html
from spica.report.numbers import values_text
from spica.report.tables import candidate_rows, to_csv, to_json, to_parquet, trial_rows
from spica.ship.launch import launch_script
from spica.ship.manifests import DeployContext, graph_yaml
from spica.ship.repin import repin_text

#: Candidates for which files to deploy are written.
DEPLOYED = 3


def write_reports(folder: Path, report: RunReport, config: dict[str, Any], context: DeployContext) -> None:
    """``candidates.json`` and ``.csv``, ``trials.csv`` and ``.parquet``, ``report.html``, ``deploy/``.

    ``config`` is the resolved configuration in its YAML form.
    """
    write_text(folder / "candidates.json", to_json(report))
    write_text(folder / "candidates.csv", to_csv(candidate_rows(report)))
    rows = trial_rows(report)
    write_text(folder / "trials.csv", to_csv(rows))
    write_bytes(folder / "trials.parquet", to_parquet(rows))
    write_text(folder / "report.html", report_html(report))
    _deploy(folder / "deploy", report, config, context)


def preload() -> None:
    """Import what reports need (a second or more), for a background thread while replays run: a sweep that
    is interrupted must have its results written within seconds."""
    import plotly.graph_objects as go

    go.Figure(go.Scatter())
    to_parquet([])


def deployed(report: RunReport) -> tuple[Leader, ...]:
    """The candidates worth deploying: the best, then the next of the ranking or the front."""
    best = report.best
    if best is None:
        return ()
    pool = report.front if report.scoring.is_pareto else report.leaders
    return (best, *[leader for leader in pool if leader.key != best.key][: DEPLOYED - 1])


def _deploy(folder: Path, report: RunReport, config: dict[str, Any], context: DeployContext) -> None:
    """Written beside the old one, which it then replaces: never a mixture of two rankings."""
    new = temporary_folder(folder)
    for leader in deployed(report):
        own = new / f"rank-{leader.rank}"
        own.mkdir()
        name = f"{report.model.split('/')[-1]}-{leader.config['deployment_mode']}-{leader.rank}"
        write_text(own / "graph.yaml", graph_yaml(leader.config, context, name))
        write_text(own / "launch.sh", launch_script(leader.config, context))
        values = values_text(leader.values, report.objectives)
        told = f"Rank {leader.rank} of {report.name}, pinned: {values}."
        write_text(own / "repin.yaml", repin_text(config, leader.config, told))
        write_text(own / "candidate.json", json.dumps(leader.config, indent=1) + "\n")
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    if any(new.iterdir()):
        new.replace(folder)
    else:
        new.rmdir()
