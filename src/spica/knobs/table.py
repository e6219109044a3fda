"""The one table of the knobs of a search space.

The schema, the encoder, the sample and ``docs/knobs.md`` all read it; no other list of knobs exists.
``python -m spica.knobs`` prints the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from spica.deployment.shapes import Role
from spica.knobs.setting import Choice, Setting, ValueType, flag, real, text, whole
from spica.planner.predictors import LOAD_PREDICTOR_FIELDS, LOAD_PREDICTOR_PRESETS
from spica.planner.presets import PLANNER_FIELDS, PLANNER_PRESETS


class KnobKind(StrEnum):
    """How a knob is searched: a list whose entries are choices, a fixed value, named bundles, or shapes."""

    ATOMIC = "atomic"
    PINNED = "pinned"
    COMPOSITE = "composite"
    PARALLEL = "parallel"


class When(StrEnum):
    """When a knob can act on a candidate; otherwise it is dead there."""

    ALWAYS = "always"
    AGG = "agg"
    DISAGG = "disagg"
    OFFLOAD = "num_g2_blocks > 0"
    KV_ROUTER = "kv_router"
    KV_ROUTER_OFFLOAD = "kv_router and num_g2_blocks > 0"
    SCALING = "a policy that scales"
    THROUGHPUT_SCALING = "a policy with throughput scaling"


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting of the search space, with how it is searched and when it acts.

    ``role`` names the worker an engine knob belongs to; ``group`` is its section in the document.
    """

    setting: Setting
    kind: KnobKind
    group: str
    when: When = When.ALWAYS
    role: Role | None = None

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def default(self) -> Any:
        return self.setting.default

    @property
    def choices(self) -> tuple[Choice, ...]:
        return self.setting.choices

    @property
    def searched(self) -> bool:
        """Whether the knob is a list that several entries make a study dimension."""
        return self.kind in (KnobKind.ATOMIC, KnobKind.COMPOSITE)


def _listed(
    name: str,
    type_: ValueType,
    choices: tuple[Choice, ...],
    meaning: str,
    unit: str = "",
    default: tuple[Choice, ...] | None = None,
) -> Setting:
    return Setting(name, type_, choices if default is None else default, meaning, unit, choices, is_list=True)


def _group(name: str, kind: KnobKind, *settings: Setting, when: When = When.ALWAYS) -> tuple[Knob, ...]:
    return tuple(Knob(setting, kind, name, when) for setting in settings)


def _engine(
    role: Role, title: str, tokens: tuple[int, ...], seqs: tuple[int, ...], caching: Setting
) -> tuple[Knob, ...]:
    when = When.AGG if role == "agg" else When.DISAGG
    integer = ValueType.INT
    searched = (
        _listed(f"{role}_max_num_batched_tokens", integer, tokens, "most tokens in one pass", "tokens"),
        _listed(f"{role}_max_num_seqs", integer, seqs, "most sequences in one pass", "sequences"),
    )
    share = "share of GPU memory the engine may use"
    pinned = (
        whole(f"{role}_block_size", 64, 1, 4096, "size of a KV block", "tokens"),
        real(f"{role}_gpu_memory_utilization", 0.9, 0, 1, share, above=True),
        caching,
    )
    return (
        *(Knob(setting, KnobKind.ATOMIC, title, when, role) for setting in searched),
        *(Knob(setting, KnobKind.PINNED, title, when, role) for setting in pinned),
    )


