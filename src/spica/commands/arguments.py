"""The arguments of the commands, and nothing that is slow to import: the work is in the modules beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spica.commands.traces import app as trace_app
from spica.signals import Loading
from spica.sweep.options import naming_options, options_of

app = typer.Typer(
    help="Which serving deployment should I run, for this model, on these GPUs, under this traffic?",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 results, 1 nothing feasible, 2 bad input, 3 stack or system, 130 interrupted.",
)
app.add_typer(trace_app, name="trace")

ConfigArgument = Annotated[
    Path, typer.Argument(help="The YAML configuration; - for stdin.", metavar="CONFIG")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a setting: search_space.gpu_budget=16. Repeatable."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Only JSON on stdout; progress stays on stderr.")]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Run folder [default: runs/<config>-<time>].", show_default=False),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        max=1024,
        help="Replays at once [default: from the config and the cores].",
    ),
]
PatternArgument = Annotated[
    str | None, typer.Argument(help="Only names that hold this; * and ? as in a shell.", metavar="[PATTERN]")
]


def _version(asked: bool) -> None:
    if asked:
        from spica.commands.listing import print_versions

        print_versions()
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Spica's and the stack's versions."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Search LLM serving deployments and measure each by replaying the traffic."""


@app.command()
def sweep(
    config: Annotated[
        Path | None,
        typer.Argument(
            help="The YAML configuration, - for stdin; not needed with --resume.", metavar="CONFIG"
        ),
    ] = None,
    out: OutOption = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Overrides sweep.random_seed.")
    ] = None,
    jobs: JobsOption = None,
    overrides: SetOption = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with an interrupted run folder.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Resume although config or versions differ.")
    ] = False,
    max_minutes: Annotated[
        float | None, typer.Option(metavar="M", help="Stop asking after so many minutes.")
    ] = None,
    memory_gb: Annotated[
        float | None,
        typer.Option(metavar="G", help="Memory cap of one worker [default: from this machine's]."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Search, replay and rank; the results go to a run folder."""
    with Loading("interrupted before anything was measured; nothing was written"):
        from spica.api import RunOptions
        from spica.commands.sweep import SweepCommand, sweep_command

    with naming_options(options_of(RunOptions)):
        options = RunOptions(
            out=out,
            seed=seed,
            jobs=jobs,
            overrides=tuple(overrides or ()),
            resume=resume,
            force=force,
            max_minutes=max_minutes,
            memory_gb=memory_gb,
        )
    raise typer.Exit(sweep_command(SweepCommand(config, as_json, options)))


@app.command()
def check(
    config: ConfigArgument,
    overrides: SetOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every dropped shape with its bytes and reason.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Validate a configuration and show what would be searched; nothing is replayed."""
    with Loading("interrupted"):
        from spica.commands.check import check_command

    raise typer.Exit(check_command(config, tuple(overrides or ()), verbose, as_json))


@app.command()
def models(pattern: PatternArgument = None, as_json: JsonOption = False) -> None:
    """List the models whose facts ship with the performance database."""
    with Loading("interrupted"):
        from spica.commands.listing import print_models

    print_models(pattern, as_json)


@app.command()
def hardware(pattern: PatternArgument = None, as_json: JsonOption = False) -> None:
    """List the GPU SKUs and the backends with performance data on them."""
    with Loading("interrupted"):
        from spica.commands.listing import print_hardware

    print_hardware(pattern, as_json)


@app.command()
def predictors(
    config: ConfigArgument,
    overrides: SetOption = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write forecasts against actual traffic to this page.")
    ] = None,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score the load predictors on the configuration's trace; nothing else is run."""
    with Loading("interrupted"):
        from spica.commands.predictors import predictors_command

    predictors_command(config, tuple(overrides or ()), html, jobs, as_json)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    as_json: JsonOption = False,
    intact: Annotated[
        bool, typer.Option("--intact", help="Of a damaged record, report what is as it was written.")
    ] = False,
) -> None:
    """Write a run folder's reports again from its ledger, and show the result."""
    with Loading("interrupted"):
        from spica.commands.report import report_command

    raise typer.Exit(report_command(run, as_json, intact=intact))


@app.command()
def schema() -> None:
    """Print the JSON Schema of a configuration, for editors that complete and check."""
    with Loading("interrupted"):
        from spica.commands.console import print_json
        from spica.config.json_schema import json_schema

    print_json(json_schema())


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.", metavar="FILE")] = Path("spica.yaml"),
    model: Annotated[str | None, typer.Option(help="See spica models.", metavar="NAME")] = None,
    hardware: Annotated[str | None, typer.Option(help="See spica hardware.", metavar="SKU")] = None,
    gpus: Annotated[int | None, typer.Option(help="The most GPUs.", min=1, max=4096, metavar="N")] = None,
    isl: Annotated[int | None, typer.Option(help="Prompt tokens.", min=1, metavar="N")] = None,
    osl: Annotated[int | None, typer.Option(help="Output tokens.", min=1, metavar="N")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second.", min=1e-6, metavar="R")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests in flight.", min=1, metavar="N")] = None,
    ttft: Annotated[
        float | None, typer.Option(help="SLA: time to first token.", min=0.001, metavar="MS")
    ] = None,
    itl: Annotated[
        float | None, typer.Option(help="SLA: time between tokens.", min=0.001, metavar="MS")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a first configuration; on a terminal it asks for what no option says."""
    with Loading("interrupted; nothing was written"):
        from spica.commands.init import Answers, init_command

    answers = Answers(model, hardware, gpus, isl, osl, rate, concurrency, ttft, itl)
    raise typer.Exit(init_command(file, answers, force))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """See whether this machine has what a sweep needs: memory, folders, versions, data, one small replay."""
    with Loading("interrupted"):
        from spica.commands.doctor import doctor_command

    raise typer.Exit(doctor_command(as_json))
