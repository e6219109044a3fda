"""The number format in which an engine runs a checkpoint's experts, where it is not that of the file."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from spica.errors import NoPerfDatabase, Problem

#: A checkpoint of MXFP4 weights, as the SDK reads it from the file, and as Blackwell's kernels run it.
_WEIGHTS: Final = "w4a16_mxfp4"
_KERNELS: Final = "w4a8_mxfp4_mxfp8"

#: Engines that quantize the activations of MXFP4 experts to MXFP8 on Blackwell unless told otherwise.
#: The measurements in bench/README.md show it of TensorRT-LLM.
_QUANTIZE: Final = frozenset({"trtllm"})


@lru_cache(maxsize=64)
def expert_format(model: str, sku: str, backend: str, backend_version: str) -> str | None:
    """The format to time experts in, or None when the checkpoint's own stands (or there are no experts).

    The SDK infers the format from the checkpoint alone. ``model`` is a ``ModelFacts.path``. A format is
    chosen only where the performance data has this model's experts in it. Raises NoPerfDatabase when the
    tables cannot be loaded.
    """
    from aisimulate_core.sdk import common, perf_database
    from aisimulate_core.sdk.models.helpers import _get_model_info, _infer_quant_modes_from_raw_config

    if backend not in _QUANTIZE or not perf_database.is_blackwell_system(sku):
        return None
    info = _get_model_info(model)
    inferred = _infer_quant_modes_from_raw_config(info.get("raw_config", {}), info.get("architecture"))
    if getattr(inferred.get("moe_quant_mode"), "name", None) != _WEIGHTS:
        return None
    database = perf_database.get_database(sku, backend, backend_version)
    if database is None:
        message = f"the performance tables of {backend} {backend_version} on {sku} cannot be loaded"
        raise NoPerfDatabase(Problem(message=message, key="search_space.backend"))
    sizes = (info["hidden_size"], info["moe_inter_size"], info["topk"], info["num_experts"])
    covered = database.legacy_moe_compute_coverage(*sizes, common.MoEQuantMode[_KERNELS])
    return _KERNELS if covered else None