_DEPLOYMENT: Final = (
    *_group(
        "Deployment",
        KnobKind.ATOMIC,
        _listed(
            "deployment_mode",
            ValueType.STR,
            ("disagg", "agg"),
            "prefill and decode on separate workers, or on the same ones; one study per mode",
        ),
        _listed("backend", ValueType.STR, ("vllm", "sglang", "trtllm"), "serving engine", default=("vllm",)),
    ),
    *_group(
        "Deployment",
        KnobKind.PINNED,
        text("model_name", "Hugging Face id, or the path of a local model", required=True),
        text("hardware_sku", "GPU system, one that has performance data", required=True),
        whole("gpu_budget", 32, 1, 4096, "most GPUs a candidate may use", "GPUs"),
        whole("min_gpu_budget", None, 1, 4096, "fewest GPUs a candidate may use", "GPUs"),
        whole("min_endpoint", None, 1, 4096, "fewest workers a planner may scale to", "workers"),
        whole("context_length", None, 1, 2**24, "longest sequence; null: the model's maximum", "tokens"),
        real("startup_time", None, 0, 86_400, "time a new worker takes to start (planner-scaled)", "s"),
        whole("aic_nextn", None, 0, 16, "speculative-decode (MTP) depth", "tokens"),
    ),
    *_group(
        "Deployment",
        KnobKind.PARALLEL,
        Setting(
            "parallel_configs",
            ValueType.DICT,
            (),
            "shapes and replica counts to choose from; empty: every feasible one",
            is_list=True,
        ),
    ),
)

_ENGINES: Final = (
    *_engine(
        "prefill",
        "Prefill engine",
        (8192, 16384, 32768),
        (1, 2, 4, 8, 16, 32, 64, 128, 256),
        flag("prefill_enable_prefix_caching", True, "reuse the KV cache of shared prefixes"),
    ),
    *_engine(
        "decode",
        "Decode engine",
        (8192,),
        (256, 512, 1024),
        flag("decode_enable_prefix_caching", False, "always off: forced off, with a warning, when true"),
    ),
    *_engine(
        "agg",
        "Aggregated engine",
        (8192, 16384, 32768),
        (256, 512, 1024),
        flag("agg_enable_prefix_caching", True, "reuse the KV cache of shared prefixes"),
    ),
)

_G2: Final = "KV manager (host offload)"
_OFFLOAD: Final = (
    *_group(
        _G2,
        KnobKind.PINNED,
        whole("num_g2_blocks", 0, 0, 10**9, "host blocks; 0 turns offload off", "blocks"),
    ),
    *_group(
        _G2,
        KnobKind.PINNED,
        whole("kv_bytes_per_token", None, 1, 2**30, "KV-cache bytes per token; needed by offload", "bytes"),
        real("bandwidth_g1_to_g2_gbps", None, 0, 1e6, "device-to-host bandwidth", "GB/s", above=True),
        real("bandwidth_g2_to_g1_gbps", None, 0, 1e6, "host-to-device bandwidth", "GB/s", above=True),
        whole("offload_batch_size", None, 1, 10**9, "blocks per offload transfer", "blocks"),
        when=When.OFFLOAD,
    ),
)

_SCALES: Final = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_FLOAT: Final = ValueType.FLOAT
_ROUTER: Final = (
    *_group(
        "Router",
        KnobKind.ATOMIC,
        _listed("router_mode", ValueType.STR, ("kv_router", "round_robin"), "how requests find a worker"),
    ),
    *_group(
        "Router",
        KnobKind.ATOMIC,
        _listed("overlap_score_credit", _FLOAT, (0.0, 0.5, 1.0), "credit for cached prefix blocks"),
        _listed("prefill_load_scale", _FLOAT, _SCALES, "weight of a worker's prefill load"),
        _listed("router_temperature", _FLOAT, (0.0, 0.2, 0.5, 1.0), "randomness of the choice; 0: best one"),
        when=When.KV_ROUTER,
    ),
    *_group(
        "Router",
        KnobKind.ATOMIC,
        _listed("host_cache_hit_weight", _FLOAT, (0.5, 0.75, 1.0), "weight of blocks cached on the host"),
        _listed("disk_cache_hit_weight", _FLOAT, (0.0, 0.25, 0.5), "weight of blocks cached on disk"),
        when=When.KV_ROUTER_OFFLOAD,
    ),
)

