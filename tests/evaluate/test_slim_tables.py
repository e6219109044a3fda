"""The cut-down tables: what is in them, and that they are used only where they are proven."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from evaluation_samples import CLOSED, LOAD, MOE, ROUTER, VERSIONS, Make

from spica.deployment.shapes import ParallelShape
from spica.evaluate import proven
from spica.evaluate.pool import LocalEvaluator
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.proven import Replays, proof_plan
from spica.evaluate.replay import ReplayOptions, run_replay
from spica.evaluate.slim_tables import (
    Proofs,
    SlimTables,
    TablesRequest,
    _cut_table,
    prepare_systems,
    proof_key,
)
from spica.traffic.replayed import SyntheticTraffic
from spica.trial import Metrics, Outcome, TrialResult

SMALL = SyntheticTraffic(isl=500, osl=20, num_requests=16, concurrency=4)
MOE_REQUEST = TablesRequest(MOE, "h200_sxm", (("vllm", VERSIONS["vllm"]),))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_only_rows_of_the_models_exact_keys_stay(tmp_path: Path, kind: pa.DataType) -> None:
    rows = [
        ("bfloat16", 128, 0, 1.0),
        ("bfloat16", 64, 0, 2.0),
        ("fp8", 128, 0, 3.0),
        ("bfloat16", 128, 1024, 4.0),
        ("bfloat16", 128, 0, 5.0),
    ]
    names = ("kv_cache_dtype", "head_dim", "window_size", "latency")
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)} | {"device": ["H"] * 5})
    table = table.set_column(0, names[0], table[names[0]].cast(kind))
    source, target = tmp_path / "context_attention_perf.parquet", tmp_path / "cut.parquet"
    pq.write_table(table, source)
    wanted: dict[str, set[str | int]] = {
        "kv_cache_dtype": {"bfloat16"},
        "head_size": {128},
        "window_size": {0},
        "name": {"fp8"},
    }
    assert _cut_table(source, target, wanted) == (2, 5)
    cut = pq.read_table(target)
    assert cut.column("latency").to_pylist() == [1.0, 5.0]
    assert "device" not in cut.column_names
    assert _cut_table(source, target, {"head_size": {256}}) == (5, 5)


@dataclass
class Runs:
    """Stands in for the replay: gives 1.0 on the full tables and ``cut`` on the copy, and counts."""

    cut: TrialResult
    seen: list[str]

    def __call__(self, plan: ReplayPlan, options: ReplayOptions | None = None) -> TrialResult:
        on_copy = options is not None and options.systems_path is not None
        kind = "own" if plan.traffic in (SMALL, CLOSED) else "proof"
        self.seen.append(f"{kind} {'cut' if on_copy else 'full'}")
        return self.cut if on_copy else _numbers(1.0)


def _numbers(value: float) -> TrialResult:
    return TrialResult(Outcome.FEASIBLE, metrics=Metrics({"duration_ms": value}))


@dataclass(frozen=True)
class FakeTask:
    plan: ReplayPlan
    tables: str | None
    options: ReplayOptions = ReplayOptions()  # noqa: RUF009 - frozen
    warm: bool = False


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    fake = Runs(_numbers(1.0), [])
    monkeypatch.setattr(proven, "run_replay", fake)
    return fake


def test_a_shape_is_proven_once_and_for_all_workers(runs: Runs, tmp_path: Path) -> None:
    worker, other, tables = Replays(), Replays(), str(tmp_path)
    assert worker.run(FakeTask(Make().plan(SMALL), tables)) == _numbers(1.0)
    assert runs.seen == ["own full", "own cut"]
    for replays in (worker, other):
        replays.run(FakeTask(Make(replicas=1).plan(CLOSED), tables))
    assert runs.seen[2:] == ["own cut", "own cut"]
    worker.run(FakeTask(Make(shape=ParallelShape(tp=4)).plan(SMALL), tables))
    assert runs.seen[4:] == ["own full", "own cut"]
    worker.run(FakeTask(Make().plan(SMALL), None))
    assert runs.seen[6:] == ["own full"]


def test_a_copy_that_differs_is_never_used(runs: Runs, tmp_path: Path) -> None:
    runs.cut = _numbers(1.0000001)
    for _ in range(2):
        assert Replays().run(FakeTask(Make().plan(SMALL), str(tmp_path))) == _numbers(1.0)
    assert runs.seen == ["own full", "own cut", "own full"]


def test_a_failure_on_the_copy_is_tried_on_the_full_tables(runs: Runs, tmp_path: Path) -> None:
    Proofs(str(tmp_path)).record(Make().sample(), True)
    runs.cut = TrialResult(Outcome.FAILED, "a row is missing")
    assert Replays().run(FakeTask(Make().plan(SMALL), str(tmp_path))) == _numbers(1.0)
    assert runs.seen == ["own cut", "own full"]


@pytest.mark.parametrize("make", [Make(router=ROUTER), Make(planner=LOAD)])
def test_what_does_not_repeat_is_proven_by_something_that_does(
    runs: Runs, tmp_path: Path, make: Make
) -> None:
    Replays().run(FakeTask(make.plan(SMALL), str(tmp_path)))
    assert runs.seen == ["proof full", "proof cut", "own cut"]
    proof = proof_plan(make.plan(SMALL)).sample
    assert (proof.router_mode, proof.router, proof.planner.scaling) == ("round_robin", None, None)
    assert proof_key(proof) == proof_key(make.sample())


def test_the_key_of_a_proof() -> None:
    base = Make().sample()
    assert proof_key(base) == proof_key(Make(replicas=1, router=ROUTER).sample())
    others = [
        Make(backend="sglang"),
        Make(aic_nextn=1),
        Make(disagg=True),
        Make(shape=ParallelShape(tp=1)),
    ]
    assert len({proof_key(base), *(proof_key(make.sample()) for make in others)}) == 5


def test_a_proof_file_that_is_damaged_counts_as_none(tmp_path: Path) -> None:
    sample = Make().sample()
    Proofs(str(tmp_path)).record(sample, True)
    (file,) = (tmp_path / "proofs").iterdir()
    assert Proofs(str(tmp_path)).identical(sample) is True
    file.write_text(file.read_text().replace("true", "false"))
    assert Proofs(str(tmp_path)).identical(sample) is None
    file.write_text("{")
    assert Proofs(str(tmp_path)).identical(sample) is None


@pytest.mark.real
def test_a_model_or_a_folder_that_cannot_be_had(tmp_path: Path) -> None:
    lost = prepare_systems(replace(MOE_REQUEST, model="no/such-model"), tmp_path)
    assert lost.folder is None
    assert "no/such-model" in lost.reason
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "cannot be made" in prepare_systems(MOE_REQUEST, blocked / "below").reason


@pytest.mark.real
def test_real_replays_on_the_copy_are_bit_identical(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """MoE shapes of all patterns, with the proof made by the workers themselves and by hand."""
    made = prepare_systems(MOE_REQUEST, tmp_path)
    assert isinstance(made, SlimTables)
    assert made.folder is not None
    assert 0 < made.rows < 0.6 * made.full_rows
    assert prepare_systems(MOE_REQUEST, tmp_path) == made
    # A table with other numbers in it, or a link in its place, is made again.
    table = next(Path(made.folder, "systems").rglob("gemm_perf.parquet"))
    whole = table.read_bytes()
    halved = pq.read_table(table)
    column = halved.column_names.index("latency")
    pq.write_table(halved.set_column(column, "latency", pc.divide(halved["latency"], 2.0)), table)
    assert table.read_bytes() != whole
    assert prepare_systems(MOE_REQUEST, tmp_path) == made
    assert table.read_bytes() == whole
    table.unlink()
    table.symlink_to(tmp_path / "elsewhere.parquet")
    assert prepare_systems(MOE_REQUEST, tmp_path) == made
    assert not table.is_symlink()
    assert table.read_bytes() == whole
    request, shape = replace(MOE_REQUEST), ParallelShape(1, 1, 2, 1, 2)
    with LocalEvaluator(1, memory_limit_bytes=None) as own:
        assert own.prepare_tables(request, tmp_path).result() == made
        shapes = (shape, ParallelShape(2, 1, 1, 1, 2), ParallelShape(2, 1, 1, 2, 1), ParallelShape())
        plans = [Make(model=MOE, shape=s, replicas=1).plan(SMALL) for s in shapes]
        on_copy = [own.submit(plan).result() for plan in plans]
        again = [own.submit(plan).result() for plan in plans]
    full = [evaluator.submit(plan).result() for plan in plans]
    assert on_copy == again == full
    assert {result.outcome for result in full} == {Outcome.FEASIBLE}
    proofs = [json.loads(file.read_text()) for file in Path(made.folder, "proofs").iterdir()]
    assert [proof["identical"] for proof in proofs] == [True] * 4
    by_hand = run_replay(plans[0], ReplayOptions(systems_path=made.systems_path))
    assert by_hand == full[0]
