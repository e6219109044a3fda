"""How long requests take."""

from __future__ import annotations

from typing import Final

from spica.goals.metrics.metric import Metric

MEAN_E2E: Final = Metric(
    "mean_e2e_latency_ms", "ms", "mean over the completed requests of (last output token - arrival)"
)
