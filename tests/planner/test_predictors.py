"""The load-predictor knob: presets, dict entries and what is refused."""

from __future__ import annotations

import pytest

from spica.errors import ConfigError
from spica.planner.predictors import (
    LOAD_PREDICTOR_DEFAULTS,
    LOAD_PREDICTOR_PRESETS,
    PredictorSpec,
    predictor_problems,
    resolve_predictor,
)


def test_presets_are_the_eleven_of_the_reference() -> None:
    assert list(LOAD_PREDICTOR_PRESETS) == [
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
    ]
    assert LOAD_PREDICTOR_PRESETS["kalman_reactive_log1p"].planner_fields() == {
        "load_predictor": "kalman",
        "load_predictor_log1p": True,
        "kalman_q_level": 10.0,
        "kalman_q_trend": 1.0,
        "kalman_r": 5.0,
        "kalman_min_points": 3,
    }
    assert LOAD_PREDICTOR_PRESETS["prophet_w20_raw"].planner_fields() == {
        "load_predictor": "prophet",
        "load_predictor_log1p": False,
        "prophet_window_size": 20,
    }
    assert LOAD_PREDICTOR_PRESETS["constant_last"].planner_fields() == {
        "load_predictor": "constant",
        "load_predictor_log1p": False,
    }


def test_dict_entries_take_the_family_defaults() -> None:
    kalman = resolve_predictor({"load_predictor": "kalman", "kalman_r": 2})
    assert kalman.planner_fields() == {
        "load_predictor": "kalman",
        "load_predictor_log1p": False,
        "kalman_q_level": 1.0,
        "kalman_q_trend": 0.1,
        "kalman_r": 2.0,
        "kalman_min_points": 5,
    }
    prophet = resolve_predictor({"load_predictor": "prophet", "load_predictor_log1p": True})
    assert prophet.prophet_window_size == 50
    assert prophet.kalman_r is None
    names = {
        resolve_predictor({"load_predictor": "kalman", "kalman_r": r, "load_predictor_log1p": b}).name
        for r in (1, 2)
        for b in (True, False)
    }
    assert len(names) == 4


def test_specs_and_preset_ids_resolve_to_themselves() -> None:
    spec = PredictorSpec("mine", "arima", True)
    assert resolve_predictor(spec) is spec
    assert resolve_predictor("arima_raw") is LOAD_PREDICTOR_PRESETS["arima_raw"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("kalman_defualt_raw", "did you mean 'kalman_default_raw'"),
        (7, "neither a preset id nor a dict"),
        ({}, "needs load_predictor"),
        ({"load_predictor": "profet"}, "did you mean 'prophet'"),
        ({"load_predictor": "arima", "kalman_r": 1.0}, "no such key for arima"),
        ({"load_predictor": "kalman", "kalman_rr": 1.0}, "did you mean 'kalman_r'"),
        ({"load_predictor": "kalman", "kalman_r": float("nan")}, "finite number > 0"),
        ({"load_predictor": "kalman", "kalman_r": True}, "finite number > 0"),
        ({"load_predictor": "kalman", "kalman_min_points": 2.5}, "a whole number >= 1"),
        ({"load_predictor": "prophet", "prophet_window_size": True}, "a whole number >= 1"),
        ({"load_predictor": "arima", "load_predictor_log1p": 1}, "not a boolean"),
    ],
)
def test_illegal_entries_are_refused_with_what_is_allowed(entry: object, expected: str) -> None:
    problems = predictor_problems(entry, "search_space.load_predictor_candidates[0]")
    assert expected in str(problems[0])
    assert str(problems[0]).startswith("search_space.load_predictor_candidates[0]")
    if isinstance(entry, (str, dict)):
        with pytest.raises(ConfigError):
            resolve_predictor(entry)


@pytest.mark.real
def test_defaults_are_the_planners_own() -> None:
    from dynamo.planner.config.planner_config import PlannerConfig

    fields = PlannerConfig.model_fields
    assert {k: fields[k].default for k in LOAD_PREDICTOR_DEFAULTS} == dict(LOAD_PREDICTOR_DEFAULTS)


@pytest.mark.real
def test_every_preset_reaches_the_planners_config_field_by_field() -> None:
    from dynamo.planner.config.planner_config import PlannerConfig

    for spec in LOAD_PREDICTOR_PRESETS.values():
        config = PlannerConfig(**spec.planner_fields())
        for name, value in spec.planner_fields().items():
            assert getattr(config, name) == value
