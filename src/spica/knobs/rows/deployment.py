"""Rows of the deployment as a whole, and of host offload."""

from __future__ import annotations

from typing import Final

from spica.knobs.bindings import (
    EngineArg,
    Files,
    Flag,
    Flags,
    Holder,
    Inert,
    Pinned,
    PinnedAs,
    Place,
    PlannerArg,
    Repin,
    Replay,
    ShapeArgs,
    Structure,
)
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.rows.forms import TIMING, listed, pinned
from spica.knobs.setting import Setting, ValueType, real, text, whole
from spica.knobs.when import When

_D: Final = "Deployment"
BY_HAND: Final = Inert("how a backend is told depends on its version; add it by hand")


def _deployment(
    setting: Setting, title: str, replay: Replay, files: Files, repin: Repin | None = None
) -> Knob:
    return pinned(Holder.DEPLOYMENT, setting, title, _D, replay, files, repin)


DEPLOYMENT: Final = (
    Knob(
        listed(
            "deployment_mode",
            ValueType.STR,
            ("disagg", "agg"),
            "prefill and decode on separate workers, or on the same ones; one study per mode",
        ),
        "Deployment mode",
        KnobKind.ATOMIC,
        _D,
        Inert("a parallel config is of one mode"),
        Inert("one study per mode"),
        Structure("one pool of workers, or one for prefill and one for decode"),
        Structure("one worker component, or two"),
        Pinned(),
    ),
    Knob(
        listed("backend", ValueType.STR, ("vllm", "sglang", "trtllm"), "serving engine", default=("vllm",)),
        "Serving engine",
        KnobKind.ATOMIC,
        _D,
        (Place(Holder.SAMPLE, "backend"),),
        Inert("a dimension of the pool of shapes: each backend has its own"),
        EngineArg(("engine.backend", f"{TIMING}.backend")),
        Structure("`python3 -m dynamo.<backend>`, and its image"),
        Pinned(),
    ),
    _deployment(
        text("model_name", "Hugging Face id, or the path of a local model", required=True),
        "Model",
        EngineArg((f"{TIMING}.model",)),
        Flags(Flag("--model"), Flag("--model-path"), Flag("--model")),
        Inert("a local folder stays as the configuration spells it"),
    ),
    _deployment(
        text("hardware_sku", "GPU system, one that has performance data", required=True),
        "GPU system",
        EngineArg((f"{TIMING}.system",)),
        Inert("the cluster has these GPUs or has not"),
    ),
    _deployment(
        whole("gpu_budget", 32, 1, 4096, "most GPUs a candidate may use", "GPUs"),
        "GPU budget",
        PlannerArg("max_gpu_budget"),
        PlannerArg("max_gpu_budget"),
    ),
    _deployment(
        whole("min_gpu_budget", None, 1, 4096, "fewest GPUs a candidate may use", "GPUs"),
        "Least GPUs",
        PlannerArg("min_gpu_budget"),
        PlannerArg("min_gpu_budget"),
    ),
    _deployment(
        whole("min_endpoint", None, 1, 4096, "fewest workers a planner may scale to", "workers"),
        "Least workers",
        PlannerArg("min_endpoint"),
        PlannerArg("min_endpoint"),
    ),
    _deployment(
        whole("context_length", None, 1, 2**24, "longest sequence; null: the model's maximum", "tokens"),
        "Context length",
        Inert("by way of max_seq_len, which follows from it"),
        Flags(Flag("--max-model-len"), Flag("--context-length"), Flag("--max-seq-len")),
    ),
    _deployment(
        real("startup_time", None, 0, 86_400, "time a new worker takes to start (planner-scaled)", "s"),
        "Start-up time",
        EngineArg(("startup_time",)),
        Inert("it is measured, not set"),
    ),
    _deployment(
        whole("aic_nextn", None, 0, 16, "speculative-decode (MTP) depth", "tokens"),
        "Speculation depth",
        EngineArg(("engine.aic_nextn", f"{TIMING}.nextn"), off=(None, 0)),
        BY_HAND,
    ),
    Knob(
        Setting(
            "parallel_configs",
            ValueType.DICT,
            (),
            "shapes and replica counts to choose from; empty: every feasible one",
            is_list=True,
        ),
        "Parallel configs",
        KnobKind.PARALLEL,
        _D,
        (Place(Holder.SAMPLE, "parallel"),),
        Inert("searched by its features: GPUs, worker sizes, the way work is split"),
        ShapeArgs(),
        ShapeArgs(),
        PinnedAs("the shape and replicas of each role"),
    ),
)


def _offload(setting: Setting, title: str, path: str | Inert, off: tuple[int | None, ...] = (None,)) -> Knob:
    # A disaggregated decode worker has no second tier.
    replay = path if isinstance(path, Inert) else EngineArg((path,), off=off, roles=("agg", "prefill"))
    when = When.ALWAYS if setting.name == "num_g2_blocks" else When.OFFLOAD
    group = "KV manager (host offload)"
    return pinned(Holder.KV_MANAGER, setting, title, group, replay, BY_HAND, when=when)


_HOST: Final = "engine.native_host_offload"
OFFLOAD: Final = (
    _offload(
        whole("num_g2_blocks", 0, 0, 10**9, "host blocks; 0 turns offload off", "blocks"),
        "Host blocks",
        f"{_HOST}.num_host_blocks",
        off=(0,),
    ),
    _offload(
        whole("kv_bytes_per_token", None, 1, 2**30, "KV-cache bytes per token; needed by offload", "bytes"),
        "KV bytes",
        "engine.kv_cache_bytes_per_token",
    ),
    _offload(
        real("bandwidth_g1_to_g2_gbps", None, 0, 1e6, "device-to-host bandwidth", "GB/s", above=True),
        "Bandwidth to the host",
        f"{_HOST}.d2h_bandwidth_gbps",
    ),
    _offload(
        real("bandwidth_g2_to_g1_gbps", None, 0, 1e6, "host-to-device bandwidth", "GB/s", above=True),
        "Bandwidth from the host",
        f"{_HOST}.h2d_bandwidth_gbps",
    ),
    _offload(
        whole("offload_batch_size", None, 1, 10**9, "blocks per offload transfer", "blocks"),
        "Offload batch",
        Inert(
            "the replay moves blocks as they come, in no batches; the measured numbers do not depend on it"
        ),
    ),
)
