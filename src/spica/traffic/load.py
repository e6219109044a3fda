"""The check a sweep does on its trace before anything is replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from spica.errors import Problem, TraceError
from spica.traffic.collect import SHOWN
from spica.traffic.model import Request, Trace, TraceNote
from spica.traffic.read import ZeroOutput, read_trace

OverContext = Literal["refuse", "drop"]


def _over_problems(trace: Trace, over: list[Request], context_length: int, setting: str) -> list[Problem]:
    problems = [
        Problem(
            f"needs {row.input_length} + {row.output_length} = {row.total_tokens} tokens, "
            f"more than the context length of {context_length}",
            where=f"{row.source or trace.source}:{row.line}" if row.line else trace.source,
        )
        for row in sorted(over, key=lambda r: (r.source, r.line))[:SHOWN]
    ]
    if len(over) > SHOWN:
        problems.append(Problem(f"and {len(over) - SHOWN} more requests", where=trace.source))
    last = problems[-1]
    remedy = f"no request of the trace fits: raise {setting}"
    if len(over) < len(trace):
        what = f"leave out these {len(over)} of {len(trace)} requests (workload.over_context: drop)"
        remedy = f"{what}, or raise {setting}"
    problems[-1] = Problem(last.message, last.key, last.where, remedy=remedy)
    return problems


def fit_context(
    trace: Trace,
    context_length: int,
    over_context: OverContext,
    *,
    setting: str = "search_space.context_length",
) -> Trace:
    """The trace without requests beyond ``context_length`` tokens (prompt + output), or TraceError.

    ``refuse`` raises when there are any; ``drop`` leaves them out with a note, and raises if none is left.
    ``setting`` is where the limit was given, for the message.
    """
    over = [row for row in trace.requests if row.total_tokens > context_length]
    if not over:
        return trace
    if over_context == "refuse" or len(over) == len(trace):
        raise TraceError(_over_problems(trace, over, context_length, setting))
    kept = tuple(row for row in trace.requests if row.total_tokens <= context_length)
    message = f"{len(over)} requests beyond the context length of {context_length} tokens were dropped"
    return trace.with_requests(kept, TraceNote("dropped", len(over), message))


def load_for_replay(
    path: str | Path,
    trace_format: str = "mooncake",
    *,
    context_length: int | None,
    over_context: OverContext = "refuse",
    zero_output: ZeroOutput = "drop",
) -> Trace:
    """Read, check and fit a trace for the sweep; see :func:`spica.traffic.read.read_trace`.

    ``context_length`` in tokens (None: no limit known, nothing checked). Raises TraceError.
    """
    trace = read_trace(path, trace_format, zero_output=zero_output)
    return trace if context_length is None else fit_context(trace, context_length, over_context)
