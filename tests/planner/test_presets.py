"""Planner presets against the reference tables and the planner itself; dict entries; the policy filter."""

from __future__ import annotations

from dataclasses import fields

import pytest

from spica.errors import ConfigError
from spica.planner.filters import filter_scaling_policies
from spica.planner.presets import (
    FPM_SAMPLING,
    LOAD_SENSITIVITY,
    PLANNER_FIELDS,
    PLANNER_PRESETS,
    SCALING_POLICIES,
    ScalingPolicy,
    composite_entry,
    composite_problems,
    resolve_composite,
)

# throughput scaling, load scaling, throughput interval, load interval
POLICIES = {
    "throughput_180_5": (True, False, 180, 5),
    "throughput_600_5": (True, False, 600, 5),
    "load_180_5": (False, True, 180, 5),
    "load_180_10": (False, True, 180, 10),
    "hybrid_180_5": (True, True, 180, 5),
    "hybrid_600_5": (True, True, 600, 5),
}
CUSTOM = {
    "enable_throughput_scaling": True,
    "enable_load_scaling": False,
    "throughput_adjustment_interval_seconds": 240,
    "load_adjustment_interval_seconds": 5,
}


def test_the_scaling_policies_are_those_of_the_reference() -> None:
    assert list(SCALING_POLICIES) == ["disabled", *POLICIES]
    for name, values in POLICIES.items():
        policy = SCALING_POLICIES[name]
        assert tuple(getattr(policy, f) for f in PLANNER_FIELDS["planner_scaling_policy"]) == values
        assert policy.name == name
        assert not policy.is_static
    assert SCALING_POLICIES["disabled"].is_static


def test_the_sampling_and_sensitivity_presets_are_those_of_the_reference() -> None:
    samplings = {n: (s.max_num_fpm_samples, s.fpm_sample_bucket_size) for n, s in FPM_SAMPLING.items()}
    assert samplings == {"small": (32, 4), "default": (64, 16), "large": (128, 16), "fine": (128, 64)}
    sensitivities = {
        n: (s.load_scaling_down_sensitivity, s.load_min_observations) for n, s in LOAD_SENSITIVITY.items()
    }
    assert sensitivities == {"aggressive": (70, 3), "default": (80, 5), "conservative": (90, 8)}


def test_a_dict_entry_is_named_by_its_canonical_json() -> None:
    policy = resolve_composite("planner_scaling_policy", dict(reversed(CUSTOM.items())))
    assert policy == ScalingPolicy(
        '{"enable_load_scaling":false,"enable_throughput_scaling":true,'
        '"load_adjustment_interval_seconds":5,"throughput_adjustment_interval_seconds":240}',
        True,
        False,
        240,
        5,
    )
    assert composite_entry("planner_scaling_policy", policy) == CUSTOM


@pytest.mark.parametrize("knob", list(PLANNER_PRESETS))
def test_entries_survive_the_way_there_and_back(knob: str) -> None:
    for name, preset in PLANNER_PRESETS[knob].items():
        assert composite_entry(knob, resolve_composite(knob, name)) == name
        # The same values as a dict are another entry: it has another name.
        spelled = {f.name: getattr(preset, f.name) for f in fields(preset) if f.name != "name"}
        assert composite_entry(knob, resolve_composite(knob, spelled)) == spelled


@pytest.mark.parametrize("knob", list(PLANNER_PRESETS))
@pytest.mark.parametrize("entry", [None, 3, True, [], "", "no such preset", {}, {"x": 1}])
def test_an_entry_that_is_not_legal_cannot_be_resolved(knob: str, entry: object) -> None:
    problems = composite_problems(knob, entry, "k[0]")
    assert problems
    assert all(p.key.startswith("k[0]") for p in problems)
    with pytest.raises(ConfigError):
        resolve_composite(knob, entry)


@pytest.mark.parametrize(
    ("change", "legal"),
    [
        ({"enable_load_scaling": True, "load_adjustment_interval_seconds": 239}, True),
        ({"enable_load_scaling": True, "load_adjustment_interval_seconds": 240}, False),
        ({"load_adjustment_interval_seconds": 300}, True),
        ({"load_adjustment_interval_seconds": 0}, False),
        ({"throughput_adjustment_interval_seconds": True}, False),
        ({"throughput_adjustment_interval_seconds": 240.0}, False),
        ({"enable_load_scaling": 1}, False),
    ],
)
def test_the_values_of_a_policy_dict_are_checked(change: dict[str, object], legal: bool) -> None:
    problems = composite_problems("planner_scaling_policy", {**CUSTOM, **change})
    assert (not problems) == legal


