"""Progress of a running sweep, on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from spica.deployment.sample import FlatConfig
from spica.report.numbers import candidate_text, duration, values_text
from spica.sweep.events import (
    BestImproved,
    BranchStopped,
    PhaseChanged,
    RoundFinished,
    SweepEvent,
    Timings,
    TrialFinished,
    Warned,
)
from spica.trial import Outcome

#: How often one reason is spelled out before it is only counted.
SHOW_REASON = 3


class LiveProgress:
    """A ``SweepObserver`` that prints. Use it as a context manager around the sweep."""

    def __init__(self, console: Console, objectives: Sequence[str]) -> None:
        self._console = console
        self._objectives = tuple(objectives)
        self._phase = "starting"
        self._done = 0
        self._total = 0
        self._timings = Timings()
        self._began = time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._best = ""
        self._live = (
            Live(self._status(), console=console, refresh_per_second=4, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> LiveProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_event(self, event: SweepEvent) -> None:
        """Print what is news and keep the status line current."""
        match event:
            case PhaseChanged(phase, detail):
                self._phase = phase
                self._say(f"{phase}{f': {detail}' if detail else ''}")
            case TrialFinished():
                self._trial(event)
            case BestImproved(branch, _, values, config, front_size):
                self._improved(branch, values, config, front_size)
            case RoundFinished():
                self._round(event)
            case BranchStopped(branch, reason, early):
                self._say(f"{branch}: stopped{' early' if early else ''}: {reason}")
            case Warned(message):
                self._say(f"warning: {message}", style="yellow")
        if self._live is not None:
            self._live.update(self._status())

    def _trial(self, event: TrialFinished) -> None:
        self._done, self._total, self._timings = event.done, event.total, event.timings
        name = "cache_hit" if event.cache_hit else event.outcome.value
        self._outcomes[name] += 1
        if event.cache_hit:
            return
        if event.outcome is Outcome.FEASIBLE:
            if self._live is None:
                shown = values_text(event.values, self._objectives)
                repeat = f" (repeat {event.repeat})" if event.repeat else ""
                self._say(f"[{_count(event.done, event.total)}] {event.trial}{repeat}: {shown}")
            return
        self._reasons[event.reason] += 1
        count = self._reasons[event.reason]
        if count <= SHOW_REASON:
            more = " (from now on only counted)" if count == SHOW_REASON else ""
            self._say(
                f"[{_count(event.done, event.total)}] {event.trial} {name}: {event.reason}{more}",
                style="yellow",
            )

    def _improved(self, branch: str, values: tuple[float, ...], config: FlatConfig, front: int) -> None:
        shown = values_text(values, self._objectives)
        self._best = shown if len(values) == 1 else f"front of {front}, last {shown}"
        self._say(f"best so far: {shown}  {candidate_text(config)}", style="green")

    def _round(self, event: RoundFinished) -> None:
        self._timings = event.timings
        self._say(
            f"{event.branch}: round {event.round}/{event.max_rounds}, {event.new_candidates} new candidates"
            f" from {event.suggested} suggestions"
        )

    def _say(self, line: str, *, style: str | None = None) -> None:
        clock = duration(time.monotonic() - self._began)
        self._console.print(Text(f"{clock:>8}  {line}", style=style or ""), soft_wrap=self._live is None)

    def _status(self) -> Table:
        """Two lines: a bar with counts, then the best and where the time went."""
        top = Table.grid(padding=(0, 1))
        total = max(1, self._total)
        counts = ", ".join(f"{count} {name}" for name, count in self._outcomes.items()) or "no results yet"
        top.add_row(
            Text(self._phase, style="bold"),
            ProgressBar(total=total, completed=self._done, width=20, pulse=not self._total),
            Text(_count(self._done, self._total) if self._total else ""),
            Text(counts),
        )
        spent = f"suggesting {self._timings.suggesting:.1f} s, evaluating {self._timings.evaluating:.1f} s"
        bottom = Text(f"best {self._best or '-'}   {spent}", no_wrap=True, overflow="ellipsis")
        grid = Table.grid()
        grid.add_row(top)
        grid.add_row(bottom)
        return grid


def _count(done: int, total: int) -> str:
    """Rounds that turn out not to be worth it are saved, so that the total is only a bound."""
    return f"{done} of up to {total}"
