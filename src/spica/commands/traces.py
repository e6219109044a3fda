"""``spica trace``: look at a trace, convert it, or make one."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from spica.sweep.options import naming_options, options_of

app = typer.Typer(
    help="Look at request traces, convert them, make them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_FORMAT_HELP = "mooncake, azure, burstgpt, requests (vllm, sharegpt), dynamo, or auto to tell from the file."


class ZeroChoice(StrEnum):
    """What becomes of rows without output tokens."""

    drop = "drop"
    clamp = "clamp"


FormatOption = Annotated[str, typer.Option("--format", "-f", help=_FORMAT_HELP)]
ZeroOption = Annotated[ZeroChoice, typer.Option(help="Rows without output: leave out, or count as 1 token.")]
BlockOption = Annotated[int, typer.Option(min=1, max=65536, help="Tokens per hash id of a mooncake FILE.")]
OutOption = Annotated[Path, typer.Option("--out", "-o", help="File to write; gzip if it ends in .gz.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file if it is there already.")]


def _may_write(out: Path, force: bool, source: Path | None = None) -> None:
    """Raise InputError rather than overwrite the source, or anything without --force, or fail at the end."""
    from spica.errors import InputError, Problem, unwritable

    try:
        if source is not None and out.exists() and source.exists() and out.samefile(source):
            message = f"{out} is the file being read"
            raise InputError(Problem(message, key="--out", remedy="name another file"))
        if out.is_dir():
            raise InputError(Problem(f"{out} is a directory", key="--out", remedy="name a file"))
        if os.path.lexists(out) and not force:
            message = f"{out} exists"
            raise InputError(Problem(message, key="--out", remedy="name another file or give --force"))
        out.parent.stat()
    except OSError as error:
        raise unwritable(out, error) from None


_READING: Final = {"trace_format": "--format"}


@app.command()
@naming_options(_READING)
def info(
    file: Annotated[Path, typer.Argument(help="The trace, plain or gzip; or a folder of Dynamo shards.")],
    trace_format: FormatOption = "auto",
    zero_output: ZeroOption = ZeroChoice.drop,
    block_size: BlockOption = 512,
    context: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Context length to check the requests against; repeatable."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write a page with pictures to this file.")] = None,
    force: ForceOption = False,
) -> None:
    """Describe a trace: format, rate, lengths, prefix reuse, burstiness, what fits which context length."""
    from rich.console import Console

    from spica.report.trace_page import render_info, trace_html
    from spica.traffic.info import CONTEXT_LENGTHS, trace_info, trace_warnings
    from spica.traffic.read import read_trace
    from spica.traffic.write import replacing

    if html is not None:
        _may_write(html, force, file)
    trace = read_trace(file, trace_format, zero_output=zero_output.value, block_size=block_size)
    found = trace_info(trace, sorted(set(context)) if context else CONTEXT_LENGTHS)
    console = Console()
    console.print(render_info(found))
    for warning in trace_warnings(trace, False):
        console.print(f"warning: {warning}", markup=False, highlight=False)
    if html is not None:
        with replacing(html) as text:
            text.write(trace_html(trace, found))
        console.print(f"pictures in {html}", markup=False, highlight=False)


@app.command()
@naming_options(_READING)
def convert(
    file: Annotated[Path, typer.Argument(help="The trace, plain or gzip; or a folder of Dynamo shards.")],
    out: OutOption,
    trace_format: FormatOption = "auto",
    zero_output: ZeroOption = ZeroChoice.drop,
    block_size: BlockOption = 512,
    sample: Annotated[
        str | None, typer.Option(help="A share of the requests (0.25 or 25%) or a number of them, drawn.")
    ] = None,
    window: Annotated[str | None, typer.Option(help="START:END in seconds after the first arrival.")] = None,
    speedup: Annotated[float, typer.Option(help="Arrivals this many times as fast.")] = 1.0,
    max_requests: Annotated[
        int | None, typer.Option(help="Only the first so many (after the above).")
    ] = None,
    context_length: Annotated[
        int | None, typer.Option(min=1, help="Leave out requests whose prompt and output do not fit it.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 1,
    force: ForceOption = False,
) -> None:
    """Check a trace of any format and write it as mooncake JSON lines (512 tokens per hash id)."""
    from spica.traffic.load import fit_context
    from spica.traffic.model import MOONCAKE_BLOCK
    from spica.traffic.read import read_trace
    from spica.traffic.transform import Cut, cut_trace, parse_sample, parse_window
    from spica.traffic.write import regroup_blocks, write_mooncake

    cut = Cut(
        window_s=None if window is None else parse_window(window),
        sample=None if sample is None else parse_sample(sample),
        max_requests=max_requests,
        speedup=speedup,
        seed=seed,
    )
    _may_write(out, force, file)
    trace = read_trace(file, trace_format, zero_output=zero_output.value, block_size=block_size)
    if context_length is not None:
        trace = fit_context(trace, context_length, "drop", setting="--context-length")
    trace = regroup_blocks(cut_trace(trace, cut), MOONCAKE_BLOCK)
    write_mooncake(trace, out)
    for note in trace.notes:
        typer.echo(f"note: {note}")
    typer.echo(f"{len(trace)} requests over {trace.span_ms / 1000:.3f} s written to {out}")


@app.command()
def synth(
    kind: Annotated[str, typer.Argument(help="sine, diurnal, poisson, bursty, sessions or shared_prefix.")],
    out: OutOption,
    rate: Annotated[float, typer.Option(help="Mean requests per second.")] = 2.0,
    duration: Annotated[float, typer.Option(help="Seconds.")] = 3600.0,
    isl: Annotated[int, typer.Option(help="Mean prompt tokens (sessions: added per turn).")] = 3000,
    osl: Annotated[int, typer.Option(help="Mean output tokens.")] = 300,
    length_cv: Annotated[float, typer.Option(help="Spread of lengths: deviation over mean.")] = 0.5,
    period: Annotated[float, typer.Option(help="Seconds of one wave or day (sine, diurnal).")] = 3600.0,
    amplitude: Annotated[float, typer.Option(help="0 to 1: how far the rate swings (sine, diurnal).")] = 0.8,
    burst_factor: Annotated[float, typer.Option(help="Rate in a burst over the quiet rate.")] = 8.0,
    burst_seconds: Annotated[float, typer.Option(help="Mean length of a burst.")] = 20.0,
    burst_share: Annotated[float, typer.Option(help="Share of the time in bursts.")] = 0.1,
    turns: Annotated[float, typer.Option(help="Mean turns of a session.")] = 5.0,
    think_seconds: Annotated[float, typer.Option(help="Mean pause before the next turn.")] = 10.0,
    prefix_groups: Annotated[int, typer.Option(help="Distinct shared prefixes.")] = 10,
    prefix_ratio: Annotated[float, typer.Option(help="Share of the mean prompt that is shared.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Same seed, same trace.")] = 1,
    force: ForceOption = False,
) -> None:
    """Make a trace and write it as mooncake JSON lines."""
    from spica.traffic.synth import SynthSpec, synth_kind, synthesize
    from spica.traffic.write import write_mooncake

    spec = SynthSpec(
        kind=synth_kind(kind),
        rate=rate,
        duration=duration,
        isl=isl,
        osl=osl,
        length_cv=length_cv,
        period=period,
        amplitude=amplitude,
        burst_factor=burst_factor,
        burst_seconds=burst_seconds,
        burst_share=burst_share,
        turns=turns,
        think_seconds=think_seconds,
        prefix_groups=prefix_groups,
        prefix_ratio=prefix_ratio,
        seed=seed,
    )
    with naming_options(options_of(spec)):
        trace = synthesize(spec)
    _may_write(out, force)
    write_mooncake(trace, out)
    typer.echo(f"{len(trace)} requests over {trace.span_ms / 1000:.3f} s written to {out}")
