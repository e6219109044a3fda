"""The sweep: ask, project, drop duplicates, evaluate, tell, record. Written on protocols only.

``docs/runs.md`` explains the order of things, resuming, and how branches share the budget.
"""

from spica.sweep.inputs import ConfirmOptions, SearchBranch, SearchOptions, SweepInputs
from spica.sweep.interrupts import (
    StopFlag,
    how_to_continue,
    raise_if_interrupted,
    stop_on_interrupt,
    terminate_as_interrupt,
)
from spica.sweep.run import run_sweep

__all__ = [
    "ConfirmOptions",
    "SearchBranch",
    "SearchOptions",
    "StopFlag",
    "SweepInputs",
    "how_to_continue",
    "raise_if_interrupted",
    "run_sweep",
    "stop_on_interrupt",
    "terminate_as_interrupt",
]
