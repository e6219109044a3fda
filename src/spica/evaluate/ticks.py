"""What the planner did at its ticks, counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

#: Names of the counts among a replay's metrics, each for a number of ticks.
ACTED: Final = "planner_ticks_acted"
HELD: Final = "planner_ticks_held"
NOT_READY: Final = "planner_ticks_not_ready"

#: Reasons by which the planner says that it has no estimate to decide on.
_UNREADY: Final = frozenset({"insufficient_data", "model_not_ready"})
_LOOPS: Final = ("load_decision_reason", "throughput_decision_reason")
#: A reason of a loop that decided nothing at this tick.
_SILENT: Final = frozenset({"disabled", ""})


def tick_counts(ticks: Iterable[Mapping[str, Any]], *, by_estimates: bool) -> dict[str, float]:
    """The ticks of a replay by what became of them, as metrics.

    ``planner_ticks_acted``: the number of workers was changed. Of the others ``planner_ticks_not_ready``: a
    loop had no estimate to decide on; ``planner_ticks_held``: a decision to leave all as it is, and
    ``planner_ticks_held_<reason>`` by the planner's own word for it. The three add up to all ticks.

    ``by_estimates``: load scaling compares estimated latencies with an SLA; "no change" of one that estimated
    nothing is then no decision.
    """
    found = Counter({ACTED: 0, HELD: 0, NOT_READY: 0})
    for tick in ticks:
        decision = tick["runtime_decision"]
        if decision["target_prefill"] is not None or decision["target_decode"] is not None:
            found[ACTED] += 1
            continue
        diagnostics = tick["effects"]["diagnostics"]
        reasons = _reasons(diagnostics)
        if _UNREADY.intersection(reasons) or (by_estimates and _estimated_nothing(diagnostics)):
            found[NOT_READY] += 1
            continue
        found[HELD] += 1
        found[f"{HELD}_{_word(reasons[0] if reasons else 'nothing_due')}"] += 1
    return {name: float(count) for name, count in found.items()}


def _reasons(diagnostics: Mapping[str, Any]) -> list[str]:
    """What the loops that ran say, the load loop first; per pool in a disaggregated deployment."""
    names = [f"{loop}{pool}" for loop in _LOOPS for pool in ("", "_prefill", "_decode")]
    found = [str(diagnostics.get(name) or "") for name in names]
    return [reason for reason in found if reason not in _SILENT]


def _estimated_nothing(diagnostics: Mapping[str, Any]) -> bool:
    estimates = (diagnostics.get("estimated_ttft_ms"), diagnostics.get("estimated_itl_ms"))
    return diagnostics.get(_LOOPS[0]) == "no_change" and estimates == (None, None)


def _word(reason: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", reason.lower()).strip("_")[:40]
