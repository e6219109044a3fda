"""The KV router's configuration for a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spica.deployment.sample import Sample, Scalar
from spica.knobs.bindings import RouterArg
from spica.knobs.table import KNOBS

if TYPE_CHECKING:
    from dynamo.llm import KvRouterConfig


def router_arguments(sample: Sample) -> dict[str, Scalar]:
    """The arguments of ``KvRouterConfig``. What is not told has the router's default; cache-hit weights have
    nothing to weigh while host offload is off."""
    return {
        knob.replay.name: value
        for knob in KNOBS.values()
        if isinstance(knob.replay, RouterArg) and (value := knob.value(sample)) != knob.unset
    }


def router_config(sample: Sample) -> KvRouterConfig:
    """The runtime's own object, for a candidate under the KV router."""
    from dynamo.llm import KvRouterConfig

    return KvRouterConfig(**router_arguments(sample))
