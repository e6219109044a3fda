"""What a replay takes: time and GPUs."""

from __future__ import annotations

from typing import Final

from spica.goals.metrics.metric import Metric
from spica.trial import Metrics

COMPLETED: Final = Metric("completed_requests", "requests", "requests whose last token was sent")
DURATION: Final = Metric("duration_ms", "ms", "simulated time from the first arrival to the last token")
GPU_HOURS: Final = Metric("gpu_hours", "GPU h", "provisioned GPUs, summed over the simulated time")

_MS_PER_HOUR: Final = 3_600_000.0


def avg_gpu(metrics: Metrics) -> float:
    """Time-averaged number of provisioned GPUs: ``gpu_hours / (duration_ms / 3.6e6)``.

    0 when either is missing, not finite or not positive.
    """
    gpu_hours, duration_ms = metrics.get(GPU_HOURS.name), metrics.get(DURATION.name)
    if gpu_hours is None or duration_ms is None or gpu_hours <= 0 or duration_ms <= 0:
        return 0.0
    return gpu_hours / (duration_ms / _MS_PER_HOUR)
