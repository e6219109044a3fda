"""``spica init``: what it writes is a configuration, and what it cannot write is said before it writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Spica

from spica.config.load import load_config
from spica.goals.targets import OptimizationTarget

LOAD = ("--gpus", "8", "--isl", "3000", "--osl", "300")
NAMES = ("--model", "Qwen/Qwen3-32B", "--hardware", "h200_sxm")


@pytest.mark.real
@pytest.mark.parametrize(
    ("options", "requests_per_unit"), [(("--rate", "4"), 4.0), (("--concurrency", "64"), 64)]
)
def test_options_are_what_the_configuration_says(
    spica: Spica, tmp_path: Path, options: tuple[str, ...], requests_per_unit: float
) -> None:
    file = tmp_path / "first.yaml"
    done = spica("init", file, *NAMES, *LOAD, *options, "--ttft", "800", "--itl", "25")
    assert done.code == 0, done.err
    loaded = load_config(file)
    config = loaded.config
    assert loaded.warnings == ()
    assert (config.search_space.model_name, config.search_space.hardware_sku) == NAMES[1::2]
    assert (config.search_space.gpu_budget, config.workload.isl, config.workload.osl) == (8, 3000, 300)
    assert requests_per_unit in (config.workload.request_rate, config.workload.concurrency)
    assert config.goal.target is OptimizationTarget.GOODPUT_PER_GPU
    assert config.goal.sla is not None
    assert (config.goal.sla.ttft_ms, config.goal.sla.itl_ms) == (800, 25)
    assert spica("check", file).code == 0


@pytest.mark.real
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--model", "Qwen/Qwen3-32", *NAMES[2:], *LOAD, "--rate", "4"), "Qwen/Qwen3-32B"),
        ((*NAMES[:2], "--hardware", "h200", *LOAD, "--rate", "4"), "h200_sxm"),
        ((*NAMES, *LOAD), "--rate (or --concurrency)"),
        ((*LOAD, "--rate", "4"), "--model, --hardware"),
        ((*NAMES, *LOAD, "--rate", "4", "--concurrency", "2"), "--concurrency"),
        ((*NAMES, *LOAD, "--rate", "4", "--ttft", "800"), "--itl"),
        ((*NAMES, *LOAD, "--rate", "-4"), "--rate"),
        ((*NAMES, *LOAD, "--rate", "nan"), "--rate"),
        ((*NAMES, *LOAD, "--rate", "inf"), "request_rate"),
        ((*NAMES, *LOAD, "--rate", "1e300"), "request_rate"),
        ((*NAMES, "--gpus", "0", *LOAD[2:], "--rate", "4"), "--gpus"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    spica: Spica, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    done = spica("init", tmp_path / "first.yaml", *arguments)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(spica: Spica, tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    file.write_text("mine", encoding="utf-8")
    done = spica("init", file, *NAMES, *LOAD, "--rate", "4")
    assert done.code == 2
    assert "--force" in done.err
    assert file.read_text(encoding="utf-8") == "mine"
    assert spica("init", file, *NAMES, *LOAD, "--rate", "4", "--force").code == 0
    assert load_config(file).config.workload.request_rate == 4


@pytest.mark.real
def test_on_a_terminal_three_questions_are_asked(tmp_path: Path) -> None:
    mine, theirs = os.openpty()
    command = [sys.executable, "-m", "spica", "init", "asked.yaml"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path) as process:
        os.close(theirs)
        os.write(mine, b"Qwen/Qwen3-8B\nh100_sxm 4\n2.5 1000 200\n")
        assert process.wait(timeout=60) == 0
    said = _all_of(mine)
    assert said.count("? ") + said.count(") [") >= 3
    config = load_config(tmp_path / "asked.yaml").config
    assert (config.search_space.model_name, config.search_space.hardware_sku) == (
        "Qwen/Qwen3-8B",
        "h100_sxm",
    )
    assert (config.search_space.gpu_budget, config.workload.request_rate) == (4, 2.5)
    assert (config.workload.isl, config.workload.osl) == (1000, 200)


def _all_of(terminal: int) -> str:
    """What a terminal whose other end is closed still holds."""
    said = b""
    os.set_blocking(terminal, False)
    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # EIO: all read
            break
        if not part:
            break
        said += part
    os.close(terminal)
    return said.decode()
