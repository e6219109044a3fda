"""From a configuration to what is swept: the trace read and written, the predictors chosen, the branches."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from spica.branches import Branch, BranchPlan, build_branches, kept_policies, predictor_settings
from spica.config import SmartSearchConfig
from spica.deployment.sample import PredictorSettings, Sample
from spica.errors import Problem, TraceError, nearest
from spica.evaluate.capabilities import runner_pairs
from spica.evaluate.planner_config import validate_planner_fields
from spica.facts import model_facts
from spica.goals.score import Scoring
from spica.optimize.protocol import CategoricalParameter
from spica.planner.predictor_sweep import PredictorSweepResult, sweep_load_predictor
from spica.record import Ledger
from spica.traffic.model import Trace
from spica.traffic.replayed import PreparedTrace, prepared_trace

Say = Callable[[str], None]

_WITHOUT_MODEL: Final = (
    "this run was begun when planners had no model of the engine, and goes on without it, so that its "
    "numbers can be compared; a new run gives it to them"
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a sweep is made from. ``predictors`` is None when none were asked for; ``written`` is the trace as
    the replay reads it, None when there is no trace or no folder for it. ``engine_model`` is that of
    ``build_branches``."""

    config: SmartSearchConfig
    plan: BranchPlan
    trace: Trace | None
    written: PreparedTrace | None
    predictors: PredictorSweepResult | None
    warnings: tuple[str, ...]
    engine_model: bool = True


def _ignore(_: str) -> None:
    return


def read_workload_trace(config: SmartSearchConfig) -> Trace | None:
    """The trace of a trace workload, checked against the context length; None for synthetic traffic.

    Raises TraceError, and NoPerfDatabase for a model without facts.
    """
    workload = config.workload
    if workload.trace_path is None:
        return None
    from spica.traffic.load import load_for_replay

    _check_there(Path(workload.trace_path))
    limit = config.search_space.context_length or model_facts(config.search_space.model_name).context_length
    return load_for_replay(
        workload.trace_path,
        workload.trace_format,
        context_length=limit,
        over_context=workload.over_context,
    )


def _check_there(path: Path) -> None:
    """TraceError, with the setting and the file of the nearest name, when there is no such file."""
    with suppress(OSError, ValueError):  # what cannot be looked up, the reader refuses with its reason
        if path.exists():
            return
        siblings = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
        near = nearest(path.name, siblings)
        raise TraceError(
            Problem(
                f"no such file: {path}",
                "workload.trace_path",
                suggestion=str(path.parent / near) if near else "",
                remedy="a relative path starts at the folder of the YAML, in --set at the current one",
            )
        )


def choose_predictors(
    config: SmartSearchConfig,
    trace: Trace | None,
    *,
    jobs: int,
    progress: Callable[[int, int], None] | None = None,
) -> PredictorSweepResult:
    """The load-predictor sub-sweep for the throughput intervals that the kept policies use."""
    return sweep_load_predictor(
        trace,
        config.search_space.load_predictor_candidates,
        kept_policies(config).throughput_intervals,
        arrival_speedup_ratio=config.workload.arrival_speedup_ratio,
        jobs=jobs,
        progress=progress,
    )


def prepare(
    config: SmartSearchConfig,
    *,
    folder: Path | None = None,
    jobs: int | None = None,
    say: Say = _ignore,
    engine_model: bool = True,
) -> Prepared:
    """Read the trace, choose the predictors and build the branches.

    ``folder`` is where the trace is written for the replay; without one the branches are only looked at.
    ``jobs`` None skips the predictor sub-sweep. ``say`` is told what takes time. ``engine_model`` is that of
    ``build_branches``. Raises whatever
    ``read_workload_trace``, ``choose_predictors`` and ``build_branches`` raise.
    """
    trace = read_workload_trace(config)
    written = None if trace is None or folder is None else _write(trace, folder)
    predictors = None
    if jobs is not None:
        if trace is not None and kept_policies(config).throughput_intervals:
            say("choosing load predictors")
        predictors = choose_predictors(config, trace, jobs=jobs)
    plan = _plan(config, runner_pairs(), predictors, written, engine_model)
    warnings = (*plan.warnings, *_trace_warnings(config, trace))
    if not engine_model and plan.planner_target == "sla":
        warnings += (_WITHOUT_MODEL,)
    return Prepared(config, plan, trace, written, predictors, warnings, engine_model)


def _plan(
    config: SmartSearchConfig,
    pairs: Collection[tuple[str, str]],
    predictors: PredictorSweepResult | None,
    written: PreparedTrace | None,
    engine_model: bool,
) -> BranchPlan:
    return build_branches(
        config,
        runner_pairs=pairs,
        predictor_winners=_winners(predictors),
        trace=written,
        planner_validator=validate_planner_fields,
        engine_model=engine_model,
    )


def without_pairs(prepared: Prepared, broken: Collection[tuple[str, str]]) -> Prepared:
    """The same without the (backend, mode) pairs that turned out not to work."""
    if not broken:
        return prepared
    pairs = runner_pairs() - frozenset(broken)
    plan = _plan(prepared.config, pairs, prepared.predictors, prepared.written, prepared.engine_model)
    new = tuple(w for w in plan.warnings if w not in prepared.warnings)
    return replace(prepared, plan=plan, warnings=(*prepared.warnings, *new))


def scaled_without_model(ledger: Ledger) -> bool:
    """Whether a run's planners had no model of the engine: it then goes on like that."""
    for ask in ledger.asks():
        for suggestion in ask.suggestions:
            config = json.loads(suggestion.config or "{}")
            if config.get("enable_load_scaling") or config.get("enable_throughput_scaling"):
                return "planner_engine_model" not in config
    return False


def probes(branch: Branch) -> Iterator[Sample]:
    """Samples that show whether the branch's backends work: its centre on each, static and with each scaling
    policy."""
    points = [branch.centre]
    for parameter in branch.parameters:
        if parameter.name in ("backend", "planner_scaling_policy"):
            assert isinstance(parameter, CategoricalParameter)
            points = [{**point, parameter.name: choice} for point in points for choice in parameter.choices]
    for point in points:
        decoded = branch.decode(point)
        if decoded.feasible:
            yield decoded.sample


def _write(trace: Trace, folder: Path) -> PreparedTrace:
    from spica.traffic.write import prepare_replay_file

    return prepared_trace(trace, prepare_replay_file(trace, folder))


def _winners(predictors: PredictorSweepResult | None) -> dict[int, PredictorSettings]:
    if predictors is None:
        return {}
    return {one.interval_s: predictor_settings(one.winner) for one in predictors.intervals}


def _trace_warnings(config: SmartSearchConfig, trace: Trace | None) -> tuple[str, ...]:
    if trace is None:
        return ()
    from spica.traffic.info import trace_warnings

    notes = tuple(f"trace: {note}" for note in trace.notes)
    searched = "kv_router" in config.search_space.router_mode
    return notes + trace_warnings(
        trace,
        searched,
        arrival_speedup_ratio=config.workload.arrival_speedup_ratio,
        arrivals_ignored=config.workload.replay_concurrency is not None,
    )


def scoring_of_goal(config: SmartSearchConfig) -> Scoring:
    """The goal as the sweep scores by it."""
    from spica.goals.score import scoring_of

    return scoring_of({"goal": config.goal.model_dump(mode="json")})
