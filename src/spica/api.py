"""The Python API: one call from a configuration to ranked deployments."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from spica.config import SmartSearchConfig
from spica.config.load import LoadedConfig, config_from_mapping, dump_resolved, dump_yaml, load_config
from spica.errors import InputError, Problem
from spica.evaluate.pool import LocalEvaluator, default_jobs
from spica.evaluate.preflight import preflight
from spica.evaluate.slim_tables import TablesRequest
from spica.optimize import make_optimizer, warm_up
from spica.optimize.protocol import SEEDS
from spica.record import Ledger, RunIdentity, writing_in
from spica.record.results import SweepResult
from spica.record.runfolder import (
    CONFIG_FILE,
    SUMMARY_FILE,
    RunFolder,
    default_folder,
    new_folder,
    write_beginning,
    write_summary,
    write_text,
)
from spica.report.again import TRACE_DIGEST, recorded_config, write_all
from spica.report.data import RunReport
from spica.report.write import preload
from spica.storage.scratch import scratch_folder
from spica.sweep import (
    ConfirmOptions,
    SearchOptions,
    StopFlag,
    SweepInputs,
    how_to_continue,
    run_sweep,
    stop_on_interrupt,
    terminate_as_interrupt,
)
from spica.sweep.events import PhaseChanged, Silent, SweepObserver, Warned
from spica.sweep.finished import has_ended, result_again, same_space
from spica.sweep.options import RunOptions as RunOptions
from spica.sweep.prepare import (
    Prepared,
    prepare,
    probes,
    scaled_without_model,
    scoring_of_goal,
    without_pairs,
)
from spica.traffic.shards import trace_files
from spica.versions import stack_versions

_TABLES_SECONDS: Final = 1.0
Config = SmartSearchConfig | Mapping[str, Any] | str | Path


@dataclass(frozen=True, slots=True)
class Source:
    """A configuration with the text it came from, what was accepted with a change, and its file if any."""

    config: SmartSearchConfig
    name: str
    text: str
    warnings: tuple[str, ...] = ()
    loaded: LoadedConfig | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A sweep that has ended: its folder, its result, and the report made of the folder."""

    folder: Path
    result: SweepResult
    report: RunReport


def run_smart_search(
    config: Config | None,
    *,
    out: str | Path | None = None,
    jobs: int | None = None,
    seed: int | None = None,
    overrides: tuple[str, ...] = (),
    max_minutes: float | None = None,
    memory_gb: float | None = None,
    resume: str | Path | None = None,
    force: bool = False,
    observer: SweepObserver | None = None,
) -> SweepResult:
    """Search, replay and rank; the results also go to a run folder.

    ``config`` is a SmartSearchConfig, a mapping of the YAML's form, or the path of a YAML file; None only
    with ``resume``. The other arguments are those of :class:`RunOptions`. ``observer`` is told what happens.

    Needs no ``__main__`` guard and works in a notebook. Raises a SpicaError for bad input, a stack that does
    not work, or nothing viable; an interrupted sweep returns what it has (``result.stop``).
    """
    options = RunOptions(
        out=None if out is None else Path(out),
        jobs=jobs,
        seed=seed,
        overrides=tuple(overrides),
        max_minutes=max_minutes,
        memory_gb=memory_gb,
        resume=None if resume is None else Path(resume),
        force=force,
    )
    return run(source_of(config, options), options, observer or Silent()).result


def source_of(config: Config | None, options: RunOptions) -> Source:
    """The configuration to run: the given one, or the one of the run that is resumed, with the overrides.

    Raises ConfigError for a bad one, InputError when there is neither.
    """
    if config is None:
        if options.resume is None:
            raise InputError(
                Problem("no configuration was given", remedy="name a YAML file, or a run with --resume RUN")
            )
        with Ledger.read(options.resume) as ledger:
            recorded = ledger.identity()
        text = recorded.config_text
        if not (options.resume / CONFIG_FILE).exists():
            lost = dump_yaml(recorded_config(options.resume, recorded.config_json))
            with writing_in(options.resume):
                write_text(options.resume / CONFIG_FILE, lost)
        loaded = load_config(options.resume / CONFIG_FILE, options.overrides)
        return _seeded(
            Source(loaded.config, options.resume.name, text, loaded.warnings, loaded), options.seed
        )
    if isinstance(config, str | Path):
        loaded = load_config(config, options.overrides)
        return _seeded(
            Source(loaded.config, loaded.path.stem, loaded.text, loaded.warnings, loaded), options.seed
        )
    if options.overrides:
        raise InputError(Problem("overrides need a configuration file", remedy="change the values instead"))
    made = config if isinstance(config, SmartSearchConfig) else config_from_mapping(config)
    return _seeded(Source(made, "sweep", dump_yaml(made)), options.seed)


def _seeded(source: Source, seed: int | None) -> Source:
    if seed is None:
        return source
    sweep = source.config.sweep.model_copy(update={"random_seed": seed})
    config = source.config.model_copy(update={"sweep": sweep})
    return replace(source, config=config)


