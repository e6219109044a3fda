"""The load-predictor sub-sweep: which of the planner's forecasters fits a trace, per throughput interval.

Each candidate forecasts every window of the trace from the windows before it, in its own process and under a
time cap. The mean one-step-ahead loss over the windows that all candidates can forecast picks the winner.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Final, Literal

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from spica.errors import ConfigError, Problem, StackError
from spica.planner.predictor_worker import Forecasts, TrafficWindow, quiet_worker, run_predictor
from spica.planner.predictors import LOAD_PREDICTOR_PRESETS, PredictorSpec, resolve_predictor
from spica.storage.scratch import scratch_folder
from spica.traffic.model import Trace
from spica.traffic.transform import Cut, cut_trace
from spica.traffic.write import write_mooncake

BASELINE: Final = LOAD_PREDICTOR_PRESETS["constant_last"]

#: Seconds one predictor may take over one interval's windows before it is stopped.
DEFAULT_CAP_S: Final = 120.0

Entry = str | Mapping[str, object] | PredictorSpec
SweepReason = Literal["swept", "no throughput-scaling policy", "static workload"]


@dataclass(frozen=True, slots=True)
class PredictorScore:
    """How one predictor did on one interval.

    ``loss`` is the mean per-window loss (see :func:`window_loss`); inf with a ``cause`` when the predictor
    raised, gave a number that is not finite, was late or died, or when no window could be scored. ``note``
    tells of fits that failed inside the predictor. ``forecasts`` is empty for a failed one.
    """

    spec: PredictorSpec
    loss: float
    candidate: bool
    cause: str = ""
    note: str = ""
    forecasts: tuple[TrafficWindow, ...] = ()


@dataclass(frozen=True, slots=True)
class IntervalResult:
    """The scores and the winner of one throughput interval (seconds); ``warmup`` windows were not scored."""

    interval_s: int
    windows: tuple[TrafficWindow, ...]
    warmup: int
    scores: tuple[PredictorScore, ...]
    winner: PredictorSpec
    reason: str

    @property
    def scored_windows(self) -> int:
        """How many windows each loss is the mean of."""
        return max(0, len(self.windows) - self.warmup)


@dataclass(frozen=True, slots=True)
class LossRow:
    """One line of the table of losses.

    ``versus_constant`` is the loss divided by constant_last's; None unless both are finite, the latter not 0.
    """

    interval_s: int
    predictor: str
    loss: float
    versus_constant: float | None
    windows: int
    candidate: bool
    winner: bool
    cause: str
    note: str


@dataclass(frozen=True, slots=True)
class PredictorSweepResult:
    """What the sub-sweep found, per interval, or the reason why nothing was swept."""

    intervals: tuple[IntervalResult, ...]
    reason: SweepReason

    def winner(self, interval_s: int) -> PredictorSpec:
        """The predictor for policies of that throughput interval; constant_last if it was not swept."""
        return next((r.winner for r in self.intervals if r.interval_s == interval_s), BASELINE)

    def table(self) -> tuple[LossRow, ...]:
        """Every predictor's loss per interval, best first, the constant baseline always included."""
        rows: list[LossRow] = []
        for result in self.intervals:
            base = next((s.loss for s in result.scores if s.spec.load_predictor == "constant"), math.inf)
            for score in sorted(result.scores, key=lambda s: s.loss):
                rows.append(
                    LossRow(
                        result.interval_s,
                        score.spec.name,
                        score.loss,
                        score.loss / base if 0 < base < math.inf and score.loss < math.inf else None,
                        result.scored_windows,
                        score.candidate,
                        score.spec == result.winner,
                        score.cause,
                        score.note,
                    )
                )
        return tuple(rows)


def _err(predicted: float, actual: float) -> float:
    return abs(math.log1p(max(predicted, 0.0)) - math.log1p(max(actual, 0.0)))


