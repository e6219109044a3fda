"""Versions of what decides a result."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata
from typing import Final

#: The components a result depends on.
STACK: Final = ("ai-dynamo", "ai-dynamo-runtime", "aisimulate", "google-vizier", "jax")


def stack_versions() -> dict[str, str]:
    """Spica's version and those of the components, by name; ``not installed`` where one is missing."""
    return versions_of(("spica", *STACK))


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """The versions of installed distributions by name; ``not installed`` where one is missing."""
    return {name: _version(name) for name in names}


def all_versions() -> dict[str, str]:
    """``stack_versions`` and that of Python, which decides no result."""
    versions = stack_versions()
    return {"spica": versions.pop("spica"), "python": platform.python_version()} | versions


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
