from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from spica.errors import EXIT_BAD_INPUT, EXIT_STACK, LedgerError, StackError
from spica.record import (
    LEDGER_FILE,
    AskRecord,
    Ledger,
    RunIdentity,
    SuggestionRecord,
    TellRecord,
    TrialRecord,
)
from spica.record.faults import explain
from spica.trial import Metrics, Outcome, ReplicaCount, TrialResult

CONFIG = '{"goal":{"target":"throughput"},"sweep":{"max_rounds":3}}'
IDENTITY = RunIdentity("goal: {}", CONFIG, 7, {"spica": "1"})
METRICS = Metrics(
    {"output_throughput_tok_s": 0.1 + 0.2, "mean_e2e_latency_ms": math.inf, "n": 3},
    planner_total_ticks=4,
    replicas=(ReplicaCount(0.0, 1, 2), ReplicaCount(5.5, 1, 3)),
)
GOOD = TrialRecord("k1", TrialResult(Outcome.FEASIBLE, metrics=METRICS, seconds=1.25, worker=3, pid=4711))
BAD = TrialRecord("k2", TrialResult(Outcome.FAILED, "boom", traceback="Traceback ..."), repeat=1)
ASK = AskRecord(
    "agg",
    0,
    0,
    (
        SuggestionRecord(0, {"x": 0.1, "n": 8192.0, "backend": "vllm"}, "k1", '{"tp":2}', '{"distance":0.5}'),
        SuggestionRecord(1, {"x": 0.7, "n": 16384.0, "backend": "vllm"}, "k9", infeasible="no KV budget"),
    ),
)
TELLS = (TellRecord("agg", 1, None), TellRecord("agg", 0, (1 / 3, math.inf), cache_hit=True))


def filled(folder: Path) -> None:
    with Ledger.create(folder, IDENTITY) as ledger:
        ledger.record_ask(ASK)
        ledger.record_trial(GOOD)
        ledger.record_trial(BAD)
        ledger.record_tells(TELLS)
        ledger.record_event("finished", "all rounds")


def check(ledger: Ledger) -> None:
    assert ledger.identity() == IDENTITY
    assert ledger.asks() == (ASK,)
    assert ledger.trials() == (GOOD, BAD)
    first, second = (trial.result for trial in ledger.trials())
    assert (first.seconds, first.worker, first.pid) == (1.25, 3, 4711)
    assert (second.worker, second.pid) == (None, None)
    assert ledger.tells() == TELLS
    assert [e[:2] for e in ledger.events()] == [("finished", "all rounds")]


def test_everything_written_is_read_back_exactly(tmp_path: Path) -> None:
    filled(tmp_path / "run")
    with Ledger.resume(tmp_path / "run") as ledger:
        check(ledger)


def test_a_run_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, IDENTITY) as writer:
        writer.record_trial(GOOD)
        with Ledger.read(tmp_path) as reader:
            assert reader.trials() == (GOOD,)
            writer.record_trial(BAD)
            assert reader.trials() == (GOOD, BAD)
            with pytest.raises(LedgerError):
                reader.record_event("no")


