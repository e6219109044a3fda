"""What is served within an SLA."""

from __future__ import annotations

from typing import Final

from spica.goals.metrics.metric import Metric

GOOD_OUTPUT_RATE: Final = Metric(
    "goodput_output_throughput_tok_s",
    "good tok/s",
    "output tokens of the completed requests that meet the SLA / duration of the replay",
)
