from __future__ import annotations

import contextlib
import math
import os
import re
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
from spica.record.seal import START, TABLES, seals_for
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
#: ``printf '{"tp":2}' | sha256sum``
K1 = "3f2ae7ce4c0fa69b53134cf4717f27ff"
ASK = AskRecord(
    "agg",
    0,
    0,
    (
        SuggestionRecord(0, {"x": 0.1, "n": 8192.0, "backend": "vllm"}, K1, '{"tp":2}', '{"distance":0.5}'),
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


def change(folder: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / LEDGER_FILE)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


#: A statement that changes a record, and the row (or the thing) that the error must name.
DAMAGES = [
    ("UPDATE trials SET metrics = '{' WHERE key = 'k1'", "trials row key=k1, repeat=0"),
    ("UPDATE trials SET metrics = replace(metrics, '3', '9') WHERE key = 'k1'", "key=k1, repeat=0"),
    ("UPDATE trials SET outcome = 'infeasible' WHERE key = 'k2'", "trials row key=k2, repeat=1"),
    ("UPDATE trials SET seconds = 1.5 WHERE key = 'k1'", "key=k1, repeat=0"),
    ("UPDATE trials SET key = 'k3' WHERE key = 'k1'", "key=k3"),
    ("DELETE FROM trials WHERE key = 'k1'", "key=k1, repeat=0: it is missing"),
    ("INSERT INTO trials SELECT 'k9', 7, outcome, reason, traceback, metrics, seconds, at, worker, pid "
     "FROM trials WHERE key = 'k1'", "key=k9, repeat=7: it was not written"),
    ("UPDATE trials SET rowid = rowid + 5 WHERE key = 'k1'", "is not in its place"),
    ("UPDATE asks SET config = '{\"tp\":4}' WHERE suggestion = 0", "asks row branch=agg, suggestion=0"),
    ("UPDATE asks SET point = replace(point, '0.7', '0.8') WHERE suggestion = 1", "suggestion=1"),
    ("UPDATE asks SET infeasible = '' WHERE suggestion = 1", "suggestion=1"),
    ("UPDATE tells SET labels = '[9.0,1.0]' WHERE suggestion = 0", "tells row branch=agg, suggestion=0"),
    ("UPDATE tells SET cache_hit = 0 WHERE suggestion = 0", "tells row"),
    ("UPDATE events SET kind = 'started'", "events row seq=1"),
    ("UPDATE run SET value = '8' WHERE name = 'seed'", "run row name=seed"),
    ("UPDATE run SET value = replace(value, '3', '4') WHERE name = 'config_json'", "name=config_json"),
    ("UPDATE run SET value = '{}' WHERE name = 'versions'", "run row name=versions"),
    ("UPDATE run SET value = '2' WHERE name = 'schema_version'", "format 2 with seals"),
    ("UPDATE seals SET digest = 'x' WHERE seq = 4", "seal 4 of"),
    ("DELETE FROM seals WHERE seq = 4", "seal 4 of"),
    ("DROP TABLE seals", "format 3 without seals"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "named"), DAMAGES)
def test_whatever_is_changed_is_named_and_nothing_of_it_believed(
    tmp_path: Path, statement: str, named: str
) -> None:
    filled(tmp_path)
    change(tmp_path, statement)
    for opened in (Ledger.read, Ledger.resume):
        with pytest.raises(LedgerError, match=re.escape(named)) as refused:
            opened(tmp_path)
        assert "damaged" in refused.value.message
        assert f"spica report {tmp_path} --intact" in refused.value.remedy


def test_what_is_intact_is_read_on_request(tmp_path: Path) -> None:
    filled(tmp_path)
    change(
        tmp_path, "UPDATE trials SET seconds = 99 WHERE key = 'k1'", "DELETE FROM tells WHERE suggestion = 0"
    )
    with Ledger.read(tmp_path, intact=True) as ledger:
        assert ledger.trials() == (BAD,)
        assert ledger.tells() == TELLS[:1]
        assert ledger.asks() == (ASK,)
        assert ledger.identity() == IDENTITY
        assert [line.split(":")[0] for line in ledger.damage] == [
            "trials row key=k1, repeat=0",
            "tells row branch=agg, suggestion=0",
        ]


def forged(folder: Path, table: str, where: str, **values: object) -> None:
    """A row changed by somebody who knows the seals and writes them again."""
    described = TABLES[table]
    with contextlib.closing(sqlite3.connect(folder / LEDGER_FILE)) as db:
        for name, value in values.items():
            db.execute(f"UPDATE {table} SET {name} = ? WHERE {where}", (value,))
        db.execute("DELETE FROM seals")
        head = START
        for each in TABLES.values():
            rows = db.execute(f"SELECT {', '.join(each.columns)} FROM {each.name} ORDER BY rowid").fetchall()
            for seal in seals_for(each, rows, head):
                head = seal.chain
                row = (seal.part, seal.row, seal.digest, seal.chain)
                db.execute("INSERT INTO seals (part, row, digest, chain) VALUES (?,?,?,?)", row)
        db.commit()
    assert described.name == table


#: What a stranger may have put there under good seals: table, row, column, value.
FORGED = [
    ("asks", "suggestion = 0", "config", '{"tp":4}'),
    ("asks", "suggestion = 0", "config", '{"tp":1e999}'),
    ("asks", "suggestion = 0", "key", "../../../tmp/x"),
    ("asks", "suggestion = 0", "point", '{"x":true}'),
    ("asks", "suggestion = 0", "branch", "a\x1b[31mb"),
    ("trials", "key = 'k1'", "metrics", '{"summary":{"a":"x"},"planner_total_ticks":null,"replicas":[]}'),
    ("trials", "key = 'k1'", "metrics", '{"summary":{"a":-1},"planner_total_ticks":null,"replicas":[]}'),
    ("trials", "key = 'k1'", "metrics", '{"summary":{},"planner_total_ticks":-4,"replicas":[]}'),
    ("trials", "key = 'k1'", "metrics", None),
    ("trials", "key = 'k1'", "repeat", -1),
    ("trials", "key = 'k1'", "seconds", -1.0),
    ("tells", "suggestion = 0", "labels", '["x"]'),
    ("run", "name = 'versions'", "value", '{"ai-dynamo":"1.6\\ntouch x"}'),
    ("run", "name = 'versions'", "value", '{"a b":"1"}'),
    ("run", "name = 'config_json'", "value", "[]"),
]


def read_all(folder: Path) -> None:
    with Ledger.read(folder) as ledger:
        ledger.identity()
        ledger.asks()
        ledger.trials()
        ledger.tells()


@pytest.mark.parametrize(("table", "where", "column", "value"), FORGED)
def test_what_no_sweep_writes_is_refused_under_good_seals_too(
    tmp_path: Path, table: str, where: str, column: str, value: object
) -> None:
    filled(tmp_path)
    forged(tmp_path, table, where, **{column: value})
    with pytest.raises(LedgerError, match="damaged"):
        read_all(tmp_path)


def test_text_of_a_record_cannot_steer_a_terminal(tmp_path: Path) -> None:
    filled(tmp_path)
    evil = "a\x1b]0;t\x07b\u202ec\nd"
    forged(tmp_path, "trials", "key = 'k2'", reason=evil)
    with Ledger.read(tmp_path) as ledger:
        assert ledger.trials()[1].result.reason == "a?]0;t?b?c d"


def test_rows_may_be_taken_out_and_put_in_again(tmp_path: Path) -> None:
    filled(tmp_path)
    with Ledger.resume(tmp_path) as ledger:
        ledger.forget_asks("agg", 0)
    with Ledger.read(tmp_path) as ledger:
        assert ledger.asks() == ()
    with Ledger.resume(tmp_path) as ledger:
        ledger.record_ask(ASK)
        ledger.record_ask(ASK)
    with Ledger.read(tmp_path) as ledger:
        assert ledger.asks() == (ASK,)


@pytest.mark.parametrize("name", ["run.sqlite", "run.sqlite-wal", "run.sqlite-shm"])
def test_a_link_in_the_place_of_the_record_is_not_followed(tmp_path: Path, name: str) -> None:
    run, target = tmp_path / "run", tmp_path / "target"
    filled(run)
    target.write_bytes((run / "run.sqlite").read_bytes() if name == "run.sqlite" else b"")
    before = target.read_bytes()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    for opened in (Ledger.read, Ledger.resume):
        with pytest.raises(LedgerError, match="is a link"):
            opened(run)
    assert target.read_bytes() == before


def test_another_format_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    change(tmp_path, "UPDATE run SET value = '99' WHERE name = 'schema_version'")
    with pytest.raises(LedgerError, match="format '99'"):
        Ledger.resume(tmp_path)


# The trials of format 1, as it was.
_OLD_TRIALS = """
DROP TABLE seals;
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
        assert db.execute("SELECT value FROM run WHERE name = 'schema_version'").fetchone() == ("3",)


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
