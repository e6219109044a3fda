"""The row every trace format is read into, and a checked trace of such rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from spica.errors import Problem, TraceError, nearest

#: Tokens per hash id in a mooncake trace.
MOONCAKE_BLOCK: Final = 512

TraceFormat = Literal["mooncake", "azure", "burstgpt", "requests", "dynamo"]

#: Every format a reader exists for, with what tells it from the others.
TRACE_FORMATS: Final[dict[TraceFormat, str]] = {
    "mooncake": "JSON lines with timestamp (ms), input_length, output_length, optional hash_ids",
    "azure": "CSV with TIMESTAMP,ContextTokens,GeneratedTokens",
    "burstgpt": "CSV with Timestamp (s), Request tokens, Response tokens",
    "requests": "JSON list or JSON lines with prompt and output lengths and an arrival time (s)",
    "dynamo": "JSON lines with schema dynamo.request.trace.v1, one file or a folder of them",
}

#: Other names people use for the formats; ``auto`` asks for detection.
FORMAT_ALIASES: Final[dict[str, TraceFormat]] = {
    "vllm": "requests",
    "sharegpt": "requests",
    "azure_llm": "azure",
    "dynamo.request.trace.v1": "dynamo",
}


def resolve_format(name: str, *, key: str = "trace_format") -> TraceFormat | None:
    """The format called ``name``; None for ``auto`` (to be detected). TraceError if unknown."""
    for known in TRACE_FORMATS:
        if name == known:
            return known
    if name in FORMAT_ALIASES:
        return FORMAT_ALIASES[name]
    if name == "auto":
        return None
    names = (*TRACE_FORMATS, *FORMAT_ALIASES, "auto")
    raise TraceError(
        Problem(
            f"unknown trace format {name!r}",
            key=key,
            suggestion=nearest(name, names) or "",
            allowed=", ".join(names),
        )
    )


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a trace.

    ``arrival_ms`` is in milliseconds from the origin of the trace, lengths are in tokens. ``hash_ids`` holds
    one id per block of prompt tokens (the trace's ``block_size``), equal ids in equal positions meaning equal
    content; None when the source says nothing about prefixes. ``delay_ms`` is a think time counted from the
    answer to the session's previous turn. ``line`` is where the row stood in its file (0: made, not read),
    and ``source`` that file where the trace has several.
    """

    arrival_ms: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] | None = None
    session: str | None = None
    delay_ms: float | None = None
    line: int = field(default=0, compare=False)
    source: str = field(default="", compare=False)

    @property
    def total_tokens(self) -> int:
        """Prompt and output together: what has to fit the context length."""
        return self.input_length + self.output_length


NoteKind = Literal[
    "sorted", "dropped", "clamped", "rebased", "ignored", "flattened", "filled", "regrouped", "cut", "merged"
]


@dataclass(frozen=True, slots=True)
class TraceNote:
    """Something done to a trace on the way in (or out), with the number of rows it concerned."""

    kind: NoteKind
    count: int
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Trace:
    """A checked trace: requests by arrival, and what was done to the source to get there.

    ``block_size`` is the number of prompt tokens each hash id stands for. With ``closed_sessions`` a turn of
    a session is sent only after the answer to the one before it (as the replay does when rows carry a session
    id); otherwise sessions are only a label and every request arrives at its own time.
    """

    requests: tuple[Request, ...]
    format: str
    notes: tuple[TraceNote, ...] = ()
    block_size: int = MOONCAKE_BLOCK
    closed_sessions: bool = False
    source: str = ""

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def span_ms(self) -> float:
        """Time from the first to the last arrival, ms."""
        return self.requests[-1].arrival_ms - self.requests[0].arrival_ms if self.requests else 0.0

    @property
    def has_prefixes(self) -> bool:
        """Whether any row says which blocks of its prompt it shares with others."""
        return any(r.hash_ids is not None for r in self.requests)

    def with_requests(self, requests: tuple[Request, ...], *notes: TraceNote) -> Trace:
        """The same trace with other rows and further notes."""
        return replace(self, requests=requests, notes=(*self.notes, *notes))


def block_count(tokens: int, block_size: int = MOONCAKE_BLOCK) -> int:
    """Blocks that ``tokens`` prompt tokens take, the last one possibly partial."""
    return math.ceil(tokens / block_size)
