"""The reports of a run folder from its record, whoever made it and whenever."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Final

from spica.config import SmartSearchConfig
from spica.config.load import config_from_mapping, dump_resolved
from spica.errors import ConfigError
from spica.record import LEDGER_FILE, corrupted, explain_os
from spica.report.collect import collect
from spica.report.data import RunReport
from spica.report.write import write_reports
from spica.ship.manifests import DeployContext

#: Beside the blocks of a recorded configuration: the digest of the trace it was run on.
TRACE_DIGEST: Final = "trace_sha256"


def recorded_config(folder: Path, config_json: str) -> SmartSearchConfig:
    """The configuration that the run was made with, but for ``parallel_evals``, which changes no result.

    Raises LedgerError when it is none.
    """
    try:
        resolved = dict(json.loads(config_json))
        return config_from_mapping({name: block for name, block in resolved.items() if name != TRACE_DIGEST})
    except (ConfigError, TypeError, ValueError) as error:
        raise corrupted(folder / LEDGER_FILE, f"its configuration is none: {error}") from None


def write_all(folder: Path, config: SmartSearchConfig) -> RunReport:
    """Write the reports of a run folder (again) from its ledger."""
    report = collect(folder)
    write_for(folder, report, config)
    return report


def write_for(folder: Path, report: RunReport, config: SmartSearchConfig) -> None:
    """Write the files of a report into its run folder. Raises OSError."""
    from spica.facts import sku_facts

    sla = config.goal.sla
    context = DeployContext(
        dynamo_version=str(report.versions.get("ai-dynamo", "")),
        gpus_per_node=sku_facts(config.search_space.hardware_sku).gpus_per_node,
        planner_target=config.goal.planner_optimization_target,
        ttft_ms=None if sla is None else sla.ttft_ms,
        itl_ms=None if sla is None else sla.itl_ms,
    )
    write_reports(folder, report, dict(dump_resolved(config)), context)


def report_run(folder: Path, *, intact: bool = False) -> tuple[RunReport, str]:
    """Write a run's reports again, from its record alone: ``config.yaml`` may have been changed since.

    Also returns why they could not be written, where the folder may only be read; else nothing. ``intact``:
    of a damaged record, report what is as it was written (``RunReport.damage`` says what is not).
    Raises LedgerError when there is no run in ``folder``, or it is damaged.
    """
    report = collect(folder, intact=intact)
    config = recorded_config(folder, report.config_json)
    try:
        write_for(folder, report, config)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise explain_os(error, folder) from error
        return report, f"{folder} is read-only: its reports stay as they are"
    return report, ""
