"""What the documents say of the knobs: ``docs/knobs.md``, and the table of flags in ``docs/deploy.md``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spica.knobs.bindings import (
    CallArg,
    EngineArg,
    Files,
    Flag,
    Flags,
    FrontendEnv,
    Inert,
    Override,
    PlannerArg,
    PlannerFields,
    Replay,
    RouterArg,
    ShapeArgs,
    Structure,
    Switch,
)
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.table import COMPOSITE_DICT_KEYS, KNOBS
from spica.planner.predictors import LOAD_PREDICTOR_PRESETS
from spica.planner.presets import PLANNER_PRESETS

_INTRO: Final = """# The knobs of a search space

Made by `python -m spica.knobs` from `src/spica/knobs/`; do not edit.

One entry of a list knob pins it, several are searched. A knob that cannot act on a candidate (column "acts")
is left out of it, and out of the search when it can act on none. Dict entries of composites replace a preset
whole and name every field (of `load_predictor_candidates`: at least `load_predictor`).

A knob of numbers that is pinned (one entry) may have any number within "pin", so that a deployment can be
measured as it runs elsewhere. Several entries are searched, and must be of the menu.
"""

_REACH: Final = """## Where a knob goes

"Replay" is the argument of the simulator by which a knob reaches the measured numbers: of a role's engine, of
the router, or of the planner. How the deployment files say it stands in [deploy.md](deploy.md).

| knob | title | replay | shown inert by |
|---|---|---|---|"""


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return str(value)


def _row(knob: Knob) -> str:
    setting = knob.setting
    type_ = f"list[{setting.type}]" if setting.is_list else setting.type + ("?" if setting.optional else "")
    default_ = "required" if setting.required else f"`{_shown(setting.default) or 'none'}`"
    allowed = "the default's" if setting.choices and setting.default == setting.choices else setting.allowed
    if setting.free_pin:
        allowed += f"; pin: {setting.legal}"
    if knob.kind is KnobKind.PARALLEL:
        allowed = "`{tp, attention_dp, moe_tp, moe_ep, pp, replicas}`, or `{prefill: ..., decode: ...}`"
    meaning = setting.meaning + (f" ({setting.unit})" if setting.unit else "")
    return f"| `{setting.name}` | {knob.kind} | {type_} | {default_} | {allowed} | {knob.when} | {meaning} |"


def document() -> str:
    """The text of ``docs/knobs.md``."""
    parts = [_INTRO]
    for group in dict.fromkeys(knob.group for knob in KNOBS.values()):
        rows = [_row(knob) for knob in KNOBS.values() if knob.group == group]
        head = "| knob | kind | type | default | allowed | acts | meaning |\n|---|---|---|---|---|---|---|"
        parts.append("\n".join((f"## {group}\n", head, *rows)) + "\n")
    parts.append("\n".join((_REACH, *_reaching())) + "\n")
    presets: dict[str, dict[str, object]] = {name: dict(known) for name, known in PLANNER_PRESETS.items()}
    presets["load_predictor_candidates"] = dict(LOAD_PREDICTOR_PRESETS)
    parts.extend(_preset_table(name, known, COMPOSITE_DICT_KEYS[name]) for name, known in presets.items())
    return "\n".join(parts)


def _reaching() -> Iterator[str]:
    for knob in KNOBS.values():
        rules = ", ".join(f"`{rule}`" for rule in knob.rules)
        yield f"| `{knob.name}` | {knob.title} | {_replay(knob.replay)} | {rules} |"


def _replay(replay: Replay) -> str:
    match replay:
        case EngineArg():
            told = [f"`{path}`" for path in replay.paths]
            told += [f"{backend}: " + ", ".join(f"`{p}`" for p in paths) for backend, paths in replay.own]
            limits: list[str] = [*(replay.backends if len(replay.backends) < 3 else ())]
            limits += ["workers with attention data parallelism"] if replay.ranks else []
            return ", ".join(told) + (f" ({', '.join(limits)} only)" if limits else "")
        case RouterArg(name):
            return f"router `{name}`"
        case PlannerArg(name):
            return f"planner `{name}`, of a policy that scales"
        case CallArg(name):
            return f"`{name}`"
        case ShapeArgs():
            return "`dp_size`, `tensor_parallel_size`, the timing's widths, `num_workers`"
        case PlannerFields():
            return "planner, field by field"
        case Structure(told_):
            return told_
        case Inert(reason):
            return f"none: {reason}"


FLAGS_HEAD: Final = "| setting | vLLM | SGLang | TensorRT-LLM |\n|---|---|---|---|"
_SHAPE_FLAGS: Final = (
    "| `tp`, `attention_dp` | `--tensor-parallel-size` tp, `--data-parallel-size` dp | `--tp` tp x dp, "
    "`--dp` dp, `--enable-dp-attention` | `--tensor-parallel-size` tp x dp, `--enable-attention-dp` |",
    "| `moe_ep` | `--enable-expert-parallel` | `--ep` | `--expert-parallel-size` |",
)


def flags_table() -> str:
    """The table of ``docs/deploy.md``: how each setting of a candidate stands in its files."""
    rows = {_short(knob): _files(knob.files) for knob in KNOBS.values() if _in_table(knob)}
    return "\n".join(
        (FLAGS_HEAD, *_SHAPE_FLAGS, *(f"| `{name}` | {cells} |" for name, cells in rows.items()))
    )


def _in_table(knob: Knob) -> bool:
    return not isinstance(knob.files, ShapeArgs) and not isinstance(knob.lives, Inert)


def _short(knob: Knob) -> str:
    """Engine knobs of all roles stand in one row."""
    return knob.name if knob.role is None else knob.name.removeprefix(f"{knob.role}_")


def _files(files: Files) -> str:
    """The three cells."""
    if isinstance(files, Flags):
        return " | ".join(_flag(flag) for flag in (files.vllm, files.sglang, files.trtllm))
    match files:
        case FrontendEnv(name):
            told = f"`{name}` of the frontend"
        case PlannerArg(name):
            told = f"`{name}` of the planner, when it scales"
        case PlannerFields():
            told = "the planner's settings, field by field"
        case Structure(told_):
            told = told_
        case Inert(reason):
            told = f"none: {reason}"
        case ShapeArgs():
            told = "the shape"
    return f"{told} | same | same"


def _flag(flag: Flag | Switch | Override | Inert) -> str:
    match flag:
        case Flag(name, shared):
            return f"`{name}`" + (" (x dp: shared by the ranks)" if shared else "")
        case Switch(on, off):
            told = [f"`{name}` when {state}" for name, state in ((on, "on"), (off, "off")) if name]
            return ", ".join(told)
        case Override(path, default):
            return f"`{path}` by `--override-engine-args`, when not {str(default).lower()}"
        case Inert(reason):
            return f"none: {reason}"


def _preset_table(name: str, presets: dict[str, object], fields: tuple[str, ...]) -> str:
    title = " | ".join(f"`{field}`" for field in fields)
    lines = [f"## Presets of `{name}`\n", f"| preset | {title} |", "|---" * (len(fields) + 1) + "|"]
    for preset, value in presets.items():
        cells = " | ".join(_shown(getattr(value, field)) for field in fields)
        lines.append(f"| `{preset}` | {cells} |")
    return "\n".join(lines) + "\n"
