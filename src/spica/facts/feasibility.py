"""Which worker shapes hold at least one longest sequence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spica.deployment.shapes import ParallelShape
from spica.facts.kv import KvCapacity, KvQuery, kv_capacity


@dataclass(frozen=True, slots=True)
class FeasibilityQuery:
    """The setting in which shapes are judged.

    ``max_seq_len`` in tokens. ``max_num_tokens`` and ``max_batch_size`` are the smallest searched values of
    the role: activations grow with them, so a shape is kept when some searched setting can run it.
    """

    model: str
    sku: str
    backend: str
    backend_version: str
    max_seq_len: int
    max_num_tokens: int
    max_batch_size: int
    memory_fraction: float = 0.9
    nextn: int = 0

    def for_shape(self, shape: ParallelShape) -> KvQuery:
        return KvQuery(
            model=self.model,
            sku=self.sku,
            backend=self.backend,
            backend_version=self.backend_version,
            shape=shape,
            max_num_tokens=self.max_num_tokens,
            max_batch_size=self.max_batch_size,
            memory_fraction=self.memory_fraction,
            nextn=self.nextn,
        )


@dataclass(frozen=True, slots=True)
class ShapeFeasibility:
    """The verdict on one shape; ``reason`` is empty when it is feasible."""

    feasible: bool
    capacity: KvCapacity
    reason: str = ""

    @property
    def tokens(self) -> int | None:
        """KV tokens per rank."""
        return self.capacity.tokens


def feasible_shape_tokens(
    shapes: Iterable[ParallelShape], query: FeasibilityQuery
) -> dict[ParallelShape, ShapeFeasibility]:
    """The verdict on each shape: feasible iff its KV tokens per rank exceed ``query.max_seq_len``.

    One rank is what counts, since a sequence lives on one attention rank. Raises what ``kv_capacity`` raises.
    """
    return {shape: _judge(kv_capacity(query.for_shape(shape)), query.max_seq_len) for shape in shapes}


def _judge(capacity: KvCapacity, max_seq_len: int) -> ShapeFeasibility:
    if capacity.tokens is None:
        return ShapeFeasibility(False, capacity, capacity.reason)
    if capacity.tokens <= max_seq_len:
        reason = (
            f"KV cache of {capacity.tokens:,} tokens per rank ({capacity.kv_bytes:,} bytes at "
            f"{capacity.bytes_per_token:,} per token) does not exceed one sequence of {max_seq_len:,} tokens"
        )
        return ShapeFeasibility(False, capacity, reason)
    return ShapeFeasibility(True, capacity)
