"""The knob table against the reference, and everything derived from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spica.config import SearchSpace
from spica.config.goal import Goal
from spica.config.settings import SETTINGS
from spica.config.sweep import SweepOptions
from spica.config.workload import SYNTHETIC_FIELDS, TRACE_FIELDS, Workload
from spica.errors import ConfigError
from spica.knobs.document import document, flags_table
from spica.knobs.knob import KnobKind
from spica.knobs.table import (
    COMPOSITE_DICT_KEYS,
    COMPOSITE_REQUIRED_KEYS,
    KNOBS,
    SEARCH_CHOICES,
    knob,
)
from spica.knobs.when import When

DOCS = Path(__file__).parents[2] / "docs"

# The reference tables, by hand: name -> default.
ATOMIC = {
    "deployment_mode": ("disagg", "agg"),
    "backend": ("vllm",),
    "prefill_max_num_batched_tokens": (8192, 16384, 32768),
    "prefill_max_num_seqs": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "decode_max_num_batched_tokens": (8192,),
    "decode_max_num_seqs": (256, 512, 1024),
    "agg_max_num_batched_tokens": (8192, 16384, 32768),
    "agg_max_num_seqs": (256, 512, 1024),
    "router_mode": ("kv_router", "round_robin"),
    "overlap_score_credit": (0.0, 0.5, 1.0),
    "prefill_load_scale": (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    "router_temperature": (0.0, 0.2, 0.5, 1.0),
    "host_cache_hit_weight": (0.5, 0.75, 1.0),
    "disk_cache_hit_weight": (0.0, 0.25, 0.5),
}
#: Extensions: name -> (default, choices). The default changes nothing.
EXTENSIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "agg_prefill_schedule_interval": ((1,), (1, 2, 4, 8, 16)),
    "agg_prefill_decode_interval": ((0,), (0, 1, 2, 4, 8, 16)),
}
COMPOSITE = {
    "planner_scaling_policy": (
        "disabled",
        "throughput_180_5",
        "throughput_600_5",
        "load_180_5",
        "load_180_10",
        "hybrid_180_5",
        "hybrid_600_5",
    ),
    "planner_fpm_sampling": ("small", "default", "large", "fine"),
    "planner_load_sensitivity": ("aggressive", "default", "conservative"),
    "load_predictor_candidates": (
        "constant_last",
        "arima_raw",
        "arima_log1p",
        "prophet_w20_raw",
        "prophet_w20_log1p",
        "prophet_w50_raw",
        "prophet_w50_log1p",
        "kalman_default_raw",
        "kalman_default_log1p",
        "kalman_reactive_raw",
        "kalman_reactive_log1p",
    ),
}
PINNED = {
    "gpu_budget": 32,
    "min_gpu_budget": None,
    "min_endpoint": None,
    "context_length": None,
    "startup_time": None,
    "aic_nextn": None,
    **{f"{role}_block_size": 64 for role in ("prefill", "decode", "agg")},
    **{f"{role}_gpu_memory_utilization": 0.9 for role in ("prefill", "decode", "agg")},
    "prefill_enable_prefix_caching": True,
    "decode_enable_prefix_caching": False,
    "agg_enable_prefix_caching": True,
    "num_g2_blocks": 0,
    "kv_bytes_per_token": None,
    "bandwidth_g1_to_g2_gbps": None,
    "bandwidth_g2_to_g1_gbps": None,
    "offload_batch_size": None,
    "active_decode_blocks_threshold": None,
    "active_prefill_tokens_threshold": None,
    "active_prefill_tokens_threshold_frac": None,
    "no_admission_control": False,
}


def of_kind(kind: KnobKind) -> dict[str, object]:
    return {name: k.default for name, k in KNOBS.items() if k.kind is kind}


def test_the_table_holds_the_knobs_and_defaults_of_the_reference() -> None:
    assert of_kind(KnobKind.ATOMIC) == {**ATOMIC, **{name: found[0] for name, found in EXTENSIONS.items()}}
    assert of_kind(KnobKind.COMPOSITE) == COMPOSITE
    assert of_kind(KnobKind.PINNED) == {"model_name": None, "hardware_sku": None, **PINNED}
    assert of_kind(KnobKind.PARALLEL) == {"parallel_configs": ()}


def test_the_choices_are_those_of_the_reference() -> None:
    extended = {name: choices for name, (_, choices) in EXTENSIONS.items()}
    assert {
        **ATOMIC,
        **COMPOSITE,
        **extended,
        "backend": ("vllm", "sglang", "trtllm"),
    } == SEARCH_CHOICES


def test_the_dict_keys_of_composites() -> None:
    assert COMPOSITE_REQUIRED_KEYS["load_predictor_candidates"] == ("load_predictor",)
    assert set(COMPOSITE_DICT_KEYS["load_predictor_candidates"]) == {
        "load_predictor",
        "load_predictor_log1p",
        "prophet_window_size",
        "kalman_q_level",
        "kalman_q_trend",
        "kalman_r",
        "kalman_min_points",
    }
    assert COMPOSITE_DICT_KEYS["planner_fpm_sampling"] == ("max_num_fpm_samples", "fpm_sample_bucket_size")
    for name in ("planner_scaling_policy", "planner_fpm_sampling", "planner_load_sensitivity"):
        assert COMPOSITE_REQUIRED_KEYS[name] == COMPOSITE_DICT_KEYS[name]


def test_when_knobs_act() -> None:
    acting = {name: k.when for name, k in KNOBS.items()}
    assert {n for n, w in acting.items() if w is When.KV_ROUTER_OFFLOAD} == {
        "host_cache_hit_weight",
        "disk_cache_hit_weight",
    }
    assert {n for n, w in acting.items() if w is When.SCALING} == {
        "planner_fpm_sampling",
        "planner_load_sensitivity",
    }
    assert {n for n, w in acting.items() if w is When.AGG} == {n for n in KNOBS if n.startswith("agg_")}
    assert {n for n, w in acting.items() if w is When.DISAGG} == {
        n for n in KNOBS if n.startswith(("prefill_", "decode_")) and n != "prefill_load_scale"
    }
    assert {k.role for k in KNOBS.values() if k.when is When.DISAGG} == {"prefill", "decode"}


@pytest.mark.parametrize(
    ("model", "block"),
    [(SearchSpace, "search_space"), (Workload, "workload"), (Goal, "goal"), (SweepOptions, "sweep")],
)
def test_the_models_have_the_fields_and_defaults_of_the_tables(model: type, block: str) -> None:
    fields = model.model_fields  # type: ignore[attr-defined]
    assert list(fields) == list(SETTINGS[block])
    for name, field in fields.items():
        setting = SETTINGS[block][name]
        assert field.is_required() == setting.required
        if not setting.required:
            assert field.default == setting.default


def test_every_workload_field_is_of_a_trace_or_synthetic() -> None:
    assert {*SYNTHETIC_FIELDS, *TRACE_FIELDS, "trace_path"} == set(Workload.model_fields)


def test_an_unknown_knob_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        knob("gpu_budge")


def test_the_document_is_up_to_date() -> None:
    assert (DOCS / "knobs.md").read_text() == document()
    assert all(f"| `{name}` |" in document() for name in KNOBS)


def test_the_table_of_flags_is_up_to_date() -> None:
    assert flags_table() in (DOCS / "deploy.md").read_text()


def test_the_settings_of_the_other_blocks_are_documented() -> None:
    text = (DOCS / "configuration.md").read_text()
    for block in ("workload", "goal", "goal.sla", "sweep", "sweep.confirm"):
        missing = [name for name in SETTINGS[block] if f"| `{name}` |" not in text]
        assert not missing


def test_configuration_imports_nothing_heavy() -> None:
    heavy = ["dynamo", "aisimulate_core", "vizier", "jax", "pandas", "numpy", "plotly"]
    imports = "import sys, spica.config.load, spica.knobs.table"
    code = f"{imports}; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("agg_max_num_batched_tokens", 2048),
        ("agg_max_num_seqs", 128),
        ("decode_max_num_seqs", 1),
        ("router_temperature", 0.3),
        ("host_cache_hit_weight", 0.0),
    ],
)
def test_a_pinned_number_may_be_any_legal_one(name: str, value: float) -> None:
    space = {"model_name": "m", "hardware_sku": "s"}
    assert SearchSpace.model_validate({**space, name: [value]}).value(name) == (value,)
    menu = list(KNOBS[name].choices)
    with pytest.raises(ConfigError, match=r"is not a choice(.|\n)*alone in its list it may be"):
        SearchSpace.model_validate({**space, name: [menu[0], value]})


@pytest.mark.parametrize(
    ("name", "value"),
    [("agg_max_num_seqs", 0), ("agg_max_num_batched_tokens", 2**20 + 1), ("host_cache_hit_weight", 1.5)],
)
def test_a_pin_beyond_the_limits_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=r"is too (small|large)"):
        SearchSpace.model_validate({"model_name": "m", "hardware_sku": "s", name: [value]})