def run(source: Source, options: RunOptions, observer: SweepObserver, stop: StopFlag | None = None) -> Run:
    """Run a sweep from its configuration to its reports; see :func:`run_smart_search`."""
    stop = stop or StopFlag()
    config, jobs = source.config, options.jobs or _default_jobs(source.config)
    for warning in source.warnings:
        observer.on_event(Warned(warning))
    began = time.monotonic()
    with ExitStack() as stack:
        if source.loaded is not None:
            stack.enter_context(source.loaded.locating())
        stack.enter_context(terminate_as_interrupt())
        owned = stack.enter_context(_folder(source, options))
        folder = owned.path
        ledger: Ledger | None = None
        mixed: tuple[str, ...] = ()
        if options.resume is not None:
            ledger, mixed = stack.enter_context(_resumed(source, options, folder, observer))
            if not mixed and has_ended(ledger):
                again = _ended(source, options, ledger, jobs, observer, began)
                if again is not None:
                    return again
        # Workers import while the configuration is enumerated.
        evaluator = stack.enter_context(_evaluator(config, options, jobs))
        prepared = _enumerated(source, folder, jobs, observer, ledger)
        # The optimizer is imported while the workers show what works.
        searched = stack.enter_context(_warming_up(_inputs(source, prepared, options)))
        prepared = _preflighted(source, options, prepared, evaluator, observer)
        plan = prepared.plan
        inputs = _inputs(source, prepared, options)
        inputs = replace(inputs, warnings=(*mixed, *inputs.warnings))
        inputs = _less_time(inputs, time.monotonic() - began)
        # From here on an interrupt is a request, and what there is by then is kept.
        farewell = (
            f"error: stopped at once; what was measured is in {folder}\n    {how_to_continue(str(folder))}"
        )
        stack.enter_context(
            stop_on_interrupt(stop, kill_workers=lambda: evaluator.close(kill=True), farewell=farewell)
        )
        ledger = ledger or stack.enter_context(Ledger.create(folder, identity_of(source), lock=owned.lock))
        with writing_in(folder):
            write_beginning(folder, config, plan)
        result = run_sweep(
            inputs,
            evaluator=evaluator,
            optimizer_factory=make_optimizer,
            ledger=ledger,
            observer=observer,
            stop=stop,
            began=began,
        )
        searched.set()
        evaluator.close(kill=True)
        # Still under the lock, and with interrupts deferred: the results so far are always written.
        with writing_in(folder):
            write_summary(folder, result)
            report = write_all(folder, config)
    return Run(folder, result, report)


def _ended(
    source: Source, options: RunOptions, ledger: Ledger, jobs: int, observer: SweepObserver, began: float
) -> Run | None:
    """A run that was complete: nothing is replayed, its reports are written again. None when something of
    the stack did not work then, or works otherwise now, so that it takes the preflight to see its space."""
    folder = ledger.folder
    prepared = _enumerated(source, folder, jobs, observer, ledger)
    if not same_space(folder, prepared.plan):
        return None
    for warning in prepared.warnings:
        observer.on_event(Warned(warning))
    result = result_again(_inputs(source, prepared, options), ledger, observer, began=began)
    with writing_in(folder):
        if not (folder / SUMMARY_FILE).exists():  # the one there has the times of the search
            write_summary(folder, result)
        return Run(folder, result, write_all(folder, source.config))


def _less_time(inputs: SweepInputs, spent: float) -> SweepInputs:
    """The time budget is for everything, preparing included."""
    minutes = inputs.options.max_minutes
    if minutes is None:
        return inputs
    left = max(0.0, minutes - spent / 60.0)
    return replace(inputs, options=replace(inputs.options, max_minutes=left))


def _default_jobs(config: SmartSearchConfig) -> int:
    asked = config.sweep.parallel_evals
    return asked if asked is not None else min(config.sweep.resolved_parallel_evals, default_jobs())


@contextmanager
def _folder(source: Source, options: RunOptions) -> Iterator[RunFolder]:
    if options.resume is not None:
        if options.out is not None:
            raise InputError(Problem("--out and --resume name two folders", remedy="give one of them"))
        yield RunFolder(options.resume)
        return
    named = options.out
    with new_folder(named or default_folder(source.name), numbered=named is None) as folder:
        yield folder


@contextmanager
def _evaluator(config: SmartSearchConfig, options: RunOptions, jobs: int) -> Iterator[LocalEvaluator]:
    """The worker processes; none of them outlives the block."""
    evaluator = LocalEvaluator(
        jobs,
        max_eval_seconds=config.sweep.max_eval_seconds,
        memory_limit_bytes=0 if options.memory_gb is None else int(options.memory_gb * 2**30),
    )
    try:
        yield evaluator
    finally:
        evaluator.close(kill=True)


@contextmanager
def _resumed(
    source: Source, options: RunOptions, folder: Path, observer: SweepObserver
) -> Iterator[tuple[Ledger, tuple[str, ...]]]:
    """The record of the run, and what is mixed by going on with it."""
    with Ledger.resume(folder) as ledger:
        differences = ledger.admit(identity_of(source), force=options.force)
        mixed = tuple(f"results are mixed: {difference}" for difference in differences)
        for line in mixed:
            observer.on_event(Warned(line))
        yield ledger, mixed


