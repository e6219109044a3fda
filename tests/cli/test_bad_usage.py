"""What a user can get wrong on the command line: one message, the right exit code, nothing left behind."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SMALL, Spica

from spica.record import LEDGER_FILE, Ledger, RunIdentity


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sweeep"], "sweep"),
        (["sweep", "--seed", "-1", "x.yaml"], "--seed"),
        (["sweep", "--seed", "many", "x.yaml"], "--seed"),
        (["sweep", "--jobs", "0", "x.yaml"], "--jobs"),
        (["sweep", "--max-minutes", "-3", "x.yaml"], "--max-minutes"),
        (["sweep", "--memory-gb", "0", "x.yaml"], "--memory-gb"),
        (["sweep", "--nope"], "--nope"),
        (["check"], "CONFIG"),
        (["report"], "RUN"),
        (["trace", "inf"], "info"),
    ],
)
def test_usage(spica: Spica, arguments: list[str], told: str) -> None:
    done = spica(*arguments)
    assert done.code == 2
    assert told in done.err
    assert done.out == ""
    assert "Traceback" not in done.err


def refused(spica: Spica, *arguments: str | Path) -> str:
    """The message of a command that must end with exit code 2."""
    done = spica(*arguments)
    assert done.code == 2, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.err.startswith("error: ")
    return done.err


@pytest.mark.parametrize("command", ["check", "sweep", "predictors"])
def test_config_that_is_not_there(spica: Spica, command: str, tmp_path: Path) -> None:
    assert "no such file" in refused(spica, command, tmp_path / "missing.yaml")


@pytest.mark.real
def test_config_on_the_standard_input(tmp_path: Path) -> None:
    def check(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "spica", "check", *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, cwd=tmp_path)

    good = check(SMALL, "-")
    assert (good.returncode, good.stderr) == (0, "")
    assert "a single candidate" in good.stdout
    bad = check(SMALL.replace("gpu_budget: 8", "gpu_budget: many"), "-")
    assert bad.returncode == 2
    assert bad.stderr.startswith("error: <stdin>:4: search_space.gpu_budget: ")
    assert check("", "-").stderr.startswith("error: <stdin>: there is nothing in it")
    pipe = check(SMALL, "/dev/stdin")
    assert pipe.returncode == 2
    assert "to read a pipe, give - and send it to the standard input" in pipe.stderr


def test_config_that_is_a_directory(spica: Spica, tmp_path: Path) -> None:
    assert "directory" in refused(spica, "check", tmp_path)


def test_neither_config_nor_run(spica: Spica) -> None:
    assert "--resume RUN" in refused(spica, "sweep")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("search_space.gpu_budge=4", "did you mean 'search_space.gpu_budget'?"),
        ("gpu_budget=4", "search_space.gpu_budget"),
        ("search_space.gpu_budget", "block.key=value"),
        ("search_space.gpu_budget=lots", "search_space.gpu_budget"),
        ("search_space.gpu_budget=true", "search_space.gpu_budget"),
        ("workload.isl=.nan", "workload.isl"),
        ("sweep.max_rounds=[", "sweep.max_rounds"),
    ],
)
def test_bad_override(spica: Spica, config: Path, override: str, told: str) -> None:
    message = refused(spica, "check", config, "--set", override)
    assert told in message
    assert "--set" in message


def test_all_problems_at_once(spica: Spica, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(SMALL.replace("gpu_budget: 8", "gpu_budge: 8").replace("isl: 3000", "isl: -1"))
    message = refused(spica, "check", path)
    assert f"{path}:4: search_space.gpu_budge" in message
    assert "workload.isl" in message


@pytest.mark.parametrize("kind", ["file", "full", "below a file"])
def test_out_that_cannot_be_a_run_folder(spica: Spica, config: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "full":
        out.mkdir()
        (out / "thesis.txt").write_text("mine")
    else:
        out.write_text("mine")
    message = refused(spica, "sweep", config, "--out", out / "run" if kind == "below a file" else out)
    assert "--out" in message
    kept = out / "thesis.txt" if kind == "full" else out
    assert kept.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_out_without_permission(spica: Spica, config: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert "cannot be written" in refused(spica, "sweep", config, "--out", locked / "run")


def test_out_that_holds_a_run(spica: Spica, config: Path, tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "run", RunIdentity("", "{}", 1, {})):
        pass
    assert "already holds a run" in refused(spica, "sweep", config, "--out", tmp_path / "run")


@pytest.mark.parametrize("command", [["sweep", "--resume"], ["report"]])
@pytest.mark.parametrize("kind", ["missing", "empty", "file", "garbage", "truncated"])
def test_run_that_is_none(spica: Spica, tmp_path: Path, command: list[str], kind: str) -> None:
    run = tmp_path / "run"
    if kind == "file":
        run.write_text("x")
    elif kind != "missing":
        run.mkdir()
    if kind == "garbage":
        (run / LEDGER_FILE).write_bytes(b"not a database" * 400)
    if kind == "truncated":
        (run / LEDGER_FILE).write_bytes(b"SQLite format 3\x00" + b"\x00" * 40)
    message = refused(spica, *command, run)
    assert str(run) in message


def test_out_and_resume_together(spica: Spica, config: Path, tmp_path: Path) -> None:
    from spica.api import RunOptions, Source, run
    from spica.config.load import load_config
    from spica.errors import InputError
    from spica.sweep.events import Silent

    source = Source(load_config(config).config, "small", SMALL)
    options = RunOptions(out=tmp_path / "a", resume=tmp_path / "b")
    with pytest.raises(InputError, match="two folders"):
        run(source, options, Silent())


@pytest.mark.parametrize("bound", ["memory_gb", "max_minutes", "jobs", "seed"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan, 1e300])
def test_bounds_of_the_api_are_checked_before_anything_is_made(
    config: Path, tmp_path: Path, bound: str, value: float
) -> None:
    from spica import run_smart_search
    from spica.errors import InputError

    arguments = {bound: value}
    with pytest.raises(InputError, match=bound):
        run_smart_search(config, out=tmp_path / "run", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_pattern_that_nothing_matches(spica: Spica) -> None:
    assert "did you mean 'Qwen/Qwen3-32B'?" in refused(spica, "models", "qwen3-33b")


@pytest.mark.real
@pytest.mark.parametrize(
    ("override", "told", "code"),
    [
        ("search_space.model_name=Qwen/Qwen3-33B", "did you mean 'Qwen/Qwen3-32B'?", 2),
        ("search_space.hardware_sku=H100-SXM5-80GB", "did you mean 'h100_sxm'?", 2),
        ("search_space.parallel_configs=[{tp: 3, replicas: 1}]", "3", 2),
        ("workload.isl=50000", "isl + osl of at most 40960", 2),
    ],
)
def test_facts_that_do_not_hold_leave_no_folder(
    spica: Spica, config: Path, tmp_path: Path, override: str, told: str, code: int
) -> None:
    out = tmp_path / "run"
    done = spica("sweep", config, "--out", out, "--set", override)
    assert (done.code, told in done.err, done.out) == (code, True, ""), done.err
    assert not out.exists()
    assert "Traceback" not in done.err


@pytest.mark.real
def test_nothing_viable_is_exit_code_1(spica: Spica, config: Path, tmp_path: Path) -> None:
    overrides = ["search_space.parallel_configs=[]", "search_space.gpu_budget=1"]
    overrides.append("search_space.model_name=deepseek-ai/DeepSeek-V3")
    done = spica("check", config, *(a for o in overrides for a in ("--set", o)))
    assert done.code == 1
    assert "GPUs" in done.err


def test_json_of_listings(spica: Spica) -> None:
    done = spica("hardware", "h200*", "--json")
    (row,) = [r for r in json.loads(done.out) if r["name"] == "h200_sxm"]
    assert row["gpus_per_node"] == 8
    assert row["backends"]["vllm"]
    assert (done.code, done.err) == (0, "")
    (model,) = [
        m
        for m in json.loads(spica("models", "Qwen/Qwen3-32B", "--json").out)
        if m["name"] == "Qwen/Qwen3-32B"
    ]
    assert model["context_length"] == 40960
    assert model["is_moe"] is False


def test_version_names_the_stack(spica: Spica) -> None:
    done = spica("--version")
    assert done.code == 0
    assert "ai-dynamo 1.6.1" in done.out


@pytest.mark.parametrize("command", ["check", "sweep"])
def test_unknown_names_are_told_together_with_their_lines(spica: Spica, command: str, tmp_path: Path) -> None:
    config, out = tmp_path / "c.yaml", tmp_path / "run"
    config.write_text(
        "search_space:\n"
        "  hardware_sku: h200\n"
        "  model_name: Qwen/Qwen3-32\n"
        "workload: {isl: 300, osl: 30, concurrency: 4, num_request_ratio: 1}\n"
    )
    arguments: list[str | Path] = ["sweep", config, "--out", out] if command == "sweep" else [command, config]
    done = spica(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err
    told = done.err  # a sweep says before what it is at
    assert f"{config}:3: search_space.model_name: unknown model 'Qwen/Qwen3-32'" in told
    assert f"{config}:2: search_space.hardware_sku: unknown SKU 'h200'" in told
    assert "did you mean 'Qwen/Qwen3-32B'?" in told
    assert "did you mean 'h200_sxm'?" in told
    assert not out.exists()


def test_pins_and_lengths_have_their_place(spica: Spica, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "search_space:\n"
        "  model_name: Qwen/Qwen3-32B\n"
        "  hardware_sku: h200_sxm\n"
        "  deployment_mode: [agg]\n"
        "  parallel_configs:\n"
        "    - {tp: 2}\n"
        "    - {tp: 3}\n"
        "workload: {isl: 300, osl: 30, concurrency: 4, num_request_ratio: 1}\n"
    )
    assert f"{config}:7: search_space.parallel_configs[1]: " in refused(spica, "check", config)
    told = refused(spica, "check", config, "--set", "workload.isl=50000")
    assert told.startswith("error: --set: workload.isl: ")


def test_trace_that_is_not_there(spica: Spica, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("")
    config = tmp_path / "c.yaml"
    config.write_text(
        "search_space: {model_name: Qwen/Qwen3-32B, hardware_sku: h200_sxm}\n"
        "workload:\n"
        "  trace_path: mime.jsonl\n"
    )
    for command in ("check", "predictors"):
        told = refused(spica, command, config)
        assert told.startswith(f"error: {config}:3: workload.trace_path: no such file: {tmp_path}/mime.jsonl")
        assert f"did you mean '{tmp_path}/mine.jsonl'?" in told


@pytest.mark.parametrize("columns", ["40", "80", "200"])
@pytest.mark.parametrize("what", ["models", "hardware"])
def test_a_listed_name_is_whole(
    spica: Spica, monkeypatch: pytest.MonkeyPatch, what: str, columns: str
) -> None:
    """So that it can be copied, and found by grep."""
    names = [row["name"] for row in json.loads(spica(what, "--json").out)]
    monkeypatch.setenv("COLUMNS", columns)
    shown = [line.split()[0] for line in spica(what).out.splitlines()[1 : len(names) + 1]]
    assert shown == names
