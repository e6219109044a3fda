"""The parallel configs that a branch chooses from."""

from __future__ import annotations

from dataclasses import dataclass

from spica.deployment.shapes import ParallelConfig


@dataclass(frozen=True, slots=True)
class ConfigPool:
    """The union over backends: sorted distinct configs, and per config the backends it is valid on."""

    configs: tuple[ParallelConfig, ...]
    backends: tuple[frozenset[str], ...]

    def for_backend(self, backend: str) -> tuple[ParallelConfig, ...]:
        return tuple(c for c, valid in zip(self.configs, self.backends, strict=True) if backend in valid)

    def __len__(self) -> int:
        return len(self.configs)