def _preflight_voice(observer: SweepObserver) -> Callable[[str], None]:
    return lambda text: observer.on_event(PhaseChanged("preflight", text))


def _enumerated(
    source: Source, folder: Path, jobs: int, observer: SweepObserver, ledger: Ledger | None
) -> Prepared:
    """What can run, as far as facts tell; a run goes on with the planners it was begun with."""
    say = _preflight_voice(observer)
    say("reading the facts, enumerating what can run")
    bare = ledger is not None and scaled_without_model(ledger)
    return prepare(source.config, folder=folder, jobs=jobs, say=say, engine_model=not bare)


def _preflighted(
    source: Source,
    options: RunOptions,
    prepared: Prepared,
    evaluator: LocalEvaluator,
    observer: SweepObserver,
) -> Prepared:
    """What is left after a tiny replay of every backend and mode has shown which of them work."""
    say = _preflight_voice(observer)
    inputs = _inputs(source, prepared, options)
    plans = [inputs.plan(branch, sample) for branch in prepared.plan.branches for sample in probes(branch)]
    pairs = len({(plan.sample.backend, plan.sample.mode) for plan in plans})
    say(f"replaying {pairs} tiny candidate{'s' * (pairs != 1)}, one of each backend and mode")
    if plans:
        tables = evaluator.prepare_tables(TablesRequest.of(tuple(plan.sample for plan in plans)))
        # A copy that exists is found at once and saves the preflight seconds.
        wait([tables], timeout=_TABLES_SECONDS)
    with scratch_folder() as scratch:
        verdicts = [v for v in preflight(evaluator, plans, scratch) if not v.ok]
    say(f"{pairs - len(verdicts)} of {pairs} work")
    if verdicts:
        broken = tuple(f"{v.backend} {v.mode} does not work here: {v.reason}" for v in verdicts)
        prepared = without_pairs(prepared, [(v.backend, v.mode) for v in verdicts])
        prepared = replace(prepared, warnings=(*prepared.warnings, *broken))
    for warning in prepared.warnings:
        observer.on_event(Warned(warning))
    return prepared


def identity_of(source: Source) -> RunIdentity:
    """What must be equal for a run to be continued: everything that decides a result, nothing else."""
    resolved = dict(dump_resolved(source.config))
    sweep = source.config.sweep
    kept = {k: v for k, v in dict(resolved["sweep"]).items() if k != "parallel_evals"}  # type: ignore[arg-type]
    resolved["sweep"] = kept | {"candidates_per_round": sweep.resolved_candidates_per_round}
    trace = source.config.workload.trace_path
    if trace is not None:
        resolved[TRACE_DIGEST] = _digest(Path(trace))
    text = json.dumps(resolved, sort_keys=True)
    return RunIdentity(source.text, text, sweep.random_seed, stack_versions())


def _digest(path: Path) -> str:
    """Of a trace's content; of the names and contents of its shards when it is a folder."""
    files = trace_files(path)
    digests = []
    for part in files:
        with part.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    if files == (path,):
        return digests[0]
    named = [(part.name, digest) for part, digest in zip(files, digests, strict=True)]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


def _inputs(source: Source, prepared: Prepared, options: RunOptions) -> SweepInputs:
    sweep = source.config.sweep
    confirm = (
        ConfirmOptions()
        if sweep.confirm is None
        else ConfirmOptions(sweep.confirm.top, sweep.confirm.repeats)
    )
    return SweepInputs(
        branches=prepared.plan.branches,
        scoring=scoring_of_goal(source.config),
        planner_target=prepared.plan.planner_target,
        options=SearchOptions(
            max_rounds=sweep.max_rounds,
            candidates_per_round=sweep.resolved_candidates_per_round,
            seed=sweep.random_seed,
            confirm=confirm,
            max_minutes=options.max_minutes,
        ),
        warnings=(*source.warnings, *prepared.warnings),
        dropped=tuple(str(dropped) for dropped in prepared.plan.dropped),
        force=options.force,
    )


@contextmanager
def _warming_up(inputs: SweepInputs) -> Iterator[threading.Event]:
    """Compile the optimizer's model, unless the sweep is too short to use one, and import what the reports
    need; in the background, and one after the other: both import much of the same.

    Not in a daemon thread: the interpreter must not be taken down while the compiler runs, so a script's end
    waits for what is being compiled. The command line does not, see ``spica.commands.guard.leave``.

    Yields what is to be set when the search is over.
    """
    sweep = inputs.options
    compiles = sweep.max_rounds * sweep.candidates_per_round > SEEDS
    over = threading.Event()

    def work() -> None:
        try:
            for branch in inputs.branches if compiles else ():
                if not over.is_set():
                    warm_up(inputs.study(branch))
            if not over.is_set():
                preload()
        except (ImportError, AttributeError):
            # Two threads that import the same may find a module half made. This one only saves time: what it
            # has not made is made where it is needed, and what is truly wrong is met there too.
            return

    threading.Thread(target=work, name="spica-warm-up").start()
    try:
        yield over
    finally:
        over.set()
