"""Rows of the engine of each role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spica.deployment.shapes import Role
from spica.knobs.bindings import (
    EngineArg,
    Files,
    Flag,
    Flags,
    Holder,
    Inert,
    Override,
    Pinned,
    Place,
    Replay,
    Search,
    Switch,
)
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.rows.forms import FIXED, listed
from spica.knobs.setting import Setting, ValueType, flag, real, whole
from spica.knobs.when import When
from spica.optimize.protocol import Influence

_GROUPS: Final[Mapping[Role, str]] = {
    "prefill": "Prefill engine",
    "decode": "Decode engine",
    "agg": "Aggregated engine",
}


def _row(
    role: Role,
    setting: Setting,
    title: str,
    replay: Replay,
    files: Files,
    search: Search | Inert = FIXED,
    rules: tuple[str, ...] = (),
    unset: int | None = None,
) -> Knob:
    """A setting of the engine of ``role``, at a place of its name without the role."""
    kind = KnobKind.PINNED if search is FIXED else KnobKind.ATOMIC
    lives = (Place(Holder.ENGINE, setting.name.removeprefix(f"{role}_")),)
    when = When.AGG if role == "agg" else When.DISAGG
    return Knob(
        setting, title, kind, _GROUPS[role], lives, search, replay, files, Pinned(), when, rules, role, unset
    )  # fmt: skip


def _engine(role: Role, tokens: tuple[int, ...], seqs: tuple[int, ...], caching: Setting) -> tuple[Knob, ...]:
    return (*_batching(role, tokens, seqs), *_memory(role, caching))


def _batching(role: Role, tokens: tuple[int, ...], seqs: tuple[int, ...]) -> tuple[Knob, ...]:
    batching = Search(Influence.TUNING, log=True)
    step = "engine.sglang.chunked_prefill_size", "engine.sglang.max_prefill_tokens"
    beyond = ("seqs_beyond_the_load", *(("prefill_seqs_beyond_a_step",) if role == "prefill" else ()))
    return (
        _row(
            role,
            listed(
                f"{role}_max_num_batched_tokens",
                ValueType.INT,
                tokens,
                "most tokens in one pass",
                "tokens",
                limits=(1, 2**20),
            ),
            "Tokens of a pass",
            # SGLang has its own names for the tokens of a pass; without them it fills passes to 8192.
            EngineArg(("engine.max_num_batched_tokens",), own=(("sglang", step),)),
            Flags(
                Flag("--max-num-batched-tokens"),
                Flag("--chunked-prefill-size", shared=True),
                Flag("--max-num-tokens"),
            ),
            batching,
        ),
        _row(
            role,
            listed(
                f"{role}_max_num_seqs",
                ValueType.INT,
                seqs,
                "most sequences in one pass",
                "sequences",
                limits=(1, 2**20),
            ),
            "Sequences of a pass",
            EngineArg(("engine.max_num_seqs",)),
            Flags(
                Flag("--max-num-seqs"), Flag("--max-running-requests", shared=True), Flag("--max-batch-size")
            ),
            batching,
            beyond,
        ),
    )


def _memory(role: Role, caching: Setting) -> tuple[Knob, ...]:
    share = "share of GPU memory the engine may use"
    return (
        _row(
            role,
            whole(f"{role}_block_size", 64, 1, 4096, "size of a KV block", "tokens"),
            "KV block",
            EngineArg(("engine.block_size",)),
            Flags(Flag("--block-size"), Flag("--page-size"), Flag("--kv-block-size")),
        ),
        _row(
            role,
            real(f"{role}_gpu_memory_utilization", 0.9, 0, 1, share, above=True),
            "Memory share",
            # Of all memory for vLLM and SGLang, of what the weights leave free for TensorRT-LLM.
            EngineArg(
                own=(
                    ("vllm", ("gpu_memory_utilization",)),
                    ("sglang", ("mem_fraction_static",)),
                    ("trtllm", ("free_gpu_memory_fraction",)),
                )
            ),
            Flags(
                Flag("--gpu-memory-utilization"),
                Flag("--mem-fraction-static"),
                Flag("--free-gpu-memory-fraction"),
            ),
        ),
        _row(
            role,
            caching,
            "Prefix caching",
            EngineArg(("engine.enable_prefix_caching",)),
            Flags(
                Switch("--enable-prefix-caching", "--no-enable-prefix-caching"),
                Switch(None, "--disable-radix-cache"),
                Override("kv_cache_config.enable_block_reuse", True),
            ),
        ),
    )


ENGINES: Final = (
    *_engine(
        "prefill",
        (8192, 16384, 32768),
        (1, 2, 4, 8, 16, 32, 64, 128, 256),
        flag("prefill_enable_prefix_caching", True, "reuse the KV cache of shared prefixes"),
    ),
    *_engine(
        "decode",
        (8192,),
        (256, 512, 1024),
        flag("decode_enable_prefix_caching", False, "always off: forced off, with a warning, when true"),
    ),
    *_engine(
        "agg",
        (8192, 16384, 32768),
        (256, 512, 1024),
        flag("agg_enable_prefix_caching", True, "reuse the KV cache of shared prefixes"),
    ),
)

_VLLM_ONLY: Final = Inert("vLLM alone has it")
_SGLANG_ONLY: Final = Inert("SGLang alone has it")

#: How prefill and decode take turns; each backend has its own way, with its own default.
TURNS: Final = (
    _row(
        "agg",
        listed(
            "agg_prefill_schedule_interval",
            ValueType.INT,
            (1, 2, 4, 8, 16),
            "passes per pass that may start a prefill (vLLM with attention data parallelism)",
            "passes",
            default=(1,),
            limits=(1, 1000),
        ),
        "Prefill interval",
        EngineArg(("engine.prefill_schedule_interval",), backends=("vllm",), ranks=True),
        Flags(Flag("--prefill-schedule-interval"), _VLLM_ONLY, _VLLM_ONLY),
        Search(Influence.TUNING, log=True),
        unset=1,
    ),
    _row(
        "agg",
        listed(
            "agg_prefill_decode_interval",
            ValueType.INT,
            (0, 1, 2, 4, 8, 16),
            "decode passes between two passes of prefill (SGLang)",
            "passes",
            default=(0,),
            limits=(0, 1000),
        ),
        "Decode passes between prefills",
        EngineArg(("engine.prefill_decode_interval",), backends=("sglang",)),
        Flags(_SGLANG_ONLY, Flag("--prefill-decode-interval"), _SGLANG_ONLY),
        Search(Influence.TUNING, start=0),
        unset=0,
    ),
)