def test_every_commit_is_synced_in_wal_mode(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, IDENTITY) as ledger:
        assert ledger._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_the_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    filled(tmp_path)
    code = (
        "import sys; from pathlib import Path; from spica.record import Ledger; "
        "Ledger.resume(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with Ledger.resume(tmp_path):
        other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert f"{tmp_path} is in use by process {os.getpid()}" in other.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr


def test_creating_over_a_run_is_refused_and_leaves_it_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(LedgerError, match="already holds a run"):
        Ledger.create(tmp_path, IDENTITY)
    with Ledger.resume(tmp_path) as ledger:
        check(ledger)


def test_a_finished_trial_cannot_be_recorded_again(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, IDENTITY) as ledger:
        ledger.record_trial(GOOD)
        with pytest.raises(LedgerError):
            ledger.record_trial(GOOD)
        ledger.record_trial(BAD)
        assert ledger.trials() == (GOOD, BAD)


def test_a_resume_with_other_settings_lists_every_difference(tmp_path: Path) -> None:
    filled(tmp_path)
    config = '{"goal":{"target":"throughput"},"sweep":{"max_rounds":4,"confirm":2}}'
    now = RunIdentity("other text", config, 8, {"spica": "1", "ai-dynamo": "2"})
    with Ledger.resume(tmp_path) as ledger:
        assert ledger.admit(IDENTITY) == ()
        with pytest.raises(LedgerError) as refused:
            ledger.admit(now)
        lines = (
            "seed: was 7, is 8",
            "sweep.max_rounds: was 3, is 4",
            "sweep.confirm: was not set, is 2",
            "version of ai-dynamo: was not set, is 2",
        )
        for line in lines:
            assert line in str(refused.value)
        assert set(ledger.admit(now, force=True)) == set(lines)


@pytest.mark.parametrize(
    ("config", "difference"),
    [
        ('{"goal":{"target":"e2e_latency"},"sweep":{"max_rounds":3}}', 'goal.target: was "throughput"'),
        (
            '{"goal":{"target":"throughput"},"sweep":{"max_rounds":3},"workload":{"isl":9}}',
            "workload.isl: was not set, is 9",
        ),
        (
            '{"goal":{"target":"throughput"},"sweep":{"max_rounds":3},"search_space":{"hardware_sku":"l4"}}',
            'search_space.hardware_sku: was not set, is "l4"',
        ),
    ],
)
def test_what_cannot_be_ranked_together_is_refused_even_when_forced(
    tmp_path: Path, config: str, difference: str
) -> None:
    filled(tmp_path)
    with Ledger.resume(tmp_path) as ledger:
        with pytest.raises(LedgerError, match="cannot mix") as refused:
            ledger.admit(RunIdentity("text", config, 7, IDENTITY.versions), force=True)
        assert difference in str(refused.value)
        # The run is as it was.
        check(ledger)


DAMAGE = ["garbage", "truncated", "empty", "flipped", "foreign", "directory", "missing"]


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_records_are_refused_in_words(tmp_path: Path, how: str) -> None:
    filled(tmp_path)
    path = tmp_path / LEDGER_FILE
    data = path.read_bytes()
    if how == "garbage":
        path.write_bytes(b"not a database at all" * 100)
    elif how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "flipped":
        page = 4096
        path.write_bytes(data[:page] + b"\xff" * (len(data) - page))
    elif how == "foreign":
        path.unlink()
        sqlite3.connect(path).execute("CREATE TABLE t (x)").connection.close()
    else:
        path.unlink()
        if how == "directory":
            path.mkdir()
    with pytest.raises(LedgerError) as refused:
        Ledger.resume(tmp_path)
    assert str(path if how not in ("missing", "directory") else tmp_path) in str(refused.value)
    assert refused.value.remedy
    assert refused.value.exit_code == EXIT_BAD_INPUT
    with pytest.raises(LedgerError):
        Ledger.read(tmp_path)


def test_damaged_rows_are_refused_in_words(tmp_path: Path) -> None:
    filled(tmp_path)
    with Ledger.resume(tmp_path) as ledger:
        ledger._write("UPDATE trials SET metrics = '{' WHERE key = ?", [("k1",)])
        with pytest.raises(LedgerError, match="damaged"):
            ledger.trials()


def test_another_format_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    with Ledger.resume(tmp_path) as ledger:
        ledger._write("UPDATE run SET value = ? WHERE name = 'schema_version'", [("99",)])
    with pytest.raises(LedgerError, match="format 99"):
        Ledger.resume(tmp_path)


# The trials of format 1, as it was.
_OLD_TRIALS = """
ALTER TABLE trials DROP COLUMN worker;
ALTER TABLE trials DROP COLUMN pid;
UPDATE run SET value = '1' WHERE name = 'schema_version';
"""


def test_the_format_before_is_read_as_it_is_and_brought_up_to_date_by_resuming(tmp_path: Path) -> None:
    filled(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / LEDGER_FILE)) as db:
        db.executescript(_OLD_TRIALS)
    before = (tmp_path / LEDGER_FILE).read_bytes()
    with Ledger.read(tmp_path) as ledger:
        assert ledger.trials() == (GOOD, BAD)
        assert {(t.result.worker, t.result.pid) for t in ledger.trials()} == {(None, None)}
    assert (tmp_path / LEDGER_FILE).read_bytes() == before
    new = TrialRecord("k3", TrialResult(Outcome.FAILED, "late", worker=1, pid=2))
    with Ledger.resume(tmp_path) as ledger:
        ledger.record_trial(new)
    with Ledger.read(tmp_path) as ledger:
        assert [t.result.worker for t in ledger.trials()] == [None, None, 1]
    with contextlib.closing(sqlite3.connect(tmp_path / LEDGER_FILE)) as db:
        assert db.execute("SELECT value FROM run WHERE name = 'schema_version'").fetchone() == ("2",)


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(LedgerError):
        Ledger.create(tmp_path / "run", IDENTITY)


def test_a_full_disk_is_a_stack_error_and_keeps_what_was_there(tmp_path: Path) -> None:
    with Ledger.create(tmp_path, IDENTITY) as ledger:
        ledger.record_trial(GOOD)
        pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
        ledger._db.execute(f"PRAGMA max_page_count = {pages}")  # SQLite reports SQLITE_FULL beyond it
        big = TrialRecord("big", TrialResult(Outcome.FAILED, "x" * 100_000))
        with pytest.raises(StackError) as full:
            ledger.record_trial(big)
        assert full.value.exit_code == EXIT_STACK
        assert "--resume" in full.value.remedy
        ledger._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
        ledger.record_trial(big)
    with Ledger.resume(tmp_path) as ledger:
        assert ledger.trials() == (GOOD, big)


def test_an_input_output_error_is_a_stack_error() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_WRITE"
    assert isinstance(explain(error, Path("run/run.sqlite")), StackError)


_WRITER = """
import sys
from pathlib import Path
from spica.trial import Outcome, TrialResult
from spica.record import Ledger, RunIdentity, TrialRecord
with Ledger.create(Path(sys.argv[1]), RunIdentity("", "{}", 1, {})) as ledger:
    for n in range(100000):
        ledger.record_trial(TrialRecord(str(n), TrialResult(Outcome.FAILED, "r")))
        print(n, flush=True)
"""


@pytest.mark.parametrize("wait_for", [1, 17, 60])
def test_killed_at_any_moment_it_has_all_that_was_committed(tmp_path: Path, wait_for: int) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(wait_for):
            last = writer.stdout.readline()
        writer.kill()
        last = (writer.stdout.read().splitlines() or [last])[-1]
    with Ledger.resume(tmp_path / "run") as ledger:
        keys = [int(t.key) for t in ledger.trials()]
    acknowledged = int(last)
    assert keys == list(range(len(keys)))
    # The one being written when the signal came may be there or not.
    assert len(keys) in (acknowledged + 1, acknowledged + 2)
