"""``spica init``: a first configuration, commented, from three questions or from options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, TypeVar

import yaml

from spica.commands.console import err, out
from spica.config.load import load_text
from spica.errors import EXIT_OK, InputError, Problem, nearest, unwritable
from spica.facts.catalog import hardware_rows
from spica.facts.models import known_models
from spica.record.runfolder import write_text

N = TypeVar("N", int, float)
#: Requests sent per request in flight, or per request of a second: as docs/configuration.md advises.
_CLOSED_RATIO: Final = 10
_OPEN_RATIO: Final = 60
_PASTE: Final = "spica init --model Qwen/Qwen3-32B --hardware h200_sxm --gpus 8 --rate 4 --isl 3000 --osl 300"


@dataclass(frozen=True, slots=True)
class Answers:
    """What is asked. Lengths in tokens, ``rate`` in requests/s, limits in milliseconds; None: not said."""

    model: str | None = None
    hardware: str | None = None
    gpus: int | None = None
    isl: int | None = None
    osl: int | None = None
    rate: float | None = None
    concurrency: int | None = None
    ttft: float | None = None
    itl: float | None = None


def init_command(file: Path, answers: Answers, force: bool) -> int:
    """Ask what is not said (on a terminal), check it, write ``file``. The exit code.

    Raises InputError for what is missing without a terminal, unknown names, and a file that is there.
    """
    if file.exists() and not force:
        raise InputError(
            Problem(f"{file} is there already", "FILE", remedy="name another one, or add --force")
        )
    _not_both(answers)
    complete = _asked(answers) if sys.stdin.isatty() else answers
    _complete(complete)
    text = configuration(_known(complete))
    load_text(text, file)  # before anything is written: limits that the options do not know
    try:
        write_text(file, text)
    except OSError as error:
        raise unwritable(file, error, key="FILE") from None
    out().print(f"wrote {file}\n\n  spica check {file}    what would be searched; replays nothing")
    out().print(f"  spica sweep {file}    search, replay, rank")
    return EXIT_OK


def _not_both(answers: Answers) -> None:
    if answers.rate is not None and answers.concurrency is not None:
        raise InputError(
            Problem("--rate and --concurrency are two loads", "--concurrency", remedy="give one of them")
        )
    if (answers.ttft is None) != (answers.itl is None):
        raise InputError(Problem("--ttft and --itl belong together", "--ttft", remedy="give both or neither"))


def _asked(answers: Answers) -> Answers:
    """The three questions; what an option has said is not asked."""
    if answers.model is None:
        answers = replace(answers, model=_ask("Which model? (spica models lists them)", "Qwen/Qwen3-32B"))
    if answers.hardware is None or answers.gpus is None:
        sku, count = _words("Which GPUs, and at most how many?", "h200_sxm 8", 2)
        answers = replace(
            answers, hardware=answers.hardware or sku, gpus=answers.gpus or _number(count, int, "GPUs")
        )
    if answers.rate is None and answers.concurrency is None:
        question = "Requests per second, prompt tokens, output tokens?"
        rate, isl, osl = _words(question, "4 3000 300", 3)
        answers = replace(
            answers,
            rate=_number(rate, float, "requests per second"),
            isl=answers.isl or _number(isl, int, "prompt tokens"),
            osl=answers.osl or _number(osl, int, "output tokens"),
        )
    return answers


def _ask(question: str, example: str) -> str:
    err().print(f"{question} [{example}] ", end="")
    line = sys.stdin.readline()
    return line.strip() or example


def _words(question: str, example: str, count: int) -> list[str]:
    words = _ask(question, example).replace(",", " ").split()
    if len(words) != count:
        raise InputError(
            Problem(f"that is {len(words)} words", question, allowed=f"{count}, for example {example}")
        )
    return words


def _number(text: str, kind: Callable[[str], N], what: str) -> N:
    try:
        return kind(text)
    except ValueError:
        raise InputError(Problem(f"'{text}' is not a number", what)) from None


def _complete(answers: Answers) -> None:
    """What a configuration cannot do without and nobody was there to be asked for."""
    missing = [
        f"--{field.name}"
        for field in fields(answers)
        if field.name in ("model", "hardware", "gpus", "isl", "osl") and getattr(answers, field.name) is None
    ]
    if answers.rate is None and answers.concurrency is None:
        missing.append("--rate (or --concurrency)")
    if missing:
        what = "not given, and there is no terminal to ask on"
        raise InputError(Problem(what, ", ".join(missing), remedy=f"for example: {_PASTE}"))


def _known(answers: Answers) -> Answers:
    """With the names as they are spelled. Raises InputError with the nearest one."""
    problems: list[Problem] = []
    model, hardware = answers.model or "", answers.hardware or ""
    if not Path(model).is_dir() and model not in known_models():
        near = nearest(model, known_models()) or ""
        problems.append(
            Problem(f"'{model}' is not a known model", "--model", suggestion=near, remedy="see spica models")
        )
    rows = {row.name: row for row in hardware_rows() if row.backends}
    if hardware not in rows:
        near = nearest(hardware, rows) or ""
        allowed = ", ".join(rows)
        problems.append(
            Problem(f"'{hardware}' has no performance data", "--hardware", suggestion=near, allowed=allowed)
        )
    if problems:
        raise InputError(problems)
    return answers


def configuration(answers: Answers) -> str:
    """The text of the file, for complete answers."""
    closed = answers.concurrency is not None
    load = f"concurrency: {answers.concurrency}" if closed else f"request_rate: {answers.rate:g}"
    lines = (
        ("# yaml-language-server: $schema=spica.schema.json", ""),
        (
            "# Written by `spica init`. Every setting and its default: docs/configuration.md, docs/knobs.md.",
            "",
        ),
        ("# `spica schema > spica.schema.json` beside this file lets an editor complete and check it.", ""),
        ("search_space:", ""),
        (f"  model_name: {_text(answers.model or '')}", "spica models lists the known ones"),
        (f"  hardware_sku: {answers.hardware}", "spica hardware lists the ones with data"),
        (f"  gpu_budget: {answers.gpus}", "candidates may use fewer"),
        ("  deployment_mode: [agg, disagg]", "prefill and decode on the same workers, or on separate ones"),
        (f"  backend: [{', '.join(_backends(answers.hardware or ''))}]", "those with data on this SKU"),
        ("  router_mode: [round_robin]", "add kv_router where prompts share prefixes"),
        ("  planner_scaling_policy: [disabled]", "no autoscaling; docs/knobs.md lists the policies"),
        ("", ""),
        ("workload:", "or trace_path: your own log, see docs/traces.md"),
        (f"  isl: {answers.isl}", "prompt tokens"),
        (f"  osl: {answers.osl}", "output tokens"),
        (f"  {load}", "requests in flight" if closed else "requests per second"),
        (f"  num_request_ratio: {_CLOSED_RATIO if closed else _OPEN_RATIO}", "requests sent = ratio x load"),
        ("", ""),
        *_goal(answers),
    )
    return "".join(f"{text:<40}# {said}\n" if said else f"{text}\n" for text, said in lines)


def _text(value: str) -> str:
    """A string as YAML, quoted where it has to be."""
    return yaml.safe_dump(value, default_style=None, width=10_000).removesuffix("\n...\n").strip()


def _backends(hardware: str) -> list[str]:
    """The backends with performance data on the SKU."""
    return next([name for name, _ in row.backends] for row in hardware_rows() if row.name == hardware)


def _goal(answers: Answers) -> tuple[tuple[str, str], ...]:
    if answers.ttft is None:
        return (
            ("goal:", ""),
            ("  target: throughput_per_gpu", "output tokens per second and GPU"),
            ("  # target: goodput_per_gpu", "with limits: counts requests within the sla only"),
            ("  # sla: {ttft_ms: 1000, itl_ms: 30}", ""),
        )
    return (
        ("goal:", ""),
        ("  target: goodput_per_gpu", "tokens of requests within the SLA, per second and GPU"),
        (f"  sla: {{ttft_ms: {answers.ttft:g}, itl_ms: {answers.itl:g}}}", ""),
    )
