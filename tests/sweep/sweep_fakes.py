"""Fakes of Spica's own protocols: a small search space, a quick evaluator, a ledger that crashes."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from spica.deployment.sample import Deployment, EngineSettings, KvManager, PlannerSettings, RouterMode, Sample
from spica.deployment.shapes import AggConfig, DisaggConfig, Mode, ParallelConfig, ParallelShape, WorkerGroup
from spica.errors import SpicaError
from spica.evaluate.protocol import ReplayPlan
from spica.goals.score import Scoring
from spica.optimize.history import AskTell, History
from spica.optimize.protocol import CategoricalParameter, DiscreteParameter, Parameter, Study, Value, Values
from spica.optimize.sampling import fresh_or_repeated, uniform
from spica.optimize.space import Rows
from spica.record import Ledger, RunIdentity
from spica.record.results import SweepResult
from spica.sweep import SearchBranch, SearchOptions, StopFlag, SweepInputs, run_sweep
from spica.sweep.events import SweepObserver
from spica.sweep.inputs import OptimizerFactory
from spica.traffic.replayed import SyntheticTraffic
from spica.trial import Metrics, Outcome, TrialResult

THROUGHPUT = Scoring("throughput")
OPTIONS = SearchOptions(max_rounds=4, candidates_per_round=4, seed=3)
IDENTITY = RunIdentity("", "{}", 1, {})
BUDGET = 16
#: More sequences than this cannot act in the fake.
IN_FLIGHT = 256


@dataclass(frozen=True)
class FakeProjection:
    tp: int


@dataclass(frozen=True)
class FakeDecoded:
    sample: Sample
    projection: FakeProjection
    rules: tuple[str, ...] = ()
    reason: str = ""

    @property
    def key(self) -> str:
        return self.sample.key()


class FakeBranch:
    """tp x replicas x max_num_seqs x router; too many GPUs are infeasible, 512 sequences are like 256."""

    def __init__(self, mode: Mode = "agg", parameters: Sequence[Parameter] | None = None) -> None:
        self.mode: Mode = mode
        self.parameters: tuple[Parameter, ...] = (
            DiscreteParameter("tp", (1, 2, 4, 8), 2, log=True),
            DiscreteParameter("replicas", (1, 2, 3, 4), 1),
            DiscreteParameter("seqs", (64, 128, 256, 512), 64, log=True),
            CategoricalParameter("router", ("round_robin", "kv_router"), "round_robin"),
        )
        if parameters is not None:
            self.parameters = tuple(parameters)

    def decode(self, values: Values) -> FakeDecoded:
        defaults: dict[str, Value] = {"tp": 2, "replicas": 1, "seqs": 64, "router": "round_robin"}
        point = defaults | dict(values)
        unknown = set(values) - {p.name for p in self.parameters}
        if unknown:
            raise ValueError(f"unknown {unknown}")
        seqs = int(point["seqs"])
        sample = make_sample(
            self.mode, int(point["tp"]), int(point["replicas"]), min(seqs, IN_FLIGHT), str(point["router"])
        )
        rules = ("seqs_beyond_the_load",) if seqs > IN_FLIGHT else ()
        reason = f"uses {sample.used_gpus} of {BUDGET} GPUs" if sample.used_gpus > BUDGET else ""
        return FakeDecoded(sample, FakeProjection(int(point["tp"])), rules, reason)

    def identity(self, values: Values) -> str:
        return self.decode(values).key

    def canonical(self, values: Values) -> Values:
        merged: dict[str, Value] = dict(values)
        if "seqs" in merged:
            merged["seqs"] = min(float(merged["seqs"]), float(IN_FLIGHT))
        return merged

    def gpus(self, values: Values) -> int:
        return self.decode(values).sample.used_gpus

    offered_load = False

    def traffic(self, sample: Sample) -> SyntheticTraffic:
        return SyntheticTraffic(isl=100, osl=10, num_requests=8, concurrency=4)


def make_sample(mode: Mode, tp: int, replicas: int, seqs: int, router: str = "round_robin") -> Sample:
    group = WorkerGroup(ParallelShape(tp), replicas)
    engine = EngineSettings(8192, seqs)
    parallel: ParallelConfig = (
        AggConfig(group) if mode == "agg" else DisaggConfig(WorkerGroup(ParallelShape()), group)
    )
    chosen: RouterMode = "kv_router" if router == "kv_router" else "round_robin"
    return Sample(
        backend="vllm",
        backend_version="1",
        deployment=Deployment("m", "h", BUDGET),
        kv_manager=KvManager(),
        parallel=parallel,
        engines=tuple((role, engine) for role, _ in parallel.groups),
        router_mode=chosen,
        router=None,
        planner=PlannerSettings("disabled"),
    )


def noise(key: str, repeat: int = 0) -> float:
    """0..1, fixed per key and repeat."""
    return int(hashlib.sha256(f"{key}/{repeat}".encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def throughput(sample: Sample, repeat: int = 0) -> float:
    """Best at tp 4 x 3 with 256 sequences; kv_router varies by up to 2% from repeat to repeat."""
    group = sample.parallel.groups[-1][1]
    seqs = sample.engines[-1][1].max_num_seqs
    base = (
        1000.0
        - 100 * abs(np.log2(group.shape.tp) - 2)
        - 50 * abs(group.replicas - 3)
        + 40 * np.log2(seqs / 64)
    )
    if sample.router_mode == "kv_router":
        base *= 1.0 + 0.02 * (noise(sample.key(), repeat) - 0.5)
    return float(base)


def metrics_of(sample: Sample, repeat: int = 0) -> Metrics:
    made = throughput(sample, repeat)
    return Metrics(
        {
            "output_throughput_tok_s": made,
            "mean_output_token_throughput_per_user": 5000.0 / sample.engines[-1][1].max_num_seqs,
            "mean_e2e_latency_ms": 1e6 / made,
            "gpu_hours": sample.used_gpus / 3600,
            "duration_ms": 1000.0,
        }
    )


Model = Callable[[Sample, int], TrialResult]


def fine(sample: Sample, repeat: int) -> TrialResult:
    return TrialResult(Outcome.FEASIBLE, metrics=metrics_of(sample, repeat))


class FakeEvaluator:
    """Threads that wait for a random moment, then answer from a model. ``measured`` holds every key in the
    order of submission; the n-th measurement of a key is its repeat n."""

    def __init__(
        self, jobs: int = 2, model: Model = fine, delay: float = 0.002, seed: int = 0, before: int = 0
    ) -> None:
        self.measured: list[str] = []
        self.closed = False
        self._model = model
        self._delay = delay
        self._random = random.Random(seed)
        self._threads = ThreadPoolExecutor(jobs)
        self._kill = threading.Event()

    def submit(self, plan: ReplayPlan) -> Future[TrialResult]:
        key = plan.sample.key()
        repeat = self.measured.count(key)
        self.measured.append(key)
        return self._threads.submit(self._measure, plan.sample, repeat, self._random.random() * self._delay)

    def _measure(self, sample: Sample, repeat: int, delay: float) -> TrialResult:
        if self._kill.wait(delay):
            raise CancelledError
        return self._model(sample, repeat)

    def close(self, *, kill: bool = False) -> None:
        if kill:
            self._kill.set()
        self._threads.shutdown(wait=True, cancel_futures=kill)
        self.closed = True


class CuriousStrategy:
    """Proposes random points drawn from a seed that depends on all it was told and on what is pending.

    A single result known earlier or later changes everything that follows, so equal sweeps prove that it was
    told the same things at the same points. Of three or more suggestions the last but one repeats an earlier
    one, and the last is any point, known or not.
    """

    def propose(self, past: History, count: int) -> Rows:
        facts = repr([(o.suggestion.id, o.labels) for o in past.told()]) + repr(past.pending_ids())
        seed = int(hashlib.sha256(f"{past.study.seed}{facts}".encode()).hexdigest()[:12], 16)
        rng = np.random.default_rng(seed)
        rows = uniform(past.space, 4 * count + 8, rng)
        fresh = fresh_or_repeated(past, rows, count)
        if count < 3 or not past.asked_count:
            return fresh
        earlier = past.rows([int(rng.integers(past.asked_count))])
        return np.vstack([fresh[:-2], earlier, rows[-1:]])


class CuriousOptimizer(AskTell):
    def __init__(self, study: Study) -> None:
        super().__init__(study, CuriousStrategy())


class CrashError(SpicaError):
    """The process died here."""


class CrashingLedger(Ledger):
    """Dies at the ``fuse``-th commit: before it, or (``after``) just after it. Nothing is written from then
    on."""

    fuse = 0
    after = False
    dead = False

    def _write(self, table: str, rows: Sequence[tuple[object, ...]], *, replace: bool = False) -> None:
        with self._mutex:
            if self.dead:
                raise CrashError("dead")
            self.fuse -= 1
            self.dead = self.fuse <= 0
            if not self.dead or self.after:
                super()._write(table, rows, replace=replace)
            if self.dead:
                raise CrashError("crash")


@dataclass
class Setup:
    """One sweep, to be run once or in pieces."""

    folder: Path
    branches: tuple[SearchBranch, ...] = (FakeBranch("agg"), FakeBranch("disagg"))
    scoring: Scoring = THROUGHPUT
    options: SearchOptions = OPTIONS
    factory: OptimizerFactory = CuriousOptimizer
    force: bool = False

    @property
    def inputs(self) -> SweepInputs:
        return SweepInputs(self.branches, self.scoring, "throughput", self.options, force=self.force)

    def run(
        self,
        evaluator: FakeEvaluator | None = None,
        *,
        ledger: Ledger | None = None,
        observer: SweepObserver | None = None,
        stop: StopFlag | None = None,
    ) -> SweepResult:
        """Start (or, with a ledger, continue) the sweep; closes both at the end."""
        used = evaluator or FakeEvaluator()
        record = ledger or Ledger.create(self.folder, IDENTITY)
        try:
            return run_sweep(
                self.inputs,
                evaluator=used,
                optimizer_factory=self.factory,
                ledger=record,
                observer=observer,
                stop=stop,
            )
        finally:
            used.close(kill=True)
            record.close()

    def with_options(self, **changes: object) -> Setup:
        return replace(self, options=replace(self.options, **changes))  # type: ignore[arg-type]


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        time.sleep(0.005)
