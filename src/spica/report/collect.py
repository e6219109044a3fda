"""From a run folder to a :class:`RunReport`.

The ledger says what was suggested and measured. Two files beside it, written by the sweep, add what the
ledger does not hold: ``space.json`` (what was ruled out before the search) and ``summary.json`` (how the
sweep went). A run that was killed lacks the second, and is reported all the same.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spica.errors import LedgerError
from spica.evaluate.reasons import is_lost
from spica.goals.arrange import arrange
from spica.goals.score import Scoring, avg_gpu, score, scoring_of
from spica.record import AskRecord, Ledger, RunIdentity, SuggestionRecord, TellRecord, TrialRecord
from spica.record.runfolder import SPACE_FILE, SUMMARY_FILE
from spica.record.sidefiles import RuledOut, read_space, read_summary
from spica.report.data import (
    BranchRow,
    Extras,
    Leader,
    NotSearched,
    ReasonCount,
    RunReport,
    TrialRow,
)
from spica.sweep.confirm import mean_metrics, spread_of
from spica.trial import Metrics, Outcome


def collect(folder: Path, *, intact: bool = False) -> RunReport:
    """Everything a report shows of the run in ``folder``.

    ``intact``: leave out what is damaged in the record, and say so (``RunReport.damage``).
    Raises LedgerError when there is no run, or it is damaged.
    """
    with Ledger.read(folder, intact=intact) as ledger:
        identity = ledger.identity()
        asks, tells, measured = ledger.asks(), ledger.tells(), ledger.trials()
        damage = ledger.damage
    try:
        config = json.loads(identity.config_json)
        scoring = scoring_of(config)
        report = _assemble(folder, identity, config, scoring, asks, tells, measured)
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(
            f"{folder}: the recorded run cannot be understood: {type(error).__name__}: {error}",
            remedy="use the version of Spica that made it",
        ) from error
    return replace(report, damage=damage)


def _assemble(
    folder: Path,
    identity: RunIdentity,
    config: Mapping[str, Any],
    scoring: Scoring,
    asks: Sequence[AskRecord],
    tells: Sequence[TellRecord],
    measured: Sequence[TrialRecord],
) -> RunReport:
    trials = _trial_rows(asks, tells, measured, scoring)
    leaders, knee_key = _leaders(trials, measured, scoring)
    space = config["search_space"]
    extras = _extras(folder / SUMMARY_FILE)
    not_searched, shapes = _space(folder / SPACE_FILE)
    return RunReport(
        name=folder.resolve().name,
        scoring=scoring,
        seed=identity.seed,
        versions=identity.versions,
        config_text=identity.config_text,
        config_json=identity.config_json,
        model=str(space["model_name"]),
        hardware=str(space["hardware_sku"]),
        gpu_budget=int(space["gpu_budget"]),
        traffic=traffic_text(config["workload"]),
        trials=trials,
        leaders=leaders,
        reasons=_reasons(trials),
        branches=_branches(trials, extras),
        knee=knee_key,
        not_searched=not_searched,
        shapes_dropped=shapes,
        extras=extras,
        lost=_lost(trials, measured),
    )


def _trial_rows(
    asks: Sequence[AskRecord],
    tells: Sequence[TellRecord],
    measured: Sequence[TrialRecord],
    scoring: Scoring,
) -> tuple[TrialRow, ...]:
    """One row per suggestion, in the order of asking."""
    first = {m.key: (i, m) for i, m in enumerate((m for m in measured if m.repeat == 0), start=1)}
    told = {(t.branch, t.suggestion): t for t in tells}
    seen: set[str] = set()
    rows = []
    for ask in asks:
        for suggestion in ask.suggestions:
            hit = suggestion.key in seen and suggestion.key in first
            tell = told.get((ask.branch, suggestion.id))
            known = first.get(suggestion.key)
            rows.append(_trial_row(ask, suggestion, known, hit or bool(tell and tell.cache_hit), scoring))
            seen.add(suggestion.key)
    return tuple(rows)


def _trial_row(
    ask: AskRecord,
    suggestion: SuggestionRecord,
    known: tuple[int, TrialRecord] | None,
    hit: bool,
    scoring: Scoring,
) -> TrialRow:
    row = TrialRow(
        trial=f"{ask.branch}-{suggestion.id}",
        branch=ask.branch,
        round=ask.round + 1,
        key=suggestion.key,
        outcome="pending",
        reason="not measured before the run stopped",
        cache_hit=hit,
        order=0,
        seconds=0.0,
        values=None,
        config=json.loads(suggestion.config) if suggestion.config else {},
    )
    if suggestion.infeasible:
        return replace(row, outcome=Outcome.INFEASIBLE.value, reason=suggestion.infeasible)
    if known is None:
        return row
    order, trial = known
    result = scoring.judge(trial.result)
    return replace(
        row,
        outcome=result.outcome.value,
        reason=result.reason,
        order=0 if hit else order,
        seconds=0.0 if hit else result.seconds,
        values=None if result.metrics is None else scoring.values(result.metrics),
        metrics={} if result.metrics is None else dict(result.metrics.summary),
    )


def _leaders(
    trials: Sequence[TrialRow], measured: Sequence[TrialRecord], scoring: Scoring
) -> tuple[tuple[Leader, ...], str]:
    """All feasible candidates in order, and the key of the knee of a Pareto goal."""
    repeats = _measurements(measured, scoring)
    by_key: dict[str, list[TrialRow]] = defaultdict(list)
    for row in trials:
        if row.outcome == Outcome.FEASIBLE.value:
            by_key[row.key].append(row)
    found = [_leader(rows, repeats[key], scoring) for key, rows in by_key.items()]
    arranged = arrange(found, scoring)
    on_front = {leader.key for leader in arranged.front}
    rest = [leader for leader in arranged.ranked if leader.key not in on_front]
    if scoring.is_pareto:
        rest.sort(key=lambda leader: leader.excluded_by_sla)
    ordered = [*(replace(leader, on_front=True) for leader in arranged.front), *rest]
    return _numbered(ordered), "" if arranged.knee is None else arranged.knee.key


def _measurements(measured: Sequence[TrialRecord], scoring: Scoring) -> dict[str, list[Metrics]]:
    """What each candidate is judged by: its confirming measurements if there are any, else the search's. One
    that the goal cannot score counts as failed, as it does in a sweep."""
    found: dict[str, list[Metrics]] = {}
    for confirming in (False, True):
        again: dict[str, list[Metrics]] = defaultdict(list)
        for record in measured:
            metrics = scoring.judge(record.result).metrics
            if metrics is not None and (record.repeat > 0) is confirming:
                again[record.key].append(metrics)
        found |= again
    return found


def _numbered(leaders: Sequence[Leader]) -> tuple[Leader, ...]:
    return tuple(replace(leader, rank=i) for i, leader in enumerate(leaders, start=1))


def _leader(rows: Sequence[TrialRow], repeats: Sequence[Metrics], scoring: Scoring) -> Leader:
    """A candidate from its suggestions and its measurements (the search's first)."""
    spreads = tuple(map(spread_of, zip(*(scoring.values(m) for m in repeats), strict=True)))
    means = tuple(spread.mean for spread in spreads)
    mean = mean_metrics(repeats)
    config = rows[0].config
    used = config.get("used_gpus")
    return Leader(
        rank=0,
        key=rows[0].key,
        branch=rows[0].branch,
        config=config,
        values=means,
        score=0.0 if scoring.target == "pareto" else score(scoring.target, means[0]),
        used_gpus=used if isinstance(used, int) else 0,
        avg_gpu=avg_gpu(mean),
        metrics=mean.summary,
        trials=tuple(row.trial for row in rows),
        order=max(row.order for row in rows),
        seconds=math.fsum(row.seconds for row in rows),
        repeats=len(repeats),
        std=tuple(spread.std for spread in spreads) if len(repeats) > 1 else (),
        excluded_by_sla=scoring.excluded_by_sla(mean),
        planner_total_ticks=repeats[0].planner_total_ticks,
        timeline=repeats[0].replicas,
    )


def _lost(trials: Sequence[TrialRow], measured: Sequence[TrialRecord]) -> tuple[tuple[str, str], ...]:
    """The measurements that ended with their worker: trial and reason."""
    names: dict[str, str] = {}
    for row in trials:
        names.setdefault(row.key, row.trial)
    return tuple(
        (f"{names[m.key]} measured again ({m.repeat})" if m.repeat else names[m.key], m.result.reason)
        for m in measured
        if m.key in names and is_lost(m.result)
    )


def _reasons(trials: Sequence[TrialRow]) -> tuple[ReasonCount, ...]:
    """How often what went wrong, most frequent first; cache hits are not counted again."""
    counts = Counter(
        (t.outcome, t.reason, t.branch)
        for t in trials
        if t.outcome != Outcome.FEASIBLE.value and not t.cache_hit
    )
    return tuple(ReasonCount(o, r, n, b) for (o, r, b), n in counts.most_common())


def _branches(trials: Sequence[TrialRow], extras: Extras) -> tuple[BranchRow, ...]:
    names = dict.fromkeys([*(t.branch for t in trials), *extras.branch_ends])
    rows = []
    for name in names:
        own = [t for t in trials if t.branch == name]
        rows.append(
            BranchRow(
                name=name,
                rounds=max((t.round for t in own), default=0),
                suggestions=len(own),
                replays=sum(t.order > 0 for t in own),
                cache_hits=sum(t.cache_hit for t in own),
                feasible=len({t.key for t in own if t.outcome == Outcome.FEASIBLE.value}),
                stopped=extras.branch_ends.get(name, ""),
            )
        )
    return tuple(rows)


def _extras(path: Path) -> Extras:
    found = read_summary(path)
    return Extras(
        suggesting=found.timings.suggesting,
        evaluating=found.timings.evaluating,
        wall=found.timings.wall,
        stop=found.stop,
        branch_ends=found.branch_ends,
        saved=tuple(found.saved),
        hypervolumes=tuple(found.hypervolumes),
        comparisons=tuple(found.comparisons),
        warnings=tuple(found.warnings),
    )


def _space(path: Path) -> tuple[tuple[NotSearched, ...], tuple[NotSearched, ...]]:
    found = read_space(path)

    def rows(ruled_out: Sequence[RuledOut]) -> tuple[NotSearched, ...]:
        return tuple(NotSearched(r.what, r.reason, r.detail) for r in ruled_out)

    return rows(found.not_searched), rows(found.shapes_dropped)


def traffic_text(workload: Mapping[str, Any]) -> str:
    """The workload block in one line."""
    if workload.get("trace_path"):
        name = Path(str(workload["trace_path"])).name
        capped = workload.get("replay_concurrency")
        speed = workload.get("arrival_speedup_ratio") or 1.0
        load = f", {capped} in flight" if capped else (f", arrivals x {speed:g}" if speed != 1 else "")
        return f"trace {name}{load}"
    lengths = f"{workload.get('isl')} tokens in, {workload.get('osl')} out"
    if workload.get("concurrency"):
        return f"{lengths}, {workload['concurrency']} in flight"
    if workload.get("request_rate"):
        return f"{lengths}, {workload['request_rate']:g} requests/s"
    return f"{lengths}, load by KV capacity (ratio {workload.get('kv_load_ratio')})"
