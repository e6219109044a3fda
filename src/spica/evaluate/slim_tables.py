"""A cut-down copy of the performance tables: the same results, read in a fraction of the time.

The runtime reads the tables of a model again for every replay, row by row, and most rows are for other
models: other number formats, head sizes, expert counts. The copy holds only the rows whose exact keys the
model's operations name, and leaves out columns that only say where a row comes from. Nothing that is
interpolated over (tokens, batch, matrix sizes, sequence lengths, heads) is touched.

Whether that is really all the runtime looks at is not assumed but tried: the copy is used for a worker shape
only after a replay on it gave bit for bit what the full tables give. Where it did not, or where the copy
cannot be made, the installed tables are used as ever.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spica.deployment.sample import Backend, Sample
from spica.errors import InputError
from spica.storage.scratch import scratch_folder
from spica.versions import stack_versions

if TYPE_CHECKING:
    import pyarrow as pa

#: Part of every copy's name: a copy made by another version of this module is not used.
FORMAT: Final = 4

#: Columns by table that the runtime looks up exactly, with the operation fields that hold their values.
#: ``*`` stands for every field that names a number format. The tables of whole attention modules are left
#: alone: the runtime takes rows of other architectures there, and cutting them changed results.
EXACT_KEYS: Final[dict[str, dict[str, str]]] = {
    "gemm_perf.parquet": {"gemm_dtype": "*"},
    "context_attention_perf.parquet": {
        "kv_cache_dtype": "*",
        "head_dim": "head_size",
        "window_size": "window_size",
    },
    "generation_attention_perf.parquet": {
        "kv_cache_dtype": "*",
        "head_dim": "head_size",
        "window_size": "window_size",
    },
    "moe_perf.parquet": {
        "moe_dtype": "*",
        "hidden_size": "hidden_size",
        "topk": "topk",
        "num_experts": "num_experts",
    },
}
#: Where a row comes from; constant within a table.
ORIGIN_COLUMNS: Final = frozenset({"framework", "version", "device", "op_name", "beam_width"})
#: Files beside the tables that the runtime reads.
COMMON_FILES: Final = ("query_versions.yaml", "attention_lane_defaults.yaml")
MANIFEST: Final = "perf_data_reuse_manifest.yaml"


@dataclass(frozen=True, slots=True)
class TablesRequest:
    """What the copy must serve: one model on one SKU, with the version of each backend."""

    model: str
    sku: str
    backends: tuple[tuple[Backend, str], ...]

    @classmethod
    def of(cls, samples: tuple[Sample, ...]) -> TablesRequest:
        """The request of one or more samples of one model and SKU."""
        first = samples[0].deployment
        pairs = sorted({(sample.backend, sample.backend_version) for sample in samples})
        return cls(first.model_name, first.hardware_sku, tuple(pairs))


@dataclass(frozen=True, slots=True)
class SlimTables:
    """A copy's folder, or why there is none. ``rows`` and ``full_rows`` count the cut tables."""

    folder: str | None
    reason: str = ""
    rows: int = 0
    full_rows: int = 0

    @property
    def systems_path(self) -> str | None:
        return None if self.folder is None else str(Path(self.folder) / "systems")


def prepare_systems(request: TablesRequest, cache_dir: Path) -> SlimTables:
    """Make the copy for ``request`` under ``cache_dir``, or find it there. Takes a second or two to make.

    Never raises for a reason of its own: without a copy the result says why.
    """
    from spica.facts.tables import operation_values, systems_root

    root = systems_root()
    if root is None:
        return SlimTables(None, "more than one folder of performance tables is configured")
    wanted: dict[str, set[str | int]] = {}
    try:
        for backend, version in request.backends:
            for name, values in operation_values(request.model, request.sku, backend, version).items():
                wanted.setdefault(name, set()).update(values)
    except InputError as error:
        return SlimTables(None, str(error))
    folder = cache_dir / _name(request, wanted, root)
    try:
        made = _whole(folder)
        if made is None:
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)
            _make(request, wanted, root, folder)
            made = _whole(folder)
        if made is None:
            return SlimTables(None, "the copy of the performance tables is not what was written")
        return SlimTables(str(folder), rows=made[0], full_rows=made[1])
    except (OSError, ValueError, KeyError) as error:
        return SlimTables(None, f"the copy of the performance tables cannot be made: {error}")


