"""Every policy reaches the planner: checked on the planner's own configuration object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from evaluation_samples import LOAD, STATIC, Make

from spica.deployment.sample import PlannerSettings, PredictorSettings, ScalingSettings
from spica.deployment.shapes import ParallelShape
from spica.evaluate.planner_config import PlannerUnsupported, planner_config, validate_planner_fields
from spica.planner.presets import PlannerTarget
from spica.trial import Sla

SLA = Sla(ttft_ms=1500.0, itl_ms=25.0)
KALMAN = PredictorSettings(
    "kalman", True, kalman_q_level=10.0, kalman_q_trend=1.0, kalman_r=5.0, kalman_min_points=3
)

#: The table of presets, written out: throughput scaling, load scaling, throughput and load interval.
PRESETS: dict[str, tuple[bool, bool, int, int]] = {
    "throughput_180_5": (True, False, 180, 5),
    "throughput_600_5": (True, False, 600, 5),
    "load_180_5": (False, True, 180, 5),
    "load_180_10": (False, True, 180, 10),
    "hybrid_180_5": (True, True, 180, 5),
    "hybrid_600_5": (True, True, 600, 5),
    '{"custom": "dict"}': (True, True, 90, 15),
}


def _settings(
    policy: str, fpm: tuple[int, int] = (128, 16), sensitivity: tuple[int, int] = (70, 3)
) -> PlannerSettings:
    throughput, load, long, short = PRESETS[policy]
    scaling = ScalingSettings(long, short, *fpm, *sensitivity, predictor=KALMAN if throughput else None)
    return PlannerSettings(policy, throughput, load, scaling)


def _planner_object(fields: dict[str, Any]) -> Any:
    from dynamo.planner.config.planner_config import PlannerConfig

    return PlannerConfig.from_config_arg(json.dumps(fields))


def test_a_static_deployment_has_no_planner() -> None:
    assert planner_config(Make(planner=STATIC).sample(), "sla", SLA) is None


@pytest.mark.real
@pytest.mark.parametrize("policy", sorted(PRESETS))
@pytest.mark.parametrize("disagg", [False, True])
def test_every_field_on_the_planners_own_object(policy: str, disagg: bool) -> None:
    throughput, load, long, short = PRESETS[policy]
    make = Make(
        planner=_settings(policy),
        shape=ParallelShape(tp=4),
        replicas=1,
        disagg=disagg,
        min_gpu_budget=4,
        min_endpoint=2,
    )
    fields = planner_config(make.sample(), "sla", SLA)
    assert fields is not None
    planner = _planner_object(fields)
    assert set(fields) <= set(type(planner).model_fields)
    assert planner.mode == ("disagg" if disagg else "agg")
    assert planner.optimization_target == "sla"
    assert planner.enable_throughput_scaling is throughput
    assert planner.enable_load_scaling is load
    assert planner.throughput_adjustment_interval_seconds == long
    assert planner.load_adjustment_interval_seconds == short
    assert (planner.max_num_fpm_samples, planner.fpm_sample_bucket_size) == (128, 16)
    assert (planner.load_scaling_down_sensitivity, planner.load_min_observations) == (70, 3)
    assert (planner.max_gpu_budget, planner.min_gpu_budget, planner.min_endpoint) == (8, 4, 2)
    assert planner.decode_engine_num_gpu == 4
    assert planner.prefill_engine_num_gpu == (4 if disagg else None)
    assert (planner.ttft_ms, planner.itl_ms) == (1500.0, 25.0)
    assert planner.report_interval_hours is None
    assert planner.live_dashboard_port == 0
    if throughput:
        assert (planner.load_predictor, planner.load_predictor_log1p) == ("kalman", True)
        assert (planner.kalman_q_level, planner.kalman_q_trend, planner.kalman_r) == (10.0, 1.0, 5.0)
        assert planner.kalman_min_points == 3


@pytest.mark.real
@pytest.mark.parametrize("target", ["throughput", "latency"])
def test_load_scaling_without_an_sla(target: PlannerTarget) -> None:
    fields = planner_config(Make(planner=LOAD).sample(), target, None)
    assert fields is not None
    assert "ttft_ms" not in fields
    planner = _planner_object(fields)
    assert (planner.optimization_target, planner.enable_load_scaling) == (target, True)
    assert planner.enable_throughput_scaling is False
    assert planner.min_gpu_budget == -1


@pytest.mark.parametrize("sla", [None, Sla(e2e_ms=9000.0), Sla(ttft_ms=1.0)])
def test_a_scaling_policy_needs_both_sla_targets(sla: Sla | None) -> None:
    with pytest.raises(PlannerUnsupported, match=r"sla\.ttft_ms and sla\.itl_ms"):
        planner_config(Make(planner=LOAD).sample(), "sla", sla)


@pytest.mark.real
def test_what_the_planner_refuses_is_said_before_the_study() -> None:
    assert validate_planner_fields(STATIC, "sla") is None
    for policy in PRESETS:
        assert validate_planner_fields(_settings(policy), "sla") is None
    odd = validate_planner_fields(_settings("load_180_5", fpm=(64, 15)), "sla")
    assert odd is not None
    assert "fpm_sample_bucket_size must be a perfect square, got 15" in odd
    steep = validate_planner_fields(_settings("load_180_5", sensitivity=(101, 5)), "sla")
    assert steep is not None
    assert "load_scaling_down_sensitivity" in steep
