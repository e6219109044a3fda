"""What a replay will cost, before it starts: an impossible candidate is refused with the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.reasons import CAP_PREFIX
from spica.traffic.replayed import SyntheticTraffic
from spica.trial import Outcome, TrialResult

#: Measured on one core over 8 loads (10 to 30,000 prompt tokens, 2 to 2,000 output tokens, 64 to 512 in
#: flight, 5,000 to 200,000 requests): 5 to 20 us per request, 10 ns per prompt token, 0.23 us (512 in flight)
#: to 0.5 us (64 in flight) per output token. The fast end is taken, so that only a candidate that cannot end
#: in time is refused; the wall-clock cap deals with the rest.
SECONDS_PER_REQUEST: Final = 5.0e-6
SECONDS_PER_OUTPUT_TOKEN: Final = 2.0e-7
#: From the same runs: 4.0 to 4.2 bytes per prompt token (prompts are held as 4-byte tokens for the whole
#: replay) and 450 bytes per request, on top of a process of 200 MiB.
BYTES_PER_PROMPT_TOKEN: Final = 4
BYTES_PER_REQUEST: Final = 450
BASE_BYTES: Final = 200 * 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one replay: wall-clock seconds and resident bytes of its worker; None is no bound."""

    max_seconds: float | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """A low estimate of a replay's cost."""

    requests: int
    tokens: int
    seconds: float
    bytes: int


def estimate(plan: ReplayPlan) -> Cost:
    """The least a replay of ``plan`` can cost, from its requests and tokens."""
    traffic = plan.traffic
    if isinstance(traffic, SyntheticTraffic):
        requests = traffic.num_requests * max(1, traffic.turns_per_session)
        prompt, output = requests * traffic.isl, requests * traffic.osl
    else:
        requests, prompt, output = traffic.num_requests, traffic.total_tokens, 0
    seconds = requests * SECONDS_PER_REQUEST + output * SECONDS_PER_OUTPUT_TOKEN
    memory = BASE_BYTES + requests * BYTES_PER_REQUEST + prompt * BYTES_PER_PROMPT_TOKEN
    return Cost(requests, prompt + output, seconds, memory)


def refusal(plan: ReplayPlan, limits: Limits) -> TrialResult | None:
    """How ``plan`` ends when it cannot be measured within ``limits``, or None.

    Never infeasible: the bounds are this machine's, and say nothing about the deployment.
    """
    cost = estimate(plan)
    size = f"{cost.requests:,} requests with {cost.tokens:,} tokens"
    if limits.max_bytes is not None and cost.bytes > limits.max_bytes:
        need, cap = told_apart(cost.bytes, limits.max_bytes)
        return TrialResult(
            Outcome.FAILED,
            f"{CAP_PREFIX}: {size} need at least {need} to replay, more than the worker's cap of {cap}: "
            "send fewer requests, or raise --memory-gb",
        )
    if limits.max_seconds is not None and cost.seconds > limits.max_seconds:
        return TrialResult(
            Outcome.TIMED_OUT,
            f"exceed runtime: {size} need at least {cost.seconds:,.0f} s to replay, "
            f"more than the cap of {limits.max_seconds:,.0f} s",
        )
    return None


def told_apart(one: int, other: int) -> tuple[str, str]:
    """Two numbers of bytes in GiB, with as many decimals as it takes to show both and to tell them apart.

    What is shown is off by half a percent at most: a cap of 0.15 GiB is not shown as 0.1.
    """
    first, second = one / 2**30, other / 2**30
    for decimals in range(1, 10):
        texts = f"{first:.{decimals}f} GiB", f"{second:.{decimals}f} GiB"
        shown = [float(text.removesuffix(" GiB")) for text in texts]
        exact = all(abs(s - x) <= 0.005 * x for s, x in zip(shown, (first, second), strict=True))
        if exact and (one == other or texts[0] != texts[1]):
            break
    return texts
