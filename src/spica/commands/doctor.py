"""``spica doctor``: does this machine have what a sweep needs, shown by using it."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import platformdirs
import psutil
from packaging.requirements import Requirement

from spica.api import run_smart_search
from spica.commands.console import human_bytes, out, print_json
from spica.errors import EXIT_OK, EXIT_STACK, SpicaError
from spica.evaluate.pool import default_jobs
from spica.facts.catalog import hardware_rows, model_rows
from spica.versions import STACK

#: What one worker takes while it replays an ordinary candidate (bench/README.md), and the least of disk.
_WORKER_BYTES: Final = 2**30
_DISK_BYTES: Final = 2**30
_SETUP: Final = "make setup"
#: One small deployment, replayed once: about the least that exercises enumeration, workers and the ledger.
_PROBE: Final[dict[str, dict[str, object]]] = {
    "search_space": {
        "model_name": "Qwen/Qwen3-32B",
        "hardware_sku": "h200_sxm",
        "gpu_budget": 2,
        "deployment_mode": ["agg"],
        "backend": ["vllm"],
        "parallel_configs": [{"tp": 2}],
        "agg_max_num_batched_tokens": [8192],
        "agg_max_num_seqs": [256],
        "router_mode": ["round_robin"],
        "planner_scaling_policy": ["disabled"],
    },
    "workload": {"isl": 512, "osl": 64, "concurrency": 4, "num_request_ratio": 2},
    "sweep": {"max_rounds": 1, "parallel_evals": 1},
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what was found, and when it is not ``ok``, what to do."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def doctor_command(as_json: bool) -> int:
    """Look at everything, print it, and return 0, or 3 when a sweep would not work."""
    findings = []
    for look in (_python, _processor, _disk, _cache, _stack, _data, _replay):
        for finding in look():
            findings.append(finding)
            if not as_json:
                _print(finding)
    well = all(finding.ok for finding in findings)
    if as_json:
        print_json({"ok": well, "findings": [asdict(finding) for finding in findings]})
    elif well:
        out().print("all is well: spica init, spica check, spica sweep")
    return EXIT_OK if well else EXIT_STACK


def _print(finding: Finding) -> None:
    console = out()
    console.print(f"{'ok  ' if finding.ok else 'BAD '} {finding.name:<18} {finding.found}")
    if finding.remedy:
        console.print(f"{'':<24}{finding.remedy}")


def _python() -> Iterator[Finding]:
    wanted = metadata.metadata("spica")["Requires-Python"]
    version = platform.python_version()
    right = Requirement(f"python{wanted}").specifier.contains(version)
    remedy = "" if right else f"Spica takes Python {wanted}: make clean, then {_SETUP} with another python3"
    yield Finding("python", right, f"{version} ({platform.system()} {platform.machine()})", remedy)


def _processor() -> Iterator[Finding]:
    jobs, free = default_jobs(), psutil.virtual_memory().available
    yield Finding("processor", True, f"{os.cpu_count()} cores, {jobs} replays at once (--jobs)")
    enough = free >= jobs * _WORKER_BYTES
    fewer = max(1, int(free // _WORKER_BYTES))
    remedy = "" if enough else f"each replay takes about 1 GiB: --jobs {fewer}"
    yield Finding("memory", enough, f"{human_bytes(free)} free", remedy)


def _disk() -> Iterator[Finding]:
    for name, folder in (("run folder", Path.cwd()), ("temporary folder", Path(tempfile.gettempdir()))):
        yield _place(name, folder)


def _cache() -> Iterator[Finding]:
    folder = Path(platformdirs.user_cache_dir("spica"))
    there = next(part for part in (folder, *folder.parents) if part.exists())
    yield _place("cache folder", there, folder)


def _place(name: str, folder: Path, shown: Path | None = None) -> Finding:
    """Whether a folder can be written, shown by writing in it, and has room."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
        free = shutil.disk_usage(folder).free
    except OSError as error:
        said = f"{shown or folder}: {error.strerror}"
        return Finding(name, False, said, "give it another place, or the right to write there")
    enough = free >= _DISK_BYTES
    remedy = "" if enough else "make room: a long run and its tables take up to 1 GiB"
    return Finding(name, enough, f"{shown or folder}, {human_bytes(free)} free", remedy)


def _stack() -> Iterator[Finding]:
    """The pinned components against what is installed."""
    for text in metadata.requires("spica") or ():
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Finding(requirement.name, False, "not installed", _SETUP)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            yield Finding(requirement.name, False, f"{version}, not {requirement.specifier}", _SETUP)
        elif requirement.name in STACK:
            yield Finding(requirement.name, True, version)


def _data() -> Iterator[Finding]:
    def count() -> str:
        skus = [row for row in hardware_rows() if row.backends]
        if not skus:
            raise SpicaError("no SKU has performance data")
        return f"{len(model_rows())} models, {len(skus)} SKUs with measured operations"

    yield _tried("performance data", count)


def _replay() -> Iterator[Finding]:
    def replay() -> str:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="spica-doctor-") as folder:
            best = run_smart_search(_PROBE, out=Path(folder) / "run", jobs=1).best
        if best is None:
            raise SpicaError("a small deployment that ran elsewhere is not feasible here")
        return f"a small deployment was replayed from end to end in {time.monotonic() - began:.1f} s"

    yield _tried("a sweep", replay)


def _tried(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, look())
    except SpicaError as error:
        return Finding(name, False, str(error), _SETUP)
    except ImportError as error:
        return Finding(name, False, f"cannot be imported: {error}", _SETUP)