def _whole(folder: Path) -> tuple[int, int] | None:
    """The rows of a copy, cut and full; None when it is not there, or a file of it is not as it was made."""
    try:
        made = json.loads((folder / "made.json").read_text())
        if made["files"] != _digests(folder / "systems"):
            return None
        return int(made["rows"]), int(made["full_rows"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _digests(systems: Path) -> dict[str, str]:
    """The SHA-256 of every file by its path in ``systems``; links are no files of a copy."""
    found = {}
    for path in sorted(systems.rglob("*")):
        if path.is_symlink():
            raise ValueError(f"{path} is a link")
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[path.relative_to(systems).as_posix()] = digest
    return found


class Proofs:
    """Which worker shapes a copy has been tried on: one small file each, shared by workers and runs."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) / "proofs"
        self._known: dict[str, bool] = {}

    def identical(self, sample: Sample) -> bool | None:
        """True when the copy gave the full tables' result for these shapes, False when not, None when not
        tried yet."""
        name = proof_key(sample)
        if name not in self._known:
            try:
                kept = json.loads((self._folder / name).read_text())
                if kept["sum"] != _proof_sum(name, kept["identical"]):
                    return None
                self._known[name] = bool(kept["identical"])
            except (OSError, ValueError, KeyError, TypeError):
                return None
        return self._known[name]

    def record(self, sample: Sample, identical: bool) -> None:
        """Keep the outcome of a trial; a full or read-only disk only means that others try again."""
        name = proof_key(sample)
        self._known[name] = identical
        shapes = {"shapes": str(sample.parallel), "backend": sample.backend}
        text = json.dumps({"identical": identical, "sum": _proof_sum(name, identical)} | shapes)
        try:
            self._folder.mkdir(exist_ok=True)
            _write_whole(self._folder / name, text)
        except OSError:
            return


def _proof_sum(name: str, identical: object) -> str:
    return hashlib.sha256(json.dumps([name, identical]).encode()).hexdigest()[:16]


def proof_key(sample: Sample) -> str:
    """A file name for what decides which tables are read: backend, speculation, and each role's shape."""
    shapes = [f"{role}:{group.shape}" for role, group in sample.parallel.groups]
    parts = [sample.backend, sample.backend_version, str(sample.deployment.aic_nextn or 0), *shapes]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:24] + ".json"


def _name(request: TablesRequest, wanted: dict[str, set[str | int]], root: Path) -> str:
    version = stack_versions()["aisimulate"]
    keys = {name: sorted(map(str, values)) for name, values in sorted(wanted.items())}
    text = json.dumps([FORMAT, version, str(root), request.model, request.sku, request.backends, keys])
    return f"{request.sku}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _make(request: TablesRequest, wanted: dict[str, set[str | int]], root: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder.parent) as scratch:
        building = scratch / folder.name
        systems = building / "systems"
        systems.mkdir(parents=True)
        for name in (*COMMON_FILES, f"{request.sku}.yaml"):
            shutil.copyfile(root / name, systems / name)
        _cut_manifest(request.sku, root / MANIFEST, systems / MANIFEST)
        rows, full = _copy_tables(root, systems, Path("data") / request.sku, wanted)
        made = {"rows": rows, "full_rows": full, "files": _digests(systems)}
        (building / "made.json").write_text(json.dumps(made))
        try:
            building.rename(folder)
        except OSError:
            # Another process has made it meanwhile.
            if not (folder / "made.json").is_file():
                raise


def _cut_manifest(sku: str, source: Path, target: Path) -> None:
    """Only the entries of this SKU: the runtime reads the manifest once per table."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    manifest = yaml.load(source.read_text(), Loader=loader)
    groups = [group for group in manifest["groups"] if sku in group["systems"]]
    manifest["groups"] = [group | {"systems": [sku]} for group in groups]
    target.write_text(yaml.safe_dump(manifest, sort_keys=False))


def _copy_tables(root: Path, systems: Path, part: Path, wanted: dict[str, set[str | int]]) -> tuple[int, int]:
    rows = full = 0
    for source in sorted((root / part).rglob("*")):
        target = systems / source.relative_to(root)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.name not in EXACT_KEYS:
            shutil.copyfile(source, target)
            continue
        kept, of = _cut_table(source, target, wanted)
        rows, full = rows + kept, full + of
    return rows, full


def _cut_table(source: Path, target: Path, wanted: dict[str, set[str | int]]) -> tuple[int, int]:
    import pyarrow.parquet as pq

    # Not ``read_table``: that imports pandas, which takes longer than the reading.
    table = pq.ParquetFile(source).read()
    cut = _matching(table, EXACT_KEYS[source.name], wanted)
    # An empty table is not the same as rows for other models, which the runtime may take a shape from.
    kept = cut if cut.num_rows else table
    pq.write_table(kept.select([c for c in kept.column_names if c not in ORIGIN_COLUMNS]), target)
    return kept.num_rows, table.num_rows


def _matching(table: pa.Table, keys: dict[str, str], wanted: dict[str, set[str | int]]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    for column, field in keys.items():
        values = _formats(wanted) if field == "*" else wanted.get(field, set())
        if column not in table.column_names or not values:
            continue
        data = table[column]
        if pa.types.is_dictionary(data.type):
            data = data.cast(data.type.value_type)
        text = pa.types.is_string(data.type) or pa.types.is_large_string(data.type)
        fitting = [value for value in values if isinstance(value, str) == text]
        table = table.filter(pc.is_in(data, pa.array(sorted(fitting, key=str), data.type)))
    return table


def _formats(wanted: dict[str, set[str | int]]) -> set[str | int]:
    named = (
        v for name, values in wanted.items() if name.endswith(("dtype", "quant", "mode")) for v in values
    )
    return {value for value in named if isinstance(value, str)}


def _write_whole(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).replace(path)