def window_loss(forecast: TrafficWindow, actual: TrafficWindow) -> float:
    """0.4 err(n i) + 0.4 err(n o) + 0.1 err(i) + 0.1 err(o), err(p, a) = |ln(1 + p) - ln(1 + a)|.

    n is the number of requests, i and o the mean prompt and output lengths. Negative forecasts count as 0
    before they are multiplied.
    """
    n, i, o = (max(v, 0.0) for v in (forecast.requests, forecast.isl, forecast.osl))
    return (
        0.4 * _err(n * i, actual.requests * actual.isl)
        + 0.4 * _err(n * o, actual.requests * actual.osl)
        + 0.1 * _err(i, actual.isl)
        + 0.1 * _err(o, actual.osl)
    )


def windows_of(trace: Trace, interval_s: int) -> tuple[TrafficWindow, ...]:
    """The trace cut into windows of ``interval_s`` seconds by the planner's own function.

    Empty windows between the first and the last request count as zeros. StackError without the planner.
    """
    try:
        from dynamo.planner.offline.trace_data import extract_metrics_from_mooncake
    except ImportError as error:
        raise StackError(
            f"the planner's trace reader cannot be imported: {error}",
            remedy="install the locked requirements of this project",
        ) from None
    with scratch_folder() as folder:
        path = write_mooncake(trace, folder / "windows.jsonl")
        found = extract_metrics_from_mooncake(str(path), interval_s)
    return tuple(
        TrafficWindow(
            int(one["interval_start"]),
            float(one["request_count"]),
            float(one["avg_isl"]),
            float(one["avg_osl"]),
        )
        for one in found
    )


def _cause_of(error: BaseException, cap_s: float) -> str:
    """Why a predictor has no forecasts, in one line."""
    if isinstance(error, FutureTimeout):
        return f"took longer than {cap_s:g} s and was stopped"
    if isinstance(error, ProcessExpired):
        return f"its process died (exit code {error.exitcode})"
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _not_finite(forecasts: Forecasts) -> str:
    """The first forecast that is no number, as a cause; empty when all are finite."""
    for index, window in enumerate(forecasts.windows):
        for what, value in (("requests", window.requests), ("isl", window.isl), ("osl", window.osl)):
            if not math.isfinite(value):
                return f"forecast {value} for {what} of window {index}"
    return ""


def _score(
    spec: PredictorSpec,
    candidate: bool,
    outcome: Forecasts | str,
    windows: Sequence[TrafficWindow],
    warmup: int,
) -> PredictorScore:
    if isinstance(outcome, str):
        return PredictorScore(spec, math.inf, candidate, outcome)
    note = ""
    if outcome.fell_back:
        note = f"{outcome.fell_back} fits failed and repeated the last value ({outcome.why})"
    if cause := _not_finite(outcome):
        return PredictorScore(spec, math.inf, candidate, cause, note)
    losses = [window_loss(f, a) for f, a in zip(outcome.windows, windows, strict=True)][warmup:]
    if not losses:
        return PredictorScore(spec, math.inf, candidate, "no window left to score", note, outcome.windows)
    return PredictorScore(spec, math.fsum(losses) / len(losses), candidate, "", note, outcome.windows)


def judge(
    interval_s: int,
    windows: tuple[TrafficWindow, ...],
    outcomes: Sequence[tuple[PredictorSpec, bool, Forecasts | str]],
) -> IntervalResult:
    """Score what the predictors of one interval forecast and name the winner.

    ``outcomes`` holds (predictor, whether it may win, its forecasts or the cause why there are none). Only
    windows beyond the largest warm-up of the candidates are scored; a tie goes to the earlier candidate.
    """
    warmup = max(
        (o.minimum_data_points for _, may, o in outcomes if may and isinstance(o, Forecasts)), default=0
    )
    scores = tuple(_score(spec, may, outcome, windows, warmup) for spec, may, outcome in outcomes)
    finite = [s for s in scores if s.candidate and math.isfinite(s.loss)]
    if finite:
        best = min(finite, key=lambda s: s.loss)
        return IntervalResult(interval_s, windows, warmup, scores, best.spec, "smallest mean loss")
    if len(windows) <= warmup:
        reason = f"trace too short: {len(windows)} windows of {interval_s} s, more than {warmup} are needed"
    else:
        reason = "no candidate gave a forecast for every window"
    return IntervalResult(interval_s, windows, warmup, scores, BASELINE, f"{reason}; {BASELINE.name} is used")


