"""Properties over generated configurations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from spica.config import ConfigWarning, SmartSearchConfig
from spica.config.load import config_from_mapping, dump_resolved, dump_yaml
from spica.config.yaml_tree import parse
from spica.errors import ConfigError
from spica.knobs.table import SEARCH_CHOICES

SPACE = {"model_name": "m", "hardware_sku": "s"}
LOAD = {"isl": 30, "osl": 3, "num_request_ratio": 4, "concurrency": 2}


Given = dict[str, Any]
T = TypeVar("T")


def quietly(mapping: Given) -> SmartSearchConfig:
    """The configuration, with duplicates dropped silently: generated entries may mean the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        return config_from_mapping(mapping)


def attempt(make: Callable[[], T]) -> tuple[T | None, ConfigError | None]:
    try:
        return make(), None
    except ConfigError as error:
        return None, error


def subsets(name: str) -> st.SearchStrategy[list[Any]]:
    """Non-empty lists of distinct legal entries, in any order."""
    return st.lists(st.sampled_from(SEARCH_CHOICES[name]), min_size=1, unique=True)


POLICY_DICTS = st.fixed_dictionaries(
    {
        "enable_throughput_scaling": st.just(False),
        "enable_load_scaling": st.booleans(),
        "throughput_adjustment_interval_seconds": st.integers(1, 10_000),
        "load_adjustment_interval_seconds": st.integers(1, 10_000),
    }
)
PREDICTOR_DICTS = st.fixed_dictionaries(
    {"load_predictor": st.just("kalman")},
    optional={"load_predictor_log1p": st.booleans(), "kalman_r": st.floats(0.1, 100)},
)
GROUPS = st.fixed_dictionaries(
    {"tp": st.sampled_from([1, 2, 4])},
    optional={"replicas": st.integers(1, 4), "moe_ep": st.sampled_from([1, 2]), "attention_dp": st.just(1)},
)
MODES = st.one_of(
    st.fixed_dictionaries({"deployment_mode": subsets("deployment_mode")}),
    st.fixed_dictionaries(
        {
            "deployment_mode": st.just(["agg"]),
            "parallel_configs": st.lists(GROUPS, min_size=1, max_size=3, unique_by=str),
        }
    ),
    st.fixed_dictionaries(
        {
            "deployment_mode": st.just(["disagg"]),
            "parallel_configs": st.lists(
                st.fixed_dictionaries({"prefill": GROUPS, "decode": GROUPS}),
                min_size=1,
                max_size=2,
                unique_by=str,
            ),
        }
    ),
)
LISTS = st.fixed_dictionaries(
    {},
    optional={
        name: subsets(name)
        for name in SEARCH_CHOICES
        if name not in ("deployment_mode", "planner_scaling_policy", "load_predictor_candidates")
    },
)
POLICIES = st.lists(POLICY_DICTS, max_size=2, unique_by=str).map(lambda dicts: ["disabled", *dicts])
PREDICTORS = st.lists(PREDICTOR_DICTS, max_size=1).map(lambda dicts: ["arima_raw", *dicts])
SCALARS = st.fixed_dictionaries(
    {},
    optional={
        "gpu_budget": st.integers(32, 4096),
        "startup_time": st.floats(0, 1000),
        "agg_gpu_memory_utilization": st.floats(0.01, 1),
        "aic_nextn": st.none() | st.integers(0, 16),
    },
)
GOALS = st.one_of(
    st.sampled_from([{"target": "throughput"}, {"target": "e2e_latency"}, {"target": "pareto"}]),
    st.fixed_dictionaries(
        {
            "target": st.sampled_from(["goodput", "goodput_per_gpu"]),
            "sla": st.fixed_dictionaries(
                {"e2e_ms": st.floats(0.1, 1e6)}, optional={"ttft_ms": st.floats(0.1, 1e6)}
            ),
        }
    ),
)


@settings(max_examples=60, deadline=None)
@given(MODES, LISTS, POLICIES, PREDICTORS, SCALARS, GOALS)
def test_dumping_and_loading_gives_the_same_configuration(
    modes: Given, lists: Given, policies: list[Any], predictors: list[Any], scalars: Given, goal: Given
) -> None:
    if goal["target"].startswith("goodput"):
        policies = ["disabled"]
    composites = {"planner_scaling_policy": policies, "load_predictor_candidates": predictors}
    space = {**SPACE, **modes, **lists, **scalars, **composites}
    config = quietly({"search_space": space, "workload": LOAD, "goal": goal})
    again = config_from_mapping(dump_resolved(config))
    assert again == config
    assert dump_resolved(again) == dump_resolved(config)
    assert parse(dump_yaml(config), "dumped").value == dump_resolved(config)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_subset_of_choices_is_taken_in_its_order(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SEARCH_CHOICES)))
    entries = data.draw(subsets(name))
    space = {**SPACE, name: entries}
    goal = {"target": "goodput", "sla": {"ttft_ms": 500, "itl_ms": 50}}
    config = config_from_mapping({"search_space": space, "workload": LOAD, "goal": goal})
    held = getattr(config.search_space, name)
    assert [getattr(value, "name", value) for value in held] == entries


@settings(max_examples=120, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=10,
    ),
    st.sampled_from(
        [
            "search_space",
            "workload",
            "goal",
            "sweep",
            "search_space.backend",
            "goal.sla",
            "search_space.parallel_configs",
            "search_space.planner_scaling_policy",
            "search_space.load_predictor_candidates",
            "workload.kv_load_ratio",
            "sweep.confirm",
        ]
    ),
)
def test_whatever_stands_in_a_block_is_taken_or_refused_in_our_words(value: object, where: str) -> None:
    block, _, name = where.partition(".")
    base: dict[str, Any] = {"search_space": dict(SPACE), "workload": dict(LOAD), "goal": {}, "sweep": {}}
    if name:
        base[block][name] = value
    else:
        base[block] = value
    config, error = attempt(lambda: quietly(base))
    if config is None:
        assert error is not None
        assert error.problems
        assert "pydantic" not in str(error).lower()
    else:
        assert config_from_mapping(dump_resolved(config)) == config


@settings(max_examples=120, deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!#?|>%@`'\",. \n\t0123456789~<", max_size=60))
def test_any_text_parses_or_is_refused_in_our_words(text: str) -> None:
    tree, error = attempt(lambda: parse(text, "file.yaml"))
    if tree is None:
        assert str(error).startswith("file.yaml")
    else:
        assert all(problem.where.startswith("file.yaml:") for problem in tree.problems)