@pytest.mark.parametrize(("size", "legal"), [(1, True), (15, False), (16, True), (0, False), (10_000, True)])
def test_a_bucket_size_is_a_perfect_square(size: int, legal: bool) -> None:
    entry = {"max_num_fpm_samples": 64, "fpm_sample_bucket_size": size}
    assert (not composite_problems("planner_fpm_sampling", entry)) == legal


@pytest.mark.real
@pytest.mark.parametrize("knob", list(PLANNER_PRESETS))
def test_the_planner_takes_every_preset(knob: str) -> None:
    from dynamo.planner.config.planner_config import PlannerConfig

    for preset in PLANNER_PRESETS[knob].values():
        if isinstance(preset, ScalingPolicy) and preset.is_static:
            continue
        values = {name: getattr(preset, name) for name in PLANNER_FIELDS[knob]}
        config = PlannerConfig(optimization_target="sla", mode="agg", **values)
        assert {name: getattr(config, name) for name in values} == values


@pytest.mark.real
@pytest.mark.parametrize(
    ("knob", "entry"),
    [
        ("planner_scaling_policy", CUSTOM | {"throughput_adjustment_interval_seconds": 0}),
        (
            "planner_scaling_policy",
            CUSTOM | {"enable_load_scaling": True, "load_adjustment_interval_seconds": 240},
        ),
        ("planner_fpm_sampling", {"max_num_fpm_samples": 64, "fpm_sample_bucket_size": 15}),
        ("planner_fpm_sampling", {"max_num_fpm_samples": 0, "fpm_sample_bucket_size": 16}),
        ("planner_load_sensitivity", {"load_scaling_down_sensitivity": 101, "load_min_observations": 5}),
    ],
)
def test_what_is_refused_here_the_planner_refuses_too(knob: str, entry: dict[str, object]) -> None:
    from dynamo.planner.config.planner_config import PlannerConfig

    assert composite_problems(knob, entry)
    with pytest.raises(ValueError, match="validation error"):
        PlannerConfig(optimization_target="sla", mode="agg", **entry)


def names(policies: tuple[ScalingPolicy, ...]) -> list[str]:
    return [policy.name for policy in policies]


def test_a_goodput_goal_with_token_targets_keeps_every_policy() -> None:
    kept, dropped = filter_scaling_policies(tuple(SCALING_POLICIES.values()), allow_throughput=True)
    assert names(kept) == list(SCALING_POLICIES)
    assert dropped == ()


def test_without_an_sla_target_throughput_scaling_is_dropped_with_the_reason() -> None:
    custom = resolve_composite("planner_scaling_policy", CUSTOM)
    assert isinstance(custom, ScalingPolicy)
    kept, dropped = filter_scaling_policies((*SCALING_POLICIES.values(), custom), allow_throughput=False)
    assert names(kept) == ["disabled", "load_180_5", "load_180_10"]
    gone = ["throughput_180_5", "throughput_600_5", "hybrid_180_5", "hybrid_600_5", custom.name]
    assert names(tuple(d.policy for d in dropped)) == gone
    assert all("goodput goal" in d.reason for d in dropped)


def test_an_e2e_only_sla_keeps_static_policies_alone() -> None:
    off = resolve_composite("planner_scaling_policy", CUSTOM | {"enable_throughput_scaling": False})
    assert isinstance(off, ScalingPolicy)
    kept, dropped = filter_scaling_policies(
        (*SCALING_POLICIES.values(), off), allow_throughput=False, allow_load=False
    )
    assert names(kept) == ["disabled", off.name]
    assert len(dropped) == 6
    assert all("e2e_ms alone" in d.reason for d in dropped)


@pytest.mark.parametrize(("allow_load", "listed"), [(True, "throughput_180_5"), (False, "load_180_5")])
def test_nothing_left_is_an_error_that_names_what_was_listed(allow_load: bool, listed: str) -> None:
    with pytest.raises(ConfigError, match=listed) as caught:
        filter_scaling_policies([SCALING_POLICIES[listed]], allow_throughput=False, allow_load=allow_load)
    assert caught.value.problems[0].key == "search_space.planner_scaling_policy"
