"""Problems to compare optimizers on whose every candidate is a real replay: ``bench/large/*.yaml``.

A candidate is replayed once, whichever method, seed or run asks for it first: its labels are kept in
``replays.sqlite`` in the user's cache directory, under a digest of the configuration and of the versions that
decide a replay. An interrupted comparison is continued by starting it again. Replays under the KV router do
not repeat themselves exactly; the first one counts, for all methods.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import platformdirs

from optimizer_problems import Labels, Problem
from spica.branches import Branch
from spica.config import SmartSearchConfig
from spica.config.load import dump_resolved, load_config
from spica.deployment.sample import Sample
from spica.evaluate.pool import LocalEvaluator
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.reasons import DIED_PREFIX, STACK_PREFIX
from spica.evaluate.slim_tables import TablesRequest
from spica.optimize.protocol import Values
from spica.sweep.inputs import study_of
from spica.sweep.prepare import Prepared, prepare, probes, scoring_of_goal
from spica.trial import Outcome, Sla, TrialResult
from spica.versions import stack_versions

LARGE = Path(__file__).parent / "large"
JOBS: Final = 2
#: Runs at the same time; enough to keep the workers busy while some wait for a suggestion.
THREADS: Final = 12
#: Points drawn at random to tell what a median candidate is worth.
SAMPLE: Final = 200
_TIMEOUT_SECONDS: Final = 120.0
#: What a replay depends on; the versions of the optimizer's libraries do not matter to it.
_DECIDING: Final = ("spica", "ai-dynamo", "ai-dynamo-runtime", "aisimulate")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS replays (
    problem TEXT, candidate TEXT, labels TEXT, outcome TEXT, reason TEXT, seconds REAL, config TEXT,
    PRIMARY KEY (problem, candidate))
"""


def names() -> list[str]:
    return sorted(path.stem for path in LARGE.glob("*.yaml"))


def cache_file() -> Path:
    return Path(platformdirs.user_cache_dir("spica-bench")) / "replays.sqlite"


def digest(config: SmartSearchConfig) -> str:
    """Names everything that decides the labels of a candidate."""
    blocks = {name: block for name, block in dump_resolved(config).items() if name != "sweep"}
    versions = {name: stack_versions()[name] for name in _DECIDING}
    text = json.dumps([blocks, versions], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Measured:
    """The end of one replay; labels are None without a score."""

    labels: Labels
    outcome: str
    reason: str
    seconds: float


class Memo:
    """What was measured, on disk. May be used by several threads, and by several processes."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=60, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        with self._connection:
            self._connection.execute(_SCHEMA)

    def all_of(self, problem: str) -> dict[str, Labels]:
        """Labels by candidate."""
        query = "SELECT candidate, labels FROM replays WHERE problem = ? ORDER BY rowid"
        with self._lock:
            rows = self._connection.execute(query, (problem,)).fetchall()
        return {key: _labels(text) for key, text in rows}

    def keep(self, problem: str, candidate: str, measured: Measured, sample: Sample) -> Labels:
        """The labels that count from now on: those of a process that was faster, else these."""
        row = (problem, candidate, json.dumps(measured.labels), measured.outcome, measured.reason)
        config = json.dumps(sample.config(), sort_keys=True)
        with self._lock, self._connection:
            self._connection.execute(
                "INSERT OR IGNORE INTO replays VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, measured.seconds, config)
            )
            query = "SELECT labels FROM replays WHERE problem = ? AND candidate = ?"
            (text,) = self._connection.execute(query, (problem, candidate)).fetchone()
        return _labels(text)

    def close(self) -> None:
        self._connection.close()


def _labels(text: str) -> Labels:
    values = json.loads(text)
    return None if values is None else tuple(values)


@dataclass(frozen=True, slots=True)
class _Running:
    sample: Sample
    future: Future[TrialResult]


class Replays:
    """The candidates of one configuration, each measured once. May be used by several threads.

    A ``Branch`` remembers without a lock, so it is used by one thread at a time here.
    """

    def __init__(self, prepared: Prepared, memo: Memo, evaluator: LocalEvaluator) -> None:
        self.branch: Branch = prepared.plan.branches[0]
        self.scoring = scoring_of_goal(prepared.config)
        self._prepared, self._memo, self._evaluator = prepared, memo, evaluator
        sla = prepared.config.goal.sla
        self._sla = None if sla is None else Sla(sla.ttft_ms, sla.itl_ms, sla.e2e_ms)
        self._digest = digest(prepared.config)
        self._lock = threading.RLock()
        self._known = memo.all_of(self._digest)
        self._running: dict[str, _Running] = {}

    def identity(self, values: Values) -> str:
        with self._lock:
            return self.branch.identity(values)

    def canonical(self, values: Values) -> Values:
        with self._lock:
            return self.branch.canonical(values)

    def known(self) -> list[Labels]:
        with self._lock:
            return list(self._known.values())

    def gpus(self, values: Values) -> float:
        with self._lock:
            return self.branch.gpus(values)

    def start(self, points: Sequence[Values]) -> None:
        """Begin to measure what is not known yet, without waiting."""
        for values in points:
            with self._lock:
                self._start(values)

    def evaluate(self, values: Values) -> Labels:
        with self._lock:
            key = self._start(values)
            running = self._running.get(key)
        if running is not None:
            self._settle(key, running.sample, running.future.result())
        with self._lock:
            return self._known[key]

    def _start(self, values: Values) -> str:
        key = self.branch.identity(values)
        if key in self._known or key in self._running:
            return key
        decoded = self.branch.decode(values)
        if not decoded.feasible:
            self._known[key] = None
            return key
        sample = decoded.sample
        target = self._prepared.plan.planner_target
        plan = ReplayPlan(sample, self.branch.traffic(sample), target, self._sla, seed=1)
        self._running[key] = _Running(sample, self._evaluator.submit(plan))
        return key

    def _settle(self, key: str, sample: Sample, result: TrialResult) -> None:
        """Keep a result; an accident of this machine is no property of the candidate, and ends the run."""
        judged = self.scoring.judge(result)
        if judged.outcome is Outcome.FAILED and judged.reason.startswith((STACK_PREFIX, DIED_PREFIX)):
            raise RuntimeError(judged.reason)
        labels = None if judged.metrics is None else self.scoring.values(judged.metrics)
        measured = Measured(labels, judged.outcome.value, judged.reason, judged.seconds)
        with self._lock:
            if key not in self._known:
                self._known[key] = self._memo.keep(self._digest, key, measured, sample)
                self._running.pop(key)


class Bench:
    """The workers and the memo that all problems share."""

    def __init__(self) -> None:
        self._memo = Memo(cache_file())
        self._evaluator = LocalEvaluator(JOBS, max_eval_seconds=_TIMEOUT_SECONDS)

    def problem(self, name: str) -> Problem:
        """The problem of ``bench/large/NAME.yaml``; the workers are made ready for it."""
        prepared = prepare(load_config(LARGE / f"{name}.yaml").config)
        replays = Replays(prepared, self._memo, self._evaluator)
        samples = tuple(probes(replays.branch))
        self._evaluator.prepare_tables(TablesRequest.of(samples)).result()
        return Problem(
            name,
            replays.branch.parameters,
            replays.scoring.objectives,
            replays.evaluate,
            replays.canonical,
            replays.identity,
            start=replays.start,
            known=replays.known,
            sample=SAMPLE,
            threads=THREADS,
            divisor=replays.gpus if study_of(replays.branch, replays.scoring, 0).divisor else None,
        )

    def close(self) -> None:
        self._evaluator.close(kill=True)
        self._memo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
