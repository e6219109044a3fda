"""What a sample holds besides the knobs."""

from __future__ import annotations

from typing import Final

from spica.knobs.bindings import (
    EngineArg,
    Holder,
    Inert,
    PinnedAs,
    Place,
    Structure,
)
from spica.knobs.knob import Derived
from spica.knobs.rows.forms import TIMING

_MACHINE: Final = Inert("it follows from the model, the traffic and the installed data")
_LOAD: Final = Inert("a load is told to the replay with the traffic")
_NO_FILE: Final = Inert("it is no setting of a worker")

#: What a sample holds besides the knobs.
DERIVED: Final = (
    Derived(
        "backend_version",
        (Place(Holder.SAMPLE, "backend_version"),),
        EngineArg((f"{TIMING}.backend_version",)),
        Inert("the image of the measured ai-dynamo has its version"),
        _MACHINE,
    ),
    Derived(
        "max_seq_len",
        (Place(Holder.DEPLOYMENT, "max_seq_len"),),
        # The planner does not scale prefill workers without it.
        EngineArg(("engine.max_model_len",)),
        Inert("the files have context_length, and else the engine takes the model's maximum itself"),
        _MACHINE,
        Inert("context_length and the model say it, and these are keyed"),
    ),
    Derived(
        "fmha_quant_mode",
        (Place(Holder.SAMPLE, "fmha_quant_mode"),),
        EngineArg((f"{TIMING}.fmha_quant_mode",)),
        Inert("only the timing data lacks the format, the engine has it"),
        _MACHINE,
    ),
    Derived(
        "moe_quant_mode",
        (Place(Holder.SAMPLE, "moe_quant_mode"),),
        EngineArg((f"{TIMING}.moe_quant_mode",)),
        Inert("the engine chooses it by itself"),
        _MACHINE,
    ),
    Derived("concurrency", (Place(Holder.SAMPLE, "concurrency"),), _LOAD, _NO_FILE, _MACHINE),
    Derived(
        "kv_load",
        (Place(Holder.SAMPLE, "kv_load"),),
        _LOAD,
        _NO_FILE,
        PinnedAs("workload.kv_load_ratio"),
    ),
    Derived(
        "policy",
        (Place(Holder.PLANNER, "policy"),),
        Inert("a name; the loops themselves are told"),
        Inert("a name; the loops themselves are told"),
        PinnedAs("planner_scaling_policy"),
    ),
    Derived(
        "planner_engine_model",
        (Place(Holder.PLANNER, "engine_model"),),
        Structure("`ais_perf_model` of the planner: the timing of each role's engine"),
        Structure("the same, in the planner's file"),
        Inert("every candidate that scales against an SLA has it"),
    ),
)
