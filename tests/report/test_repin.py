"""A pinned configuration stands for exactly the candidate it was made from."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from made_run import agg, disagg, sample

from spica.branches import build_branches
from spica.config.load import config_from_mapping, dump_resolved, load_config
from spica.deployment.sample import Sample
from spica.ship.repin import repin_text, repinned

ORIGINAL: dict[str, dict[str, object]] = {
    "search_space": {
        "model_name": "Qwen/Qwen3-32B",
        "hardware_sku": "h200_sxm",
        "gpu_budget": 8,
        "planner_scaling_policy": ["disabled", "hybrid_180_5"],
    },
    "workload": {"isl": 3000, "osl": 300, "concurrency": 64, "num_request_ratio": 4},
    "goal": {"target": "goodput", "sla": {"ttft_ms": 2000, "itl_ms": 30}},
}
EXAMPLES = Path(__file__).parents[2] / "examples"
PAIRS = {(backend, mode) for backend in ("vllm", "sglang", "trtllm") for mode in ("agg", "disagg")}


@pytest.mark.real
@pytest.mark.parametrize(
    "wanted",
    [
        sample(agg(4, 2), tokens=32768),
        sample(disagg((1, 4), (2, 2)), kv_router=True),
        sample(agg(2, 4), backend="sglang", seqs=512),
    ],
    ids=["agg", "disagg-kv", "sglang"],
)
def test_repinned_config_decodes_to_the_candidate(wanted: Sample, tmp_path: Path) -> None:
    resolved = dump_resolved(config_from_mapping(ORIGINAL))
    path = tmp_path / "repin.yaml"
    path.write_text(repin_text(resolved, wanted.config(), "Rank 1."))
    (branch,) = build_branches(load_config(path).config, runner_pairs=PAIRS).branches
    assert branch.parameters == ()
    found = branch.decode({})
    assert found.feasible
    version = branch.versions[wanted.backend]
    assert found.requested.config() == wanted.config() | {"backend_version": version}


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.yaml")))
def test_the_file_leaves_out_defaults_but_no_pin(name: str) -> None:
    candidate = sample(disagg((1, 4), (2, 2)), kv_router=True).config()
    resolved = dump_resolved(load_config(EXAMPLES / name).config)
    text = repin_text(resolved, candidate, "Rank 2\nof many.")
    assert text.startswith("# Rank 2 of many.\n# Settings that are left out have their defaults.\n")
    short = yaml.safe_load(text)
    assert config_from_mapping(short) == config_from_mapping(repinned(resolved, candidate))
    # vllm is the default backend, and stands there all the same.
    assert short["search_space"]["backend"] == ["vllm"]
    assert short["search_space"]["decode_max_num_seqs"] == [256]
    assert "num_g2_blocks" not in short["search_space"]
    assert len(short["search_space"]) < len(resolved["search_space"]) / 2  # type: ignore[arg-type]


def test_scaling_and_kv_load_are_pinned() -> None:
    config = sample(agg(2, 4), scaling=True).config() | {"kv_load_ratio": 0.25}
    original: dict[str, dict[str, object]] = ORIGINAL | {
        "workload": {"isl": 3000, "osl": 300, "num_request_ratio": 4, "kv_load_ratio": [0.1, 0.9]},
        "goal": {
            "target": "pareto",
            "pareto_objectives": ["goodput", "throughput_per_user"],
            "sla": {"ttft_ms": 2000, "itl_ms": 30},
        },
    }
    original["search_space"] = {
        **ORIGINAL["search_space"],
        "planner_scaling_policy": ["disabled", "load_180_5"],
    }
    made = repinned(dump_resolved(config_from_mapping(original)), config)
    space = made["search_space"]
    assert made["workload"]["kv_load_ratio"] == 0.25
    assert space["planner_scaling_policy"] == ["hybrid_180_5"]
    assert space["planner_fpm_sampling"] == [{"max_num_fpm_samples": 64, "fpm_sample_bucket_size": 16}]
    assert space["planner_load_sensitivity"] == [
        {"load_scaling_down_sensitivity": 80, "load_min_observations": 5}
    ]
    assert space["load_predictor_candidates"] == [
        {"load_predictor": "prophet", "load_predictor_log1p": True, "prophet_window_size": 20}
    ]
    made["search_space"]["planner_scaling_policy"] = ["load_180_5"]  # what a pareto goal may use
    assert config_from_mapping(made).workload.kv_load_ratio == 0.25


def test_custom_policy_comes_back_as_a_dict() -> None:
    config = sample(agg(2, 4)).config() | {"planner_scaling_policy": '{"enable_load_scaling":true}'}
    made = repinned(dump_resolved(config_from_mapping(ORIGINAL)), config)
    assert made["search_space"]["planner_scaling_policy"] == [{"enable_load_scaling": True}]


def test_what_is_no_candidate() -> None:
    with pytest.raises(ValueError, match="backend is None"):
        repinned(ORIGINAL, {"deployment_mode": "agg"})
