"""From the state of a sweep that has ended (or was stopped) to its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spica.goals.arrange import arrange
from spica.goals.ranking import hypervolume, reference_point
from spica.goals.score import Scoring, avg_gpu, score
from spica.record.results import (
    BranchSummary,
    Candidate,
    OutcomeCount,
    RoundVolume,
    Saved,
    Stop,
    SweepResult,
)
from spica.sweep.budget import behind
from spica.sweep.confirm import comparisons, leaders
from spica.sweep.events import Timings
from spica.sweep.inputs import SweepInputs
from spica.sweep.loop import Search
from spica.sweep.measure import MeasurementId, Measurer
from spica.sweep.rounds import BranchState, Entry, Kind, without_numbers
from spica.trial import Outcome


def candidates(states: Sequence[BranchState], measurer: Measurer, scoring: Scoring) -> tuple[Candidate, ...]:
    """Every feasible candidate measured so far, by branch and in the order of suggestion."""
    return tuple(
        candidate
        for state in states
        for entry in state.first.values()
        if (candidate := _candidate(state, entry, measurer, scoring)) is not None
    )


def _candidate(state: BranchState, entry: Entry, measurer: Measurer, scoring: Scoring) -> Candidate | None:
    result = measurer.result(MeasurementId(entry.key))
    if result is None or result.metrics is None:
        return None
    values = scoring.values(result.metrics)
    sample = entry.decoded.sample
    return Candidate(
        key=entry.key,
        branch=state.name,
        config=sample.config(),
        sample=sample,
        objectives=values,
        score=0.0 if scoring.target == "pareto" else score(scoring.target, values[0]),
        metrics=result.metrics,
        used_gpus=sample.used_gpus,
        avg_gpu=avg_gpu(result.metrics),
        trial_ids=tuple(state.trial(e) for e in state.entries if e.key == entry.key),
        round=entry.round + 1,
        seconds=result.seconds,
        excluded_by_sla=scoring.excluded_by_sla(result.metrics),
    )


def result(
    inputs: SweepInputs,
    search: Search,
    found: tuple[Candidate, ...],
    *,
    exact: tuple[Candidate, ...] = (),
    stop: Stop = "",
    timings: Timings,
) -> SweepResult:
    """The result of a sweep with the candidates ``found``; ``exact`` are leaders that needed no repeats."""
    scoring, states = inputs.scoring, search.states
    arranged = arrange(found, scoring)
    ranked, front = arranged.ranked, arranged.front
    eligible = [c for c in found if not c.excluded_by_sla]
    top = inputs.options.confirm.top
    places = {c.key: n for n, c in enumerate(front or ranked, start=1)}

    def name(candidate: Candidate) -> str:
        """Its rank, as the results are listed; the trial for what is not on the front."""
        place = places.get(candidate.key)
        return candidate.trial_ids[0] if place is None else f"rank {place}"

    reference = reference_point(search.points, scoring.maximize)
    return SweepResult(
        scoring=scoring,
        candidates=ranked,
        front=front,
        knee=arranged.knee,
        excluded=tuple(c for c in ranked if c.excluded_by_sla),
        branches=_branches(states, scoring),
        outcomes=_outcomes(states, search.measurer),
        timings=timings,
        saved=_saved(states, exact, inputs.options.confirm.repeats),
        hypervolumes=_volumes(search, scoring) if scoring.is_pareto else (),
        reference=reference if scoring.is_pareto else (),
        comparisons=comparisons(leaders(found, scoring, top), scoring, name) if top and found else (),
        warnings=(*inputs.warnings, *_warnings(found, eligible, [name(c) for c in exact])),
        dropped=inputs.dropped,
        stop=stop,
    )


def _branches(states: Sequence[BranchState], scoring: Scoring) -> tuple[BranchSummary, ...]:
    late = behind([s.standing() for s in states], scoring.maximize)
    return tuple(
        BranchSummary(
            name=state.name,
            rounds=state.closed,
            max_rounds=state.max_rounds,
            suggestions=len(state.entries),
            new_trials=sum(e.key in state.told for e in state.first.values()),
            cache_hits=sum(e.kind is Kind.REPEATED and e.key in state.told for e in state.entries),
            feasible=len(state.points),
            stopped=state.stopped or _not_stopped(state, is_late),
            early=state.early,
            behind=is_late,
        )
        for state, is_late in zip(states, late, strict=True)
    )


def _not_stopped(state: BranchState, is_late: bool) -> str:
    if is_late and state.closed == state.opened:
        return f"clearly worse than the best branch: {state.max_rounds - state.closed} rounds were saved"
    return "the sweep was stopped"


def _outcomes(states: Sequence[BranchState], measurer: Measurer) -> tuple[OutcomeCount, ...]:
    """Trials by outcome and cause, most frequent first. Cache hits are not trials."""
    counts: Counter[tuple[str, Outcome, str]] = Counter()
    examples: dict[tuple[str, Outcome, str], str] = {}
    for state in states:
        for entry in state.entries:
            outcome, reason = _end(entry, measurer)
            if outcome is not None:
                group = (state.name, outcome, without_numbers(reason))
                counts[group] += 1
                examples.setdefault(group, reason)
    return tuple(
        OutcomeCount(group[1], examples[group], count, group[0]) for group, count in counts.most_common()
    )


def _end(entry: Entry, measurer: Measurer) -> tuple[Outcome | None, str]:
    if entry.kind is Kind.INFEASIBLE:
        return Outcome.INFEASIBLE, entry.decoded.reason
    measured = measurer.result(MeasurementId(entry.key)) if entry.kind is Kind.NEW else None
    return (None, "") if measured is None else (measured.outcome, measured.reason)


def _saved(states: Sequence[BranchState], exact: tuple[Candidate, ...], repeats: int) -> tuple[Saved, ...]:
    counts: Counter[str] = Counter()
    for state in states:
        for entry in state.entries:
            if entry.kind is Kind.REPEATED:
                rules = sorted({*entry.decoded.rules, *state.first[entry.key].decoded.rules})
                inert = f"differs only in settings that cannot act ({', '.join(rules)})"
                counts[inert if rules else "the same candidate was measured before"] += 1
    if exact:
        counts["replays under round robin repeat themselves exactly; no confirming"] += len(exact) * repeats
    return tuple(Saved(reason, count) for reason, count in counts.most_common())


def _volumes(search: Search, scoring: Scoring) -> tuple[RoundVolume, ...]:
    reference = reference_point(search.points, scoring.maximize)
    return tuple(
        RoundVolume(
            mark.branch,
            mark.round,
            mark.replays,
            hypervolume(search.points[: mark.points], scoring.maximize, reference),
        )
        for mark in search.marks
    )


def _warnings(
    found: Sequence[Candidate], eligible: Sequence[Candidate], exact: Sequence[str]
) -> tuple[str, ...]:
    lines = []
    if found and not eligible:
        lines.append(
            "no request of any candidate met the SLA: loosen it, lower the load, or raise the GPU budget"
        )
    if exact:
        lines.append(
            f"not measured again, because their replays repeat themselves exactly: {', '.join(exact)}"
        )
    return tuple(lines)
