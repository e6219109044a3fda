"""What the runtime's messages mean: an outcome and a reason a user can act on.

The runtime raises ValueError and plain Exception with texts, so the texts are all there is to go by. The
table was made by provoking each of them (``ai-dynamo-runtime`` 1.6.1); a text that is not in it is a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spica.trial import Outcome, TrialResult


@dataclass(frozen=True, slots=True)
class _Rule:
    """``text`` in the message gives ``outcome`` with ``reason`` in front of the message."""

    text: str
    outcome: Outcome
    reason: str


#: Marks a failure that every other candidate would meet too; the preflight stops the run on it.
STACK_PREFIX: Final = "the installed components do not work together"
TRACE_PREFIX: Final = "the trace cannot be replayed"
#: The worker ended under the replay: killed, out of memory, or crashed.
DIED_PREFIX: Final = "worker died"
#: The worker had, or would have had, more than the cap on its memory: a bound of this machine.
CAP_PREFIX: Final = "memory cap"
#: What a death says that the lack of memory may have caused.
OUT_OF_MEMORY: Final = "out of memory"
DATA_PREFIX: Final = "no performance data"

_RULES: Final = (
    _Rule("no KV budget", Outcome.INFEASIBLE, "no KV budget"),
    _Rule("Invalid quantized MoE configuration", Outcome.INFEASIBLE, "this shape cannot shard the experts"),
    _Rule("Parallelism width mismatch", Outcome.INFEASIBLE, "illegal parallel shape"),
    _Rule("topology requires tp * attention_dp", Outcome.INFEASIBLE, "illegal parallel shape"),
    _Rule(
        "effect-free zero-duration pass",
        Outcome.INFEASIBLE,
        "the replay stands still: a request is larger than a worker's whole KV pool",
    ),
    _Rule("native_host_offload", Outcome.UNSUPPORTED, "host KV offload cannot be modelled here"),
    _Rule("aic_nextn", Outcome.UNSUPPORTED, "speculative decoding cannot be modelled here"),
    _Rule("speculative", Outcome.UNSUPPORTED, "speculative decoding cannot be modelled here"),
    _Rule("disagg replay only supports", Outcome.UNSUPPORTED, "disaggregated replay is not supported"),
    _Rule("unsupported schema version", Outcome.FAILED, STACK_PREFIX),
    _Rule("unknown field", Outcome.FAILED, STACK_PREFIX),
    _Rule("no timing data for", Outcome.UNSUPPORTED, DATA_PREFIX),
    _Rule("perf database error: ", Outcome.UNSUPPORTED, DATA_PREFIX),
    _Rule("trace line", Outcome.FAILED, TRACE_PREFIX),
    _Rule("trace file", Outcome.FAILED, TRACE_PREFIX),
    _Rule("failed to parse line", Outcome.FAILED, TRACE_PREFIX),
    _Rule("failed to read line", Outcome.FAILED, TRACE_PREFIX),
)


def is_lost(result: TrialResult) -> bool:
    """Whether the trial ended with its worker: that says nothing about the candidate, so that it is tried
    again when the run is resumed. (Records of before call one that went over its memory cap infeasible.)"""
    ended = result.outcome in (Outcome.FAILED, Outcome.INFEASIBLE)
    return ended and result.reason.startswith((DIED_PREFIX, CAP_PREFIX))


def perhaps_memory(reason: str) -> bool:
    """Whether a lost trial may have been lost for want of memory."""
    return reason.startswith(CAP_PREFIX) or OUT_OF_MEMORY in reason


def classify(error: BaseException) -> tuple[Outcome, str]:
    """The outcome of a trial that ended with ``error``, and its reason (one line)."""
    message = " ".join(str(error).split())
    if isinstance(error, ImportError):
        return Outcome.FAILED, f"{STACK_PREFIX}: {message}"
    if isinstance(error, MemoryError):
        return Outcome.FAILED, f"{DIED_PREFIX} ({OUT_OF_MEMORY}: {_short(message) or 'MemoryError'})"
    for rule in _RULES:
        if rule.text in message:
            # What stands before ``: `` at the end of a rule's text is how the error travelled.
            detail = message.partition(rule.text)[2] if rule.text.endswith(": ") else message
            return rule.outcome, f"{rule.reason}: {_short(detail)}"
    return Outcome.FAILED, f"{type(error).__name__}: {_short(message) or 'no message'}"


def _short(message: str, limit: int = 400) -> str:
    return message if len(message) <= limit else message[: limit - 1] + "…"