_ADMISSION: Final = _group(
    "Admission control (reserved; refused with kv_router)",
    KnobKind.PINNED,
    whole(
        "active_decode_blocks_threshold", None, 1, 10**9, "active decode blocks of a busy worker", "blocks"
    ),
    whole(
        "active_prefill_tokens_threshold", None, 1, 10**9, "active prefill tokens of a busy worker", "tokens"
    ),
    real("active_prefill_tokens_threshold_frac", None, 0, 1e3, "the same, as a share of a pass", above=True),
    flag("no_admission_control", False, "admit every request"),
    when=When.KV_ROUTER,
)


def _composite(name: str, presets: Mapping[str, object], meaning: str, when: When) -> Knob:
    return Knob(_listed(name, ValueType.DICT, tuple(presets), meaning), KnobKind.COMPOSITE, "Planner", when)


_PLANNER: Final = (
    _composite(
        "planner_scaling_policy",
        PLANNER_PRESETS["planner_scaling_policy"],
        "which scaling loops run, and how often",
        When.ALWAYS,
    ),
    _composite(
        "planner_fpm_sampling",
        PLANNER_PRESETS["planner_fpm_sampling"],
        "how many forward-pass measurements the planner keeps",
        When.SCALING,
    ),
    _composite(
        "planner_load_sensitivity",
        PLANNER_PRESETS["planner_load_sensitivity"],
        "how readily load scaling shrinks",
        When.SCALING,
    ),
    _composite(
        "load_predictor_candidates",
        LOAD_PREDICTOR_PRESETS,
        "forecasters of predictive scaling; the best per interval is found before the sweep",
        When.THROUGHPUT_SCALING,
    ),
)

#: Every knob by name, in the order of the reference.
KNOBS: Final[Mapping[str, Knob]] = MappingProxyType(
    {knob.name: knob for knob in (*_DEPLOYMENT, *_ENGINES, *_OFFLOAD, *_ROUTER, *_ADMISSION, *_PLANNER)}
)

#: List knob -> its legal entries (preset ids for the composites).
SEARCH_CHOICES: Final[Mapping[str, tuple[Choice, ...]]] = MappingProxyType(
    {name: knob.choices for name, knob in KNOBS.items() if knob.searched}
)

_PREDICTOR_KEYS: Final = tuple(dict.fromkeys(key for keys in LOAD_PREDICTOR_FIELDS.values() for key in keys))

#: Composite knob -> every key a dict entry may carry.
COMPOSITE_DICT_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {**PLANNER_FIELDS, "load_predictor_candidates": _PREDICTOR_KEYS}
)

#: Composite knob -> the keys a dict entry must carry.
COMPOSITE_REQUIRED_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {**PLANNER_FIELDS, "load_predictor_candidates": ("load_predictor",)}
)


def knob(name: str) -> Knob:
    """The knob of that name. Raises KeyError."""
    return KNOBS[name]


def default(name: str) -> Any:
    """The default of a knob, in YAML terms (preset ids for composites). Raises KeyError."""
    return KNOBS[name].default


_INTRO: Final = """# The knobs of a search space

Made by `python -m spica.knobs` from `src/spica/knobs/table.py`; do not edit.

One entry of a list knob pins it, several are searched. A knob that cannot act on a candidate (column "acts")
is left out of it, and out of the search when it can act on none. Dict entries of composites replace a preset
whole and name every field (of `load_predictor_candidates`: at least `load_predictor`).
"""


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
    for name, presets in (*PLANNER_PRESETS.items(), ("load_predictor_candidates", LOAD_PREDICTOR_PRESETS)):
        fields = COMPOSITE_DICT_KEYS[name]
        head = f"| preset | {' | '.join(f'`{f}`' for f in fields)} |\n|---|{'---|' * len(fields)}"
        rows = [
            f"| `{preset}` | {' | '.join(_shown(getattr(value, field)) for field in fields)} |"
            for preset, value in presets.items()
        ]
        parts.append("\n".join((f"## Presets of `{name}`\n", head, *rows)) + "\n")
    return "\n".join(parts)
