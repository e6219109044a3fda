"""One tiny candidate per backend and mode, before a study starts: what is broken is said once, in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from spica.deployment.sample import Backend
from spica.deployment.shapes import Mode
from spica.errors import Problem, StackError, TraceError
from spica.evaluate.protocol import Evaluator, ReplayPlan
from spica.evaluate.proven import tiny_plan
from spica.evaluate.reasons import CAP_PREFIX, DIED_PREFIX, STACK_PREFIX, TRACE_PREFIX
from spica.traffic.replayed import TraceTraffic
from spica.trial import Outcome, TrialResult
from spica.versions import stack_versions

#: Rows of the trace that a preflight replays.
HEAD_ROWS: Final = 2
HEAD_FILE: Final = "preflight.jsonl"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the preflight of one (backend, mode) showed. ``reason`` is empty when all is well.

    A tiny candidate that is only too small or too large to run (``infeasible``), or whose worker went over
    its memory cap, says nothing against its backend and mode, so such a pair is ``ok`` with its reason.
    """

    backend: Backend
    mode: Mode
    ok: bool
    reason: str = ""
    traceback: str = ""


def preflight(evaluator: Evaluator, plans: Iterable[ReplayPlan], scratch: Path) -> tuple[Verdict, ...]:
    """Replay a tiny version of the first plan of each backend and mode; all of them at once.

    ``plans``: real candidates, one or more per pair (the first with a planner is preferred, because it loads
    more). ``scratch``: a folder for the head of a trace. Raises StackError when the installed components do
    not work, or when no pair works at all, and TraceError when the trace cannot be replayed.
    """
    chosen: dict[tuple[Backend, Mode], ReplayPlan] = {}
    for plan in plans:
        pair = (plan.sample.backend, plan.sample.mode)
        if pair not in chosen or (chosen[pair].sample.planner.scaling is None) > (
            plan.sample.planner.scaling is None
        ):
            chosen[pair] = plan
    futures = {pair: evaluator.submit(_tiny(plan, scratch)) for pair, plan in chosen.items()}
    results = {pair: future.result() for pair, future in futures.items()}
    # A worker that someone killed says nothing about its pair; one that dies twice does.
    again = {p: evaluator.submit(_tiny(chosen[p], scratch)) for p, r in results.items() if _died(r)}
    results |= {pair: future.result() for pair, future in again.items()}
    verdicts = tuple(_verdict(*pair, result) for pair, result in results.items())
    _raise_common_causes(verdicts, [plan.traffic for plan in chosen.values()])
    return verdicts


def _died(result: TrialResult) -> bool:
    return result.outcome is Outcome.FAILED and result.reason.startswith(DIED_PREFIX)


def _tiny(plan: ReplayPlan, scratch: Path) -> ReplayPlan:
    traffic = plan.traffic
    if not isinstance(traffic, TraceTraffic):
        return tiny_plan(plan)
    head = scratch / HEAD_FILE
    try:
        with Path(traffic.path).open(encoding="utf-8") as trace:
            rows = list(islice(trace, HEAD_ROWS))
        head.write_text("".join(rows), encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(Problem(f"cannot be read: {error}", where=traffic.path)) from error
    small = TraceTraffic(str(head), len(rows), traffic.total_tokens, replay_concurrency=1)
    return replace(plan, traffic=small)


def _verdict(backend: Backend, mode: Mode, result: TrialResult) -> Verdict:
    ok = result.outcome in (Outcome.FEASIBLE, Outcome.INFEASIBLE) or result.reason.startswith(CAP_PREFIX)
    return Verdict(backend, mode, ok, result.reason, result.traceback)


def _raise_common_causes(verdicts: Sequence[Verdict], traffics: Sequence[object]) -> None:
    for verdict in verdicts:
        if verdict.reason.startswith(STACK_PREFIX):
            raise StackError(f"{verdict.reason} ({_versions()})", remedy=_REINSTALL)
        if verdict.reason.startswith(TRACE_PREFIX):
            path = next((t.path for t in traffics if isinstance(t, TraceTraffic)), "")
            raise TraceError(Problem(verdict.reason, where=path))
    if verdicts and all(verdict.reason.startswith(CAP_PREFIX) for verdict in verdicts):
        raise StackError(
            f"not even a tiny candidate can be replayed: {verdicts[0].reason}",
            remedy="give the workers more memory: --memory-gb",
        )
    if verdicts and not any(verdict.ok for verdict in verdicts):
        told = "; ".join(f"{v.backend} {v.mode}: {v.reason}" for v in verdicts)
        raise StackError(f"no backend and mode can be replayed: {told} ({_versions()})")


_REINSTALL: Final = "install the pinned environment again: make setup"


def _versions() -> str:
    return ", ".join(f"{name} {version}" for name, version in stack_versions().items() if name != "spica")
