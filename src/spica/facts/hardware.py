"""SKUs and the backends that have performance data on them, read from the installed performance database."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from spica.errors import NoPerfDatabase, Problem, nearest
from spica.storage.remembered import remembered

BACKENDS = ("vllm", "sglang", "trtllm")


@dataclass(frozen=True, slots=True)
class SkuFacts:
    """One kind of GPU in its node. Memory is in bytes per GPU, as the SKU's system file states it."""

    name: str
    gpus_per_node: int
    vram_bytes: int
    gpus_per_rack: int | None = None


@lru_cache(maxsize=1)
def known_skus() -> tuple[str, ...]:
    """Every SKU with a system file, sorted; some of them have no performance data for any backend."""
    from aisimulate_core.sdk import perf_database

    files = [f for root in perf_database.get_systems_paths() for f in Path(root).glob("*.yaml")]
    # The folder also holds tables that are not systems; only a system states the size of a node.
    return tuple(sorted({f.stem for f in files if "num_gpus_per_node:" in f.read_text(encoding="utf-8")}))


@lru_cache(maxsize=64)
def sku_facts(sku: str) -> SkuFacts:
    """Facts of ``sku``.

    Raises NoPerfDatabase when there is no system file of that name.
    """
    from aisimulate_core.sdk import perf_database

    if sku not in known_skus():
        raise NoPerfDatabase(_unknown_sku(sku))
    spec = perf_database.load_system_spec(sku)
    rack = spec["node"].get("num_gpus_per_rack")
    return SkuFacts(
        name=sku,
        gpus_per_node=int(spec["node"]["num_gpus_per_node"]),
        vram_bytes=int(spec["gpu"]["mem_capacity"]),
        gpus_per_rack=None if rack is None else int(rack),
    )


def supported_backends(sku: str) -> dict[str, str]:
    """``{backend: default version}`` of the backends with performance data on ``sku``; may be empty.

    Raises NoPerfDatabase when the SKU is unknown.
    """
    sku_facts(sku)
    versions = ((backend, _default_version(sku, backend)) for backend in BACKENDS)
    return {backend: version for backend, version in versions if version is not None}


def resolve_backend_version(sku: str, backend: str) -> str:
    """The version of ``backend`` whose performance data on ``sku`` is used by default.

    Raises NoPerfDatabase when the SKU or the backend is unknown, or the pair has no data.
    """
    sku_facts(sku)
    if backend not in BACKENDS:
        raise NoPerfDatabase(
            Problem(
                message=f"unknown backend '{backend}'",
                key="search_space.backend",
                suggestion=nearest(backend, BACKENDS) or "",
                allowed=", ".join(BACKENDS),
            )
        )
    version = _default_version(sku, backend)
    if version is None:
        raise NoPerfDatabase(_no_data(sku, backend))
    return version


@lru_cache(maxsize=256)
def _default_version(sku: str, backend: str) -> str | None:
    from aisimulate_core.sdk import perf_database

    # The SDK reads the manifest of all its tables for this, in a second, in every process.
    roots = [Path(root) for root in perf_database.get_systems_paths()]
    dates = [str(file.stat().st_mtime_ns) for root in roots for file in sorted(root.glob("*.yaml"))]
    question = ["default version", sku, backend, *map(str, roots), *dates]
    version = remembered(question, lambda: _asked_version(sku, backend))
    return None if version is None else str(version)


def _asked_version(sku: str, backend: str) -> str | None:
    from aisimulate_core.sdk import perf_database

    # The maintained default of a pair is its current slot; asking for that spares a scan of all SKUs.
    slots = perf_database.get_version_slots(sku, backend)
    if slots is not None:
        return str(slots["current"])
    version = perf_database.get_latest_database_version(sku, backend)
    return None if version is None else str(version)


def _unknown_sku(sku: str) -> Problem:
    known = known_skus()
    return Problem(
        message=f"unknown SKU '{sku}'",
        key="search_space.hardware_sku",
        suggestion=nearest(sku, known) or "",
        allowed=", ".join(known),
        remedy="`spica hardware` lists the SKUs, their memory and their backends",
    )


def _no_data(sku: str, backend: str) -> Problem:
    here = supported_backends(sku)
    elsewhere = [s for s in known_skus() if s != sku and _default_version(s, backend) is not None]
    return Problem(
        message=f"no performance data for {backend} on {sku}",
        key="search_space.backend",
        allowed=(
            f"on {sku}: {', '.join(f'{b} {v}' for b, v in here.items()) or 'no backend at all'}; "
            f"{backend} has data on {', '.join(elsewhere) or 'no SKU'}"
        ),
        remedy="choose a backend or a SKU with data; `spica hardware` lists both",
    )
