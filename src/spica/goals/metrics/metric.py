"""The form of a metric."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a replay's summary: its ``name`` there, its ``unit``, and how Dynamo's replay works it
    out of the requests (``formula``). Every metric is at least 0."""

    name: str
    unit: str
    formula: str
