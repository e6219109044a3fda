"""``spica models``, ``spica hardware``, ``spica --version``."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rich.table import Table

from spica.commands.console import human_bytes, out, print_json, print_whole
from spica.errors import InputError, Problem, nearest
from spica.versions import all_versions

if TYPE_CHECKING:
    from spica.facts.catalog import HardwareRow, ModelRow


def matching(pattern: str | None, names: tuple[str, ...], what: str) -> list[str]:
    """The names that hold ``pattern`` (case ignored; ``*`` and ``?`` match as in a shell), all without one.

    Raises InputError with the nearest name when none does.
    """
    if not pattern:
        return list(names)
    wanted = pattern.lower()
    glob = wanted if any(c in wanted for c in "*?[") else f"*{wanted}*"
    found = [name for name in names if fnmatchcase(name.lower(), glob)]
    if not found:
        raise InputError(Problem(f"no {what} matches '{pattern}'", suggestion=nearest(pattern, names) or ""))
    return found


def print_models(pattern: str | None, as_json: bool) -> None:
    """List the shipped models."""
    from spica.facts.catalog import model_rows

    rows = {row.name: row for row in model_rows()}
    chosen = [rows[name] for name in matching(pattern, tuple(rows), "model")]
    if as_json:
        print_json([_model_json(row) for row in chosen])
        return
    table = Table(box=None, pad_edge=False)
    for name, justify in (("model", "left"), ("kind", "left"), ("context", "right"), ("weights", "left")):
        table.add_column(name, justify="right" if justify == "right" else "left", no_wrap=True)
    for row in chosen:
        kind = "MoE" if row.is_moe else "dense"
        table.add_row(row.name, kind, str(row.context_length), row.quantization or "16 bit")
    print_whole(table)
    out().print(f"{len(chosen)} of {len(rows)} models; a folder with a config.json may be given instead")


def _model_json(row: ModelRow) -> dict[str, str | int | bool | None]:
    return {
        "name": row.name,
        "architecture": row.architecture,
        "is_moe": row.is_moe,
        "context_length": row.context_length,
        "quantization": row.quantization,
    }


def print_hardware(pattern: str | None, as_json: bool) -> None:
    """List the SKUs with the backends that have performance data on them."""
    from spica.facts.catalog import hardware_rows

    rows = {row.name: row for row in hardware_rows()}
    chosen = [rows[name] for name in matching(pattern, tuple(rows), "SKU")]
    if as_json:
        print_json([_hardware_json(row) for row in chosen])
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("SKU", no_wrap=True)
    table.add_column("memory", justify="right")
    table.add_column("GPUs/node", justify="right")
    table.add_column("backends with performance data", no_wrap=True)
    for row in chosen:
        backends = ", ".join(f"{name} {version}" for name, version in row.backends) or "none"
        table.add_row(row.name, human_bytes(row.vram_bytes), str(row.gpus_per_node), backends)
    print_whole(table)


def _hardware_json(row: HardwareRow) -> dict[str, str | int | dict[str, str]]:
    return {
        "name": row.name,
        "gpus_per_node": row.gpus_per_node,
        "vram_bytes": row.vram_bytes,
        "backends": dict(row.backends),
    }


def print_versions(as_json: bool = False) -> None:
    """Spica's version and those of the components it stands on."""
    versions = all_versions()
    if as_json:
        print_json(versions)
        return
    print(f"spica {versions.pop('spica')}")
    for name, version in versions.items():
        print(f"  {name} {version}")
