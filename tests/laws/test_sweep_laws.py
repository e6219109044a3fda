"""Laws of whole sweeps, on random small spaces that are searched to their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spica import SweepResult, run_smart_search
from spica.record import Ledger

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(1800)]

FEW = settings(deadline=None, max_examples=4, derandomize=True, suppress_health_check=[*HealthCheck])

Config = dict[str, dict[str, object]]


def config(target: str, isl: int, concurrency: int, **space: object) -> Config:
    """A space of a few candidates under a short load."""
    fixed: dict[str, object] = {
        "model_name": "Qwen/Qwen3-32B",
        "hardware_sku": "h200_sxm",
        "gpu_budget": 2,
        "backend": ["vllm"],
        "deployment_mode": ["agg"],
        "agg_max_num_batched_tokens": [8192],
        "agg_max_num_seqs": [256],
        "router_mode": ["round_robin"],
        "planner_scaling_policy": ["disabled"],
    }
    return {
        "search_space": fixed | space,
        "workload": {"isl": isl, "osl": 32, "concurrency": concurrency, "num_request_ratio": 2},
        "goal": {"target": target},
        "sweep": {"max_rounds": 40, "candidates_per_round": 4},
    }


def exhausted(given: Config, folder: Path) -> SweepResult:
    result = run_smart_search(given, out=folder, jobs=1)
    assert {branch.stopped.split(" of its")[0] for branch in result.branches} == {"all"}
    return result


def best(given: Config, folder: Path) -> float:
    found = exhausted(given, folder).best
    assert found is not None
    return found.score


targets = st.sampled_from(["throughput", "throughput_per_gpu", "e2e_latency", "throughput_per_user"])
widened = st.sampled_from(
    [
        {"gpu_budget": 4},
        {"agg_max_num_seqs": [256, 1024]},
        {"agg_max_num_batched_tokens": [8192, 16384]},
        {"backend": ["vllm", "sglang"]},
        {"deployment_mode": ["agg", "disagg"]},
    ]
)


@FEW
@given(targets, st.sampled_from([128, 2000]), st.sampled_from([2, 12]), widened)
def test_more_to_choose_from_is_never_worse(
    tmp_path_factory: pytest.TempPathFactory,
    target: str,
    isl: int,
    concurrency: int,
    more: dict[str, object],
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    small = best(config(target, isl, concurrency), folder / "small")
    large = best(config(target, isl, concurrency, **more), folder / "large")
    assert large >= small


def sweep(given: Config, folder: Path, jobs: int, cache: Path) -> str:
    """What ``spica sweep --json`` prints in a process of its own, but for the folder."""
    file = folder.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(given))
    command = [sys.executable, "-m", "spica", "sweep", str(file), "--out", str(folder), "--json"]
    done = subprocess.run(
        [*command, "--jobs", str(jobs)],
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.dumps({k: v for k, v in json.loads(done.stdout).items() if k not in ("folder", "run")})


def test_jobs_and_caches_change_no_bit(tmp_path: Path) -> None:
    given = config("throughput", 500, 8, gpu_budget=4, agg_max_num_seqs=[256, 512])
    given["sweep"] = {"max_rounds": 3, "candidates_per_round": 4}
    cold = sweep(given, tmp_path / "cold", 1, tmp_path / "cache")
    warm = sweep(given, tmp_path / "warm", 1, tmp_path / "cache")
    two = sweep(given, tmp_path / "two", 2, tmp_path / "cache")
    assert cold == warm == two
    asks = []
    for name in ("cold", "warm", "two"):
        with Ledger.read(tmp_path / name) as ledger:
            asks.append(ledger.asks())
    assert asks[0] == asks[1] == asks[2]


def test_the_best_measured_again_alone_is_the_same(tmp_path: Path) -> None:
    first = exhausted(config("throughput", 700, 6, gpu_budget=4), tmp_path / "first")
    assert first.best is not None
    again = run_smart_search(
        tmp_path / "first" / "deploy" / "rank-1" / "repin.yaml", out=tmp_path / "again", jobs=1
    )
    assert again.best is not None
    assert again.best.metrics.summary == first.best.metrics.summary
