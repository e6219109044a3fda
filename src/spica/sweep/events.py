"""What happens during a sweep, as typed values for whoever shows it (terminal, report, ledger).

All events come from the thread that called ``run_sweep``, in order. An observer must not block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from spica.deployment.sample import FlatConfig
from spica.record.results import Timings as Timings
from spica.trial import Outcome

Phase = Literal["preflight", "searching", "confirming", "done"]


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    phase: Phase
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TrialFinished:
    """A suggestion has its result. ``trial`` is ``<branch>-<suggestion id>``; ``values`` the objectives in
    natural units (one for a single target), None unless feasible. ``cache_hit``: the result was known, no
    replay was run. ``repeat`` > 0: a confirming measurement. ``done`` counts the
    measurements that succeeded, ``total`` is the most that can; it never grows."""

    branch: str
    trial: str
    outcome: Outcome
    reason: str
    values: tuple[float, ...] | None
    config: FlatConfig | None
    seconds: float
    cache_hit: bool
    repeat: int
    done: int
    total: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class BestImproved:
    """A new best candidate (single target), or a new point on the front (Pareto)."""

    branch: str
    trial: str
    values: tuple[float, ...]
    config: FlatConfig
    front_size: int = 1


@dataclass(frozen=True, slots=True)
class RoundFinished:
    """``suggested`` suggestions gave ``new_candidates`` new feasible candidates. Rounds count from 1."""

    branch: str
    round: int
    max_rounds: int
    new_candidates: int
    suggested: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class BranchStopped:
    """A branch takes no more rounds. ``early``: before its ``max_rounds``."""

    branch: str
    reason: str
    early: bool


@dataclass(frozen=True, slots=True)
class Warned:
    message: str


SweepEvent = PhaseChanged | TrialFinished | BestImproved | RoundFinished | BranchStopped | Warned


class SweepObserver(Protocol):
    def on_event(self, event: SweepEvent) -> None: ...


class Silent:
    """Observes nothing."""

    def on_event(self, event: SweepEvent) -> None:
        """Ignore the event."""


@dataclass(slots=True)
class Recorded:
    """Keeps every event, for tests and notebooks."""

    events: list[SweepEvent] = field(default_factory=list)

    def on_event(self, event: SweepEvent) -> None:
        self.events.append(event)
