"""The fields of the ``workload``, ``goal`` and ``sweep`` blocks; those of ``search_space`` are the knobs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from spica.goals.targets import SCALAR_TARGETS, OptimizationTarget
from spica.knobs.setting import Setting, ValueType, real, text, whole
from spica.knobs.table import KNOBS
from spica.traffic.model import FORMAT_ALIASES, TRACE_FORMATS

#: Upper ends that no sensible input reaches; past them a typo is likelier than a wish.
MAX_TOKENS: Final = 2**24
MAX_CONCURRENCY: Final = 10**6
MAX_LATENCY_MS: Final = 86_400_000

TARGETS: Final = tuple(target.value for target in OptimizationTarget)

_FORMATS: Final = (*TRACE_FORMATS, *FORMAT_ALIASES, "auto")


def _choice(
    name: str, choices: tuple[str, ...], default: Any, meaning: str, *, is_list: bool = False
) -> Setting:
    return Setting(name, ValueType.STR, default, meaning, choices=choices, is_list=is_list)


_WORKLOAD: Final = (
    whole("isl", None, 1, MAX_TOKENS, "prompt length of a synthetic request", "tokens"),
    whole("osl", None, 1, MAX_TOKENS, "output length of a synthetic request", "tokens"),
    whole("concurrency", None, 1, MAX_CONCURRENCY, "requests in flight", "requests"),
    real("kv_load_ratio", None, 0, 1000, "load as a share of KV capacity; [min, max] under pareto"),
    real("request_rate", None, 0, 1e6, "arrivals", "requests/s", above=True),
    real("num_request_ratio", None, 0, 1e6, "requests sent = ratio x load", above=True),
    real("shared_prefix_ratio", 0.0, 0, 1, "share of the prompt shared in a prefix group"),
    whole("num_prefix_groups", 0, 0, 10**6, "distinct shared prefixes", "groups"),
    whole("turns_per_session", 1, 1, 10_000, "turns of a session", "turns"),
    real("inter_turn_delay_ms", 0.0, 0, MAX_LATENCY_MS, "think time between turns", "ms"),
    text("trace_path", "trace file, or folder of Dynamo shards; relative to the folder of the YAML"),
    _choice("trace_format", _FORMATS, "mooncake", "schema of the trace; auto: found from its content"),
    _choice("over_context", ("refuse", "drop"), "refuse", "trace requests beyond the context length"),
    real("arrival_speedup_ratio", 1.0, 0, 1e6, "> 1 makes a trace arrive faster", above=True),
    whole("replay_concurrency", None, 1, MAX_CONCURRENCY, "trace requests in flight", "requests"),
)

_SLA: Final = (
    real("ttft_ms", None, 0, MAX_LATENCY_MS, "time to the first token", "ms", above=True),
    real("itl_ms", None, 0, MAX_LATENCY_MS, "time between tokens", "ms", above=True),
    real("e2e_ms", None, 0, MAX_LATENCY_MS, "time to the last token", "ms", above=True),
)

_GOAL: Final = (
    _choice("target", TARGETS, "throughput", "what better means"),
    Setting("sla", ValueType.DICT, None, "latency targets a good request meets", optional=True),
    _choice(
        "pareto_objectives",
        tuple(target.value for target in SCALAR_TARGETS),
        ("throughput_per_gpu", "throughput_per_user"),
        "the axes of a pareto goal",
        is_list=True,
    ),
)

_CONFIRM: Final = (
    whole("top", 3, 1, 1000, "leaders measured again", "candidates"),
    whole("repeats", 3, 1, 100, "further measurements of each", "replays"),
)

_SWEEP: Final = (
    whole("max_rounds", 20, 1, 100_000, "rounds per branch", "rounds"),
    whole("parallel_evals", None, 1, 1024, "candidates measured at once; null: 16, at most the cores"),
    whole("candidates_per_round", None, 1, 10_000, "new candidates per round; null: parallel_evals"),
    whole("random_seed", 1, 0, 2**32 - 1, "equal seeds give equal suggestions"),
    real(
        "max_eval_seconds", 600.0, 0, 604_800, "cap on one replay; null: none", "s", above=True, optional=True
    ),
    Setting("confirm", ValueType.DICT, None, "measure the leaders again (for noisy replays)", optional=True),
)


def _by_name(settings: tuple[Setting, ...]) -> Mapping[str, Setting]:
    return MappingProxyType({setting.name: setting for setting in settings})


#: Block (dotted) -> its settings by name.
SETTINGS: Final[Mapping[str, Mapping[str, Setting]]] = MappingProxyType(
    {
        "search_space": MappingProxyType({name: knob.setting for name, knob in KNOBS.items()}),
        "workload": _by_name(_WORKLOAD),
        "goal": _by_name(_GOAL),
        "goal.sla": _by_name(_SLA),
        "sweep": _by_name(_SWEEP),
        "sweep.confirm": _by_name(_CONFIRM),
    }
)


def default(block: str, name: str) -> Any:
    """The default of a setting, in YAML terms. Raises KeyError."""
    return SETTINGS[block][name].default
