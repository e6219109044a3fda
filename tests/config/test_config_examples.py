"""The shipped examples are sound configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from spica.config.load import LoadedConfig, load_config
from spica.deployment.shapes import AggConfig, DisaggConfig

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def load(name: str) -> LoadedConfig:
    return load_config(EXAMPLES / f"{name}.yaml")


def test_the_examples_are_there() -> None:
    assert {
        "quickstart",
        "pin-one-deployment",
        "custom-policy",
        "pin-disagg",
        "pareto",
        "goodput-planner",
    } <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_an_example_loads_without_a_warning(path: Path) -> None:
    loaded = load_config(path)
    assert loaded.warnings == ()
    if loaded.config.workload.trace_path is not None:
        assert Path(loaded.config.workload.trace_path).is_file()
    if "kv_router" in loaded.config.search_space.router_mode:
        # Its replays vary from run to run.
        assert loaded.config.sweep.confirm is not None


def test_the_pinned_deployment_is_the_one_of_the_reference() -> None:
    space = load("pin-one-deployment").config.search_space
    (pin,) = space.parallel_configs
    assert isinstance(pin, AggConfig)
    assert (str(pin), pin.workers.shape.strategy, pin.used_gpus) == ("2x(tp4-ep4)", "tep", 8)
    assert [policy.name for policy in space.planner_scaling_policy] == ["load_180_5"]
    assert (space.gpu_budget, space.value("agg_max_num_batched_tokens"), space.value("agg_max_num_seqs")) == (
        64,
        (16384,),
        (512,),
    )


def test_the_custom_policy_is_the_one_of_the_reference() -> None:
    preset, custom = load("custom-policy").config.search_space.planner_scaling_policy
    assert preset.name == "throughput_180_5"
    assert (custom.enable_throughput_scaling, custom.enable_load_scaling) == (True, False)
    assert custom.throughput_adjustment_interval_seconds == 240
    assert custom.load_adjustment_interval_seconds == 5


def test_the_pinned_disaggregation_is_the_one_of_the_reference() -> None:
    (pin,) = load("pin-disagg").config.search_space.parallel_configs
    assert isinstance(pin, DisaggConfig)
    assert (pin.prefill.total_gpus, pin.decode.total_gpus) == (8, 16)
    assert (pin.prefill.shape.strategy, pin.decode.shape.strategy) == ("tep", "dep")
