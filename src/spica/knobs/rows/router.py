"""Rows of the router, and of admission control."""

from __future__ import annotations

from typing import Final

from spica.knobs.bindings import (
    CallArg,
    FrontendEnv,
    Holder,
    Inert,
    Pinned,
    Place,
    RouterArg,
    Search,
)
from spica.knobs.knob import Knob, KnobKind
from spica.knobs.rows.forms import FIXED, listed
from spica.knobs.setting import Setting, ValueType, flag, real, whole
from spica.knobs.when import When
from spica.optimize.protocol import Influence

_SCALES: Final = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_NO_CHOICE: Final = ("router_without_a_choice",)


def _weight(setting: Setting, title: str, env: str, start: float, when: When = When.KV_ROUTER) -> Knob:
    """A weight of the KV router; ``start`` is what the router itself starts from."""
    return Knob(
        setting,
        title,
        KnobKind.ATOMIC,
        "Router",
        (Place(Holder.ROUTER, setting.name),),
        Search(Influence.WEIGHT, start=start),
        RouterArg(setting.name),
        FrontendEnv(env),
        Pinned(),
        when,
        _NO_CHOICE if when is When.KV_ROUTER else (),
    )


ROUTER: Final = (
    Knob(
        listed("router_mode", ValueType.STR, ("kv_router", "round_robin"), "how requests find a worker"),
        "Router",
        KnobKind.ATOMIC,
        "Router",
        (Place(Holder.SAMPLE, "router_mode"),),
        Search(Influence.TUNING),
        CallArg("router_mode"),
        FrontendEnv("DYN_ROUTER_MODE"),
        Pinned(),
        rules=_NO_CHOICE,
    ),
    _weight(
        listed(
            "overlap_score_credit",
            ValueType.FLOAT,
            (0.0, 0.5, 1.0),
            "credit for cached prefix blocks",
            limits=(0, 1000),
        ),
        "Overlap credit",
        "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT",
        1.0,
    ),
    _weight(
        listed(
            "prefill_load_scale",
            ValueType.FLOAT,
            _SCALES,
            "weight of a worker's prefill load",
            limits=(0, 1e6),
        ),
        "Prefill load scale",
        "DYN_ROUTER_PREFILL_LOAD_SCALE",
        1.0,
    ),
    _weight(
        listed(
            "router_temperature",
            ValueType.FLOAT,
            (0.0, 0.2, 0.5, 1.0),
            "randomness of the choice; 0: best one",
            limits=(0, 1000),
        ),
        "Router temperature",
        "DYN_ROUTER_TEMPERATURE",
        0.0,
    ),
    _weight(
        listed(
            "host_cache_hit_weight",
            ValueType.FLOAT,
            (0.5, 0.75, 1.0),
            "weight of blocks cached on the host",
            limits=(0, 1),
        ),
        "Host hit weight",
        "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT",
        0.75,
        When.KV_ROUTER_OFFLOAD,
    ),
    _weight(
        listed(
            "disk_cache_hit_weight",
            ValueType.FLOAT,
            (0.0, 0.25, 0.5),
            "weight of blocks cached on disk",
            limits=(0, 1),
        ),
        "Disk hit weight",
        "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT",
        0.25,
        When.KV_ROUTER_OFFLOAD,
    ),
)


def _admission(setting: Setting, title: str) -> Knob:
    reserved = Inert("reserved: the replay has no admission control; refused with kv_router")
    return Knob(
        setting,
        title,
        KnobKind.PINNED,
        "Admission control (reserved; refused with kv_router)",
        reserved,
        FIXED,
        reserved,
        reserved,
        Inert("carried over from the configuration"),
        When.KV_ROUTER,
    )


ADMISSION: Final = (
    _admission(
        whole(
            "active_decode_blocks_threshold",
            None,
            1,
            10**9,
            "active decode blocks of a busy worker",
            "blocks",
        ),
        "Busy decode blocks",
    ),
    _admission(
        whole(
            "active_prefill_tokens_threshold",
            None,
            1,
            10**9,
            "active prefill tokens of a busy worker",
            "tokens",
        ),
        "Busy prefill tokens",
    ),
    _admission(
        real(
            "active_prefill_tokens_threshold_frac", None, 0, 1e3, "the same, as a share of a pass", above=True
        ),
        "Busy prefill share",
    ),
    _admission(flag("no_admission_control", False, "admit every request"), "No admission control"),
)
