"""Where the performance tables are, and which of their keys a model asks for."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from spica.errors import NoPerfDatabase, Problem
from spica.facts.models import model_facts

#: Values by the name of the field they stand in, over all operations of a model.
OperationValues = dict[str, frozenset[str | int]]


def systems_root() -> Path | None:
    """The folder of performance tables in use, or None when more than one is configured."""
    from aisimulate_core.sdk import perf_database

    roots = perf_database.get_systems_paths()
    return Path(roots[0]) if len(roots) == 1 else None


@lru_cache(maxsize=64)
def operation_values(model: str, sku: str, backend: str, backend_version: str) -> OperationValues:
    """Every string and integer in the operations of ``model``, by field name (``quant_mode``, ``head_size``,
    ``window_size``, ``num_experts``, ...), for a one-GPU worker.

    The fields that name a table's exact keys (number formats, head size, window, expert sizes) do not depend
    on how a worker is split. Raises NoPerfDatabase when the estimator cannot build the model.
    """
    from aisimulate_core.sdk.config_builders import build_model_config
    from aisimulate_core.sdk.engine import build_engine_spec_json
    from aisimulate_core.sdk.models import get_model

    facts = model_facts(model)
    whole = build_model_config(tp_size=1, pp_size=1, attention_dp_size=1, moe_tp_size=1, moe_ep_size=1)
    try:
        built = get_model(facts.path, whole, backend)
        text: str = build_engine_spec_json(
            built,
            model_path=facts.path,
            system=sku,
            backend=backend,
            backend_version=backend_version,
            kv_block_size=None,
            systems_path=None,
            nextn=0,
        )
    except (ValueError, NotImplementedError, KeyError, RuntimeError) as error:
        message = f"{backend} cannot run '{model}': {error}"
        raise NoPerfDatabase(Problem(message=message, key="search_space.model_name")) from error
    found: dict[str, set[str | int]] = {}
    _collect(json.loads(text), found)
    return {name: frozenset(values) for name, values in found.items()}


def _collect(node: object, found: dict[str, set[str | int]]) -> None:
    if isinstance(node, dict):
        for name, value in node.items():
            if isinstance(value, str | int) and not isinstance(value, bool):
                found.setdefault(name, set()).add(value)
            else:
                _collect(value, found)
    elif isinstance(node, list):
        for item in node:
            _collect(item, found)
