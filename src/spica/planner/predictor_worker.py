"""One load predictor run over one series with the planner's own classes: what a worker process does."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from dataclasses import dataclass

from spica.planner.predictors import PredictorSpec


@dataclass(frozen=True, slots=True)
class TrafficWindow:
    """What arrived in one throughput interval, or a forecast of it.

    ``start_s`` counts seconds from the origin of the trace; ``requests`` is a count, ``isl`` and ``osl`` are
    mean lengths in tokens (0 in a window without requests).
    """

    start_s: int
    requests: float
    isl: float
    osl: float


@dataclass(frozen=True, slots=True)
class Forecasts:
    """The forecast of every window made from the windows before it.

    ``minimum_data_points`` is the predictor's warm-up in windows. ``fell_back`` counts the fits that failed
    inside the planner's predictor and were replaced there by the last value; ``why`` is the first of them.
    """

    windows: tuple[TrafficWindow, ...]
    minimum_data_points: int
    fell_back: int = 0
    why: str = ""


class _FailedFits(logging.Handler):
    """Counts the planner's warnings that a fit failed and the last value stood in."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def quiet_worker() -> None:
    """Start-up of a worker: silence Prophet, Stan and pmdarima, and import the planner's predictors.

    The import (some seconds) happens here so that it does not count against a predictor's time cap. A package
    that is missing is reported by the predictors that need it, not here.
    """
    os.environ["DYN_LOG"] = "error"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    # Stan's own processes write past Python, so the descriptors themselves are redirected.
    sink = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)
    try:
        import dynamo.planner.core.load.predictors  # noqa: F401
    except ImportError:
        return
    warnings.simplefilter("ignore")
    for name in ("prophet", "cmdstanpy", "pmdarima"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def run_predictor(spec: PredictorSpec, windows: tuple[TrafficWindow, ...], interval_s: int) -> Forecasts:
    """Forecast each window from those before it, then observe it; three instances, one per series.

    Whatever the planner's configuration or predictor raises, goes to the caller.
    """
    from dynamo.planner.config.planner_config import PlannerConfig
    from dynamo.planner.core.load import predictors as planner_side

    config = PlannerConfig(throughput_adjustment_interval_seconds=interval_s, **spec.planner_fields())
    family = planner_side.LOAD_PREDICTORS[spec.load_predictor]
    requests, isl, osl = family(config), family(config), family(config)
    failed = _FailedFits()
    planner_side.logger.addHandler(failed)
    made: list[TrafficWindow] = []
    try:
        for window in windows:
            made.append(
                TrafficWindow(
                    window.start_s,
                    float(requests.predict_next()),
                    float(isl.predict_next()),
                    float(osl.predict_next()),
                )
            )
            requests.add_data_point(window.requests)
            isl.add_data_point(window.isl)
            osl.add_data_point(window.osl)
    finally:
        planner_side.logger.removeHandler(failed)
    why = failed.messages[0] if failed.messages else ""
    return Forecasts(tuple(made), int(requests.minimum_data_points), len(failed.messages), why)
