"""From a KV-load ratio to a concurrency: how many requests a candidate's KV cache holds at a time.

For each role, with the per-rank KV tokens of this candidate's own settings::

    per_rank_usable = floor(per_rank_tokens / block_size) * block_size
    role_capacity   = per_rank_usable * attention_dp * replicas
    per_request     = isl + floor(osl / 2)
    capacity_conc   = floor(role_capacity / per_request)
    concurrency     = max(1, floor(kv_load_ratio * capacity_conc))

The decode role drives the load of a disaggregated candidate, the agg role otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from spica.deployment.sample import KvLoad
from spica.deployment.shapes import Role


@dataclass(frozen=True, slots=True)
class RoleKv:
    """One role's KV cache. ``tokens_per_rank`` is None when its workers have no KV budget at all, and
    ``reason`` then says why; ``block_size`` is in tokens."""

    role: Role
    tokens_per_rank: int | None
    block_size: int
    attention_dp: int
    replicas: int
    reason: str = ""

    @property
    def capacity_tokens(self) -> int:
        """Tokens that all ranks of all replicas hold in whole blocks."""
        usable = (self.tokens_per_rank or 0) // self.block_size * self.block_size
        return usable * self.attention_dp * self.replicas


def kv_load(ratio: float, isl: int, osl: int, roles: Sequence[RoleKv]) -> KvLoad | str:
    """The load of ``ratio``, or the reason why the candidate cannot carry any.

    ``isl``, ``osl`` in tokens; ``roles`` is (agg,) or (prefill, decode). Both roles of a disaggregated
    candidate need a KV budget, though only decode sets the number.
    """
    for role in roles:
        if role.tokens_per_rank is None:
            return f"{role.role} workers have no KV budget: {role.reason}"
        if role.capacity_tokens < 1:
            return (
                f"{role.role} workers have no KV budget: {role.tokens_per_rank} tokens per rank are less "
                f"than one block of {role.block_size}"
            )
    driving = next(role for role in roles if role.role != "prefill")
    per_request = isl + osl // 2
    capacity = driving.capacity_tokens // per_request
    if capacity < 1:
        return (
            f"the KV cache of {driving.role} holds {driving.capacity_tokens:,} tokens in all, less than one "
            f"request of {per_request:,} (isl {isl} + half of osl {osl})"
        )
    return KvLoad(
        kv_load_ratio=ratio,
        concurrency=max(1, math.floor(ratio * capacity)),
        concurrency_capacity=capacity,
        capacity_tokens=driving.capacity_tokens,
        role_capacity_tokens=tuple((role.role, role.capacity_tokens) for role in roles),
    )
