"""The KV router's configuration for a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spica.deployment.sample import KvRouterSettings

if TYPE_CHECKING:
    from dynamo.llm import KvRouterConfig


def router_config(settings: KvRouterSettings) -> KvRouterConfig:
    """The runtime's own object. A cache-hit weight of None leaves the router's default (0.75 host, 0.25
    disk); it has nothing to weigh while host offload is off."""
    from dynamo.llm import KvRouterConfig

    weights = {
        name: value
        for name, value in (
            ("host_cache_hit_weight", settings.host_cache_hit_weight),
            ("disk_cache_hit_weight", settings.disk_cache_hit_weight),
        )
        if value is not None
    }
    return KvRouterConfig(
        overlap_score_credit=settings.overlap_score_credit,
        prefill_load_scale=settings.prefill_load_scale,
        router_temperature=settings.router_temperature,
        **weights,
    )
