"""KV capacity of a candidate's own settings, asked for as rarely as possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spica.branches.backend_pool import BackendFacts
from spica.deployment.kv_load import RoleKv
from spica.deployment.sample import EngineSettings, Sample
from spica.deployment.shapes import ParallelConfig, Role
from spica.facts import KvCapacity, KvQuery

Capacity = Callable[[KvQuery], KvCapacity]


@dataclass(frozen=True, slots=True)
class KvBook:
    """KV capacities of one branch.

    ``seqs`` are each role's choices of ``max_num_seqs``, ascending. ``capacity`` is None without an
    estimator: nothing is known then, and nothing is ruled out.
    """

    sku: str
    nextn: int
    facts: Mapping[str, BackendFacts]
    seqs: Mapping[Role, tuple[int, ...]]
    capacity: Capacity | None
    _known: dict[KvQuery, KvCapacity] = field(default_factory=dict, repr=False, compare=False)

    def of(
        self, backend: str, parallel: ParallelConfig, role: Role, engine: EngineSettings
    ) -> KvCapacity | None:
        """The capacity of one rank of ``role``, or None when there is no estimator.

        Reservations never shrink as the batch grows. So when the fewest and the most sequences of the menu
        leave the same room, everything in between does, and need not be asked about.
        """
        if self.capacity is None:
            return None
        menu = self.seqs[role]
        fewest = self._ask(backend, parallel, role, engine, menu[0])
        if engine.max_num_seqs == menu[0]:
            return fewest
        most = self._ask(backend, parallel, role, engine, menu[-1])
        if fewest == most and engine.max_num_seqs <= menu[-1]:
            return fewest
        return self._ask(backend, parallel, role, engine, engine.max_num_seqs)

    def tokens(self, sample: Sample, role: Role) -> int | None:
        """Tokens per rank; None when unknown or when there is no KV budget."""
        capacity = self.of(sample.backend, sample.parallel, role, sample.engine(role))
        return None if capacity is None else capacity.tokens

    def objection(self, sample: Sample) -> str:
        """Why the candidate's own settings leave no room for one longest sequence; empty when they do."""
        longest = self.facts[sample.backend].max_seq_len
        for role, engine in sample.engines:
            capacity = self.of(sample.backend, sample.parallel, role, engine)
            if capacity is None:
                return ""
            setting = (
                f"{role}_max_num_batched_tokens {engine.max_num_batched_tokens}, "
                f"{role}_max_num_seqs {engine.max_num_seqs}"
            )
            if capacity.tokens is None:
                return f"{role} workers have no KV budget with {setting}: {capacity.reason}"
            if capacity.tokens <= longest:
                return (
                    f"with {setting} the KV cache of {role} holds {capacity.tokens:,} tokens per rank, not "
                    f"more than one sequence of {longest:,}"
                )
        return ""

    def roles(self, sample: Sample) -> tuple[RoleKv, ...]:
        """What the KV-load formulas need. Raises ValueError without an estimator."""
        found: list[RoleKv] = []
        for role, group in sample.parallel.groups:
            engine = sample.engine(role)
            capacity = self.of(sample.backend, sample.parallel, role, engine)
            if capacity is None:
                raise ValueError("a KV-load workload needs the memory estimator")
            dp = group.shape.attention_dp
            found.append(
                RoleKv(role, capacity.tokens, engine.block_size, dp, group.replicas, capacity.reason)
            )
        return tuple(found)

    def _ask(
        self, backend: str, parallel: ParallelConfig, role: Role, engine: EngineSettings, seqs: int
    ) -> KvCapacity:
        facts = self.facts[backend]
        query = KvQuery(
            model=facts.model_path,
            sku=self.sku,
            backend=backend,
            backend_version=facts.version,
            shape=dict(parallel.groups)[role].shape,
            max_num_tokens=engine.max_num_batched_tokens,
            max_batch_size=seqs,
            memory_fraction=engine.gpu_memory_utilization,
            nextn=self.nextn,
        )
        found = self._known.get(query)
        if found is None:
            assert self.capacity is not None
            found = self._known[query] = self.capacity(query)
        return found
