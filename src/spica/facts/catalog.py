"""The rows behind ``spica models`` and ``spica hardware``."""

from __future__ import annotations

from dataclasses import dataclass

from spica.facts.hardware import known_skus, sku_facts, supported_backends
from spica.facts.models import known_models, model_facts


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A shipped model; ``context_length`` in tokens."""

    name: str
    architecture: str
    is_moe: bool
    context_length: int
    quantization: str | None


@dataclass(frozen=True, slots=True)
class HardwareRow:
    """A SKU; ``vram_bytes`` per GPU; ``backends`` are (name, version) pairs, empty when there is no data."""

    name: str
    gpus_per_node: int
    vram_bytes: int
    backends: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Catalog:
    models: tuple[ModelRow, ...]
    hardware: tuple[HardwareRow, ...]


def catalog() -> Catalog:
    """Everything shipped, both lists sorted by name."""
    return Catalog(models=model_rows(), hardware=hardware_rows())


def model_rows() -> tuple[ModelRow, ...]:
    facts = (model_facts(name) for name in known_models())
    return tuple(ModelRow(f.name, f.architecture, f.is_moe, f.context_length, f.quantization) for f in facts)


def hardware_rows() -> tuple[HardwareRow, ...]:
    skus = (sku_facts(name) for name in known_skus())
    return tuple(
        HardwareRow(s.name, s.gpus_per_node, s.vram_bytes, tuple(supported_backends(s.name).items()))
        for s in skus
    )
