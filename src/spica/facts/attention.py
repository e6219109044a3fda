"""The number format of prefill attention, where the performance data lacks the model's own."""

from __future__ import annotations

from functools import lru_cache

from spica.errors import NoPerfDatabase, Problem


@lru_cache(maxsize=64)
def prefill_attention_format(model: str, sku: str, backend: str, backend_version: str) -> str | None:
    """The format to time prefill attention in, or None when the model's own has data (or does not matter).

    A checkpoint may call for FP8 attention where only bfloat16 was measured; the rule is the SDK's own
    (``resolve_context_fmha_by_data``), which the replay does not apply by itself. bfloat16 is the slower, so
    numbers are conservative where the engine runs FP8. ``model`` is a ``ModelFacts.path``. Raises
    NoPerfDatabase when the tables cannot be loaded.
    """
    from aisimulate_core.sdk import perf_database
    from aisimulate_core.sdk.config_builders import build_model_config
    from aisimulate_core.sdk.models import resolve_context_fmha_by_data
    from aisimulate_core.sdk.models.helpers import _get_model_info, _infer_quant_modes_from_raw_config

    # Loading the tables takes seconds; only an FP8 attention can need another format.
    info = _get_model_info(model)
    inferred = _infer_quant_modes_from_raw_config(info.get("raw_config", {}), info.get("architecture"))
    if getattr(inferred.get("fmha_quant_mode"), "name", None) != "fp8":
        return None
    database = perf_database.get_database(sku, backend, backend_version)
    if database is None:
        message = f"the performance tables of {backend} {backend_version} on {sku} cannot be loaded"
        raise NoPerfDatabase(Problem(message=message, key="search_space.backend"))
    config = build_model_config(tp_size=1, pp_size=1, attention_dp_size=1, moe_tp_size=1, moe_ep_size=1)
    resolve_context_fmha_by_data(config, model, database, backend, is_context_role=True)
    chosen = config.fmha_quant_mode
    return None if chosen is None else str(chosen.name)