def _entrants(candidates: Sequence[Entry]) -> list[tuple[PredictorSpec, bool]]:
    """The distinct candidates in order, and the constant baseline if it is not among them."""
    specs = list(dict.fromkeys(resolve_predictor(entry) for entry in candidates))
    if not specs:
        raise ConfigError(Problem("no load predictor to choose from", key="load_predictor_candidates"))
    entrants = [(spec, True) for spec in specs]
    if not any(spec.load_predictor == "constant" for spec in specs):
        entrants.append((BASELINE, False))
    return entrants


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Processes started inside do not run the caller's script again, as ``spawn`` would have them do.

    So a script needs no ``__main__`` guard. The workers only need functions of this package.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _forecast_all(
    entrants: Sequence[tuple[PredictorSpec, bool]],
    series: Mapping[int, tuple[TrafficWindow, ...]],
    jobs: int,
    cap_s: float,
    progress: Callable[[int, int], None] | None,
) -> dict[tuple[int, str], Forecasts | str]:
    """Every predictor on every interval's windows, in worker processes; causes stand in for failures."""
    done: dict[tuple[int, str], Forecasts | str] = {}
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(jobs, len(entrants) * len(series)))
    with (
        _main_hidden(),
        ProcessPool(max_workers=workers, initializer=quiet_worker, context=context) as pool,
    ):
        futures: dict[tuple[int, str], ProcessFuture[Forecasts]] = {
            (interval, spec.name): pool.schedule(run_predictor, args=(spec, windows, interval), timeout=cap_s)
            for interval, windows in series.items()
            for spec, _ in entrants
        }
        try:
            for key, future in futures.items():
                error = future.exception()
                done[key] = future.result() if error is None else _cause_of(error, cap_s)
                if progress is not None:
                    progress(len(done), len(futures))
        except BaseException:
            pool.stop()
            raise
    return done


def sweep_load_predictor(
    trace: Trace | None,
    candidates: Sequence[Entry],
    intervals: Sequence[int],
    *,
    arrival_speedup_ratio: float = 1.0,
    jobs: int = 2,
    cap_seconds: float = DEFAULT_CAP_S,
    progress: Callable[[int, int], None] | None = None,
) -> PredictorSweepResult:
    """Choose a load predictor for each throughput interval.

    ``trace`` is None for a static (synthetic) workload. ``intervals`` are the distinct
    ``throughput_adjustment_interval_seconds`` of the policies that scale by throughput; none means nothing is
    swept. Arrivals are divided by ``arrival_speedup_ratio`` first, as the replay does. ``jobs`` processes run
    at once, each predictor for at most ``cap_seconds`` per interval; ``progress(done, total)`` hears of each.
    Raises ConfigError for an illegal candidate and StackError when the planner is not installed.
    """
    entrants = _entrants(candidates)
    wanted = sorted(set(intervals))
    if not wanted:
        return PredictorSweepResult((), "no throughput-scaling policy")
    if trace is None:
        results = tuple(
            IntervalResult(interval, (), 0, (), BASELINE, f"static workload: {BASELINE.name}")
            for interval in wanted
        )
        return PredictorSweepResult(results, "static workload")
    faster = cut_trace(trace, Cut(speedup=arrival_speedup_ratio))
    series = {interval: windows_of(faster, interval) for interval in wanted}
    done = _forecast_all(entrants, series, jobs, cap_seconds, progress)
    judged = tuple(
        judge(interval, windows, [(spec, may, done[interval, spec.name]) for spec, may in entrants])
        for interval, windows in series.items()
    )
    return PredictorSweepResult(judged, "swept")
