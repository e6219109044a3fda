"""Small stand-ins for the installed components, and short ways to a configuration."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from spica.branches import Branch, BranchPlan, Components, build_branches
from spica.branches.backend_pool import BackendFacts, PoolRequest
from spica.config import SmartSearchConfig
from spica.deployment.shapes import ParallelShape
from spica.errors import NoPerfDatabase, Problem
from spica.facts import FeasibilityQuery, KvCapacity, KvQuery, ModelFacts, ShapeFeasibility, SkuFacts
from spica.optimize.protocol import FloatParameter, Value

ALL_PAIRS = frozenset((b, m) for b in ("vllm", "sglang", "trtllm") for m in ("agg", "disagg"))
CONTEXT = 40_000


@dataclass
class Fake:
    """A model of one size on one SKU. KV tokens per rank: 50,000 per GPU that a rank's attention spans, less
    what batched tokens and sequences take; a backend in ``tight`` has room from that many GPUs on."""

    moe: bool = False
    no_data: tuple[str, ...] = ()
    tight: Mapping[str, int] = field(default_factory=dict)
    tokens_cost: float = 0.5
    seqs_cost: float = 0.0
    has_estimator: bool = True
    asked: int = 0

    def capacity(self, query: KvQuery) -> KvCapacity:
        self.asked += 1
        if query.shape.gpus_per_worker < self.tight.get(query.backend, 1):
            return KvCapacity(None, reason="no KV budget: the weights do not fit")
        used = self.tokens_cost * query.max_num_tokens + self.seqs_cost * query.max_batch_size
        return KvCapacity(int(50_000 * query.shape.gpus_per_worker / query.shape.attention_dp - used))

    def feasibility(
        self, shapes: Iterable[ParallelShape], query: FeasibilityQuery
    ) -> dict[ParallelShape, ShapeFeasibility]:
        verdicts = {}
        for shape in shapes:
            found = self.capacity(query.for_shape(shape))
            fits = found.tokens is not None and found.tokens > query.max_seq_len
            verdicts[shape] = ShapeFeasibility(fits, found, "" if fits else found.reason or "too small")
        return verdicts

    def facts(self, request: PoolRequest) -> BackendFacts:
        if request.backend in self.no_data:
            raise NoPerfDatabase(Problem(f"no performance data for {request.backend} on {request.sku}"))
        length = request.context_length or CONTEXT
        return BackendFacts("1.0", "org/model", self.moe, length, False, self.has_estimator)

    @property
    def components(self) -> Components:
        return Components(
            attention_format=lambda model, sku, backend, version: None,
            expert_format=lambda model, sku, backend, version: None,
            model=lambda name: ModelFacts(
                name, name, "A", self.moe, CONTEXT, 8 if self.moe else 0, 4, "bf16", None
            ),
            sku=lambda name: SkuFacts(name, 8, 80 * 2**30),
            facts=self.facts,
            feasibility=self.feasibility,
            capacity=self.capacity,
            estimator=lambda: self.has_estimator,
        )


def config(
    space: Mapping[str, object] | None = None,
    workload: Mapping[str, object] | None = None,
    goal: Mapping[str, object] | None = None,
) -> SmartSearchConfig:
    """Round robin, no scaling, 8 GPUs, 1000 + 100 tokens, 64 in flight, unless told otherwise."""
    base: dict[str, object] = {
        "model_name": "org/model",
        "hardware_sku": "sku",
        "gpu_budget": 8,
        "deployment_mode": ["agg"],
        "router_mode": ["round_robin"],
        "planner_scaling_policy": ["disabled"],
    }
    traffic = {"isl": 1000, "osl": 100, "num_request_ratio": 4}
    load = workload if workload is not None else {"concurrency": 64}
    blocks: dict[str, object] = {
        "search_space": base | dict(space or {}),
        "workload": dict(load) if "trace_path" in load else traffic | dict(load),
    }
    if goal is not None:
        blocks["goal"] = dict(goal)
    return SmartSearchConfig.model_validate(blocks)


def plan(
    cfg: SmartSearchConfig, fake: Fake | None = None, pairs: Iterable[tuple[str, str]] = ALL_PAIRS
) -> BranchPlan:
    return build_branches(cfg, runner_pairs=frozenset(pairs), components=(fake or Fake()).components)


def all_points(branch: Branch, floats: int = 5) -> Iterator[dict[str, Value]]:
    """Every combination of the branch's values, floats at evenly spaced steps."""
    names = [p.name for p in branch.parameters]
    menus: list[tuple[Value, ...]] = []
    for p in branch.parameters:
        if isinstance(p, FloatParameter):
            menus.append(tuple(p.low + (p.high - p.low) * i / (floats - 1) for i in range(floats)))
        else:
            menus.append(p.choices)
    for combination in itertools.product(*menus):
        yield dict(zip(names, combination, strict=True))
