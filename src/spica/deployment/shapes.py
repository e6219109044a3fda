"""Worker shapes and parallel configs: plain values, no rules about which of them exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["agg", "disagg"]
Role = Literal["agg", "prefill", "decode"]
Strategy = Literal["tp", "tep", "dep", "dtp", "mixed"]


@dataclass(frozen=True, order=True, slots=True)
class ParallelShape:
    """How one worker spreads the model over its GPUs.

    Attention runs ``tp`` wide on each of ``attention_dp`` ranks, the experts of a MoE layer ``moe_tp`` by
    ``moe_ep``. A dense shape has ``attention_dp == moe_tp == moe_ep == 1``.
    """

    tp: int = 1
    pp: int = 1
    attention_dp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1

    @property
    def gpus_per_worker(self) -> int:
        return self.tp * self.pp * self.attention_dp

    @property
    def attention_mode(self) -> Literal["tp", "dp"]:
        return "dp" if self.attention_dp > 1 else "tp"

    @property
    def ffn_mode(self) -> Literal["ep", "tp"]:
        return "ep" if self.moe_ep > 1 else "tp"

    @property
    def strategy(self) -> Strategy:
        """``tp``, ``tep``, ``dep`` or ``dtp``; ``mixed`` for what enumeration never emits."""
        attention_mixed = self.tp > 1 and self.attention_dp > 1
        experts_mixed = self.moe_tp > 1 and self.moe_ep > 1
        if attention_mixed or experts_mixed:
            return "mixed"
        if self.attention_dp > 1:
            if self.moe_ep > 1:
                return "dep"
            return "dtp" if self.moe_tp > 1 else "mixed"
        return "tep" if self.moe_ep > 1 else "tp"

    def __str__(self) -> str:
        dims = [f"tp{self.tp}"]
        if self.pp > 1:
            dims.append(f"pp{self.pp}")
        if self.attention_dp > 1:
            dims.append(f"dp{self.attention_dp}")
        if self.moe_tp > 1:
            dims.append(f"moe_tp{self.moe_tp}")
        if self.moe_ep > 1:
            dims.append(f"ep{self.moe_ep}")
        return "-".join(dims)


@dataclass(frozen=True, order=True, slots=True)
class WorkerGroup:
    """``replicas`` identical workers of one shape."""

    shape: ParallelShape
    replicas: int = 1

    @property
    def total_gpus(self) -> int:
        return self.shape.gpus_per_worker * self.replicas

    def __str__(self) -> str:
        return f"{self.replicas}x({self.shape})"


@dataclass(frozen=True, order=True, slots=True)
class AggConfig:
    """Every worker prefills and decodes."""

    workers: WorkerGroup

    @property
    def mode(self) -> Mode:
        return "agg"

    @property
    def used_gpus(self) -> int:
        return self.workers.total_gpus

    @property
    def groups(self) -> tuple[tuple[Role, WorkerGroup], ...]:
        return (("agg", self.workers),)

    def __str__(self) -> str:
        return str(self.workers)


@dataclass(frozen=True, order=True, slots=True)
class DisaggConfig:
    """Some workers prefill, others decode."""

    prefill: WorkerGroup
    decode: WorkerGroup

    @property
    def mode(self) -> Mode:
        return "disagg"

    @property
    def used_gpus(self) -> int:
        return self.prefill.total_gpus + self.decode.total_gpus

    @property
    def groups(self) -> tuple[tuple[Role, WorkerGroup], ...]:
        return (("prefill", self.prefill), ("decode", self.decode))

    def __str__(self) -> str:
        return f"prefill {self.prefill} + decode {self.decode}"


ParallelConfig = AggConfig | DisaggConfig
