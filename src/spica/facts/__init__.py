"""What is known about models, SKUs and backends, and how much KV cache a worker has room for.

The only importer of ``aisimulate_core``, which is imported inside the functions that need it: importing this
package costs nothing.
"""

import logging

from spica.facts.attention import prefill_attention_format
from spica.facts.catalog import Catalog, HardwareRow, ModelRow, catalog
from spica.facts.expert_format import expert_format
from spica.facts.feasibility import FeasibilityQuery, ShapeFeasibility, feasible_shape_tokens
from spica.facts.hardware import (
    BACKENDS,
    SkuFacts,
    known_skus,
    resolve_backend_version,
    sku_facts,
    supported_backends,
)
from spica.facts.kv import KvCapacity, KvQuery, MemoryBreakdown, estimator_available, kv_capacity
from spica.facts.models import ModelFacts, known_models, model_facts, model_weight_bytes

__all__ = [
    "BACKENDS",
    "Catalog",
    "FeasibilityQuery",
    "HardwareRow",
    "KvCapacity",
    "KvQuery",
    "MemoryBreakdown",
    "ModelFacts",
    "ModelRow",
    "ShapeFeasibility",
    "SkuFacts",
    "catalog",
    "estimator_available",
    "expert_format",
    "feasible_shape_tokens",
    "known_models",
    "known_skus",
    "kv_capacity",
    "model_facts",
    "model_weight_bytes",
    "prefill_attention_format",
    "resolve_backend_version",
    "sku_facts",
    "supported_backends",
]

# What of the SDK's remarks matters to a user is said as a warning of the sweep, once; without a handler of
# its own the SDK would print the rest to the terminal.
logging.getLogger("aisimulate_core").addHandler(logging.NullHandler())
