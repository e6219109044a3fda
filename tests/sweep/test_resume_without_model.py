"""A run whose planners had no model of the engine goes on like that, with nothing measured again."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spica import run_smart_search
from spica.config.load import config_from_mapping
from spica.record import Ledger
from spica.sweep.prepare import prepare

CONFIG = {
    "search_space": {
        "model_name": "Qwen/Qwen3-32B",
        "hardware_sku": "h100_sxm",
        "gpu_budget": 8,
        "deployment_mode": ["agg"],
        "router_mode": ["round_robin"],
        "parallel_configs": [{"tp": 2, "replicas": 2}],
        "planner_scaling_policy": ["disabled", "load_180_5"],
        "agg_max_num_batched_tokens": [8192],
        "agg_max_num_seqs": [256],
        "planner_fpm_sampling": ["default"],
        "planner_load_sensitivity": ["default"],
    },
    "workload": {"isl": 1000, "osl": 20, "request_rate": 4.0, "num_request_ratio": 10},
    "goal": {"target": "goodput", "sla": {"ttft_ms": 1500, "itl_ms": 30}},
    "sweep": {"max_rounds": 1, "candidates_per_round": 2, "parallel_evals": 1},
}


def _of_old(prepare: Callable[..., Any]) -> Callable[..., Any]:
    def old(*args: Any, **more: Any) -> Any:
        return prepare(*args, **{**more, "engine_model": False})

    return old


def _scaled(folder: Path) -> dict[str, bool]:
    """Candidate -> whether its planner has the model, of those that scale."""
    with Ledger.read(folder) as ledger:
        configs = {s.key: json.loads(s.config) for ask in ledger.asks() for s in ask.suggestions if s.config}
    return {
        key: bool(config.get("planner_engine_model"))
        for key, config in configs.items()
        if config["enable_load_scaling"]
    }


@pytest.mark.real
@pytest.mark.slow
def test_an_old_run_is_continued_as_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_from_mapping(CONFIG)
    search = partial(run_smart_search, config)
    with monkeypatch.context() as patch:
        patch.setattr("spica.api.prepare", _of_old(prepare))
        first = search(out=tmp_path / "old")
    before = _scaled(tmp_path / "old")
    assert list(before.values()) == [False]
    again = run_smart_search(None, resume=tmp_path / "old")
    assert [c.key for c in again.candidates] == [c.key for c in first.candidates]
    assert _scaled(tmp_path / "old") == before
    assert any("had no model of the engine" in warning for warning in again.warnings)
    search(out=tmp_path / "new")
    now = _scaled(tmp_path / "new")
    assert list(now.values()) == [True]
    assert not now.keys() & before.keys()
