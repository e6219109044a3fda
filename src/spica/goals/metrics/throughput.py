"""Rates of output tokens, of all requests together and as one user sees them."""

from __future__ import annotations

from typing import Final

from spica.goals.metrics.metric import Metric

OUTPUT_RATE: Final = Metric(
    "output_throughput_tok_s", "tok/s", "output tokens of the completed requests / duration of the replay"
)
RATE_PER_USER: Final = Metric(
    "mean_output_token_throughput_per_user",
    "tok/s/user",
    "mean of 1000 / (time between two output tokens in ms); none without a second output token",
)
