"""``spica predictors``, and the sub-sweep from a script without a guard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SMALL, Spica

from spica.traffic.synth import SynthSpec, synth_kind, synthesize
from spica.traffic.write import write_mooncake

pytestmark = pytest.mark.real


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    spec = SynthSpec(kind=synth_kind("poisson"), rate=0.2, duration=1500.0, seed=3)
    return write_mooncake(synthesize(spec), tmp_path / "trace.jsonl")


@pytest.fixture
def goodput(tmp_path: Path, trace: Path) -> Path:
    path = tmp_path / "goodput.yaml"
    text = SMALL.replace("[disabled]", "[throughput_180_5]").replace(
        "workload: {isl: 3000, osl: 300, concurrency: 64, num_request_ratio: 4}",
        f"workload: {{trace_path: {trace.name}}}\n"
        "goal: {target: goodput, sla: {ttft_ms: 2000, itl_ms: 60}}",
    )
    text = text.replace(
        "workload:", "  load_predictor_candidates: [constant_last, kalman_default_raw]\nworkload:"
    )
    path.write_text(text)
    return path


def test_losses_and_plot(spica: Spica, goodput: Path, tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    done = spica("predictors", goodput, "--json", "--jobs", "1", "--html", page)
    assert done.code == 0, done.err
    rows = json.loads(done.out)["losses"]
    assert {row["predictor"] for row in rows} == {"constant_last", "kalman_default_raw"}
    (winner,) = [row for row in rows if row["winner"]]
    assert winner["loss"] == min(row["loss"] for row in rows)
    assert "kalman_default_raw" in page.read_text()


def test_nothing_to_choose_without_throughput_scaling(spica: Spica, config: Path) -> None:
    done = spica("predictors", config)
    assert done.code == 0, done.err
    assert done.out == "nothing to choose: no throughput-scaling policy\n"


def test_script_without_a_guard_runs_once(trace: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from spica import sweep_load_predictor\n"
        "from spica.traffic.read import read_trace\n"
        "print('started')\n"
        f"found = sweep_load_predictor(read_trace({str(trace)!r}), ['constant_last'], [180], jobs=1)\n"
        "print(found.table()[0].loss < 10)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["started", "True"]
    assert done.stderr == ""
