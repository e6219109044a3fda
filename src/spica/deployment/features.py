"""What the optimizer sees of a parallel config: GPU shares, worker sizes and the way work is split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spica.deployment.shapes import ParallelConfig, Role, WorkerGroup
from spica.optimize.protocol import Value

FeatureKind = Literal["ratio", "size", "mode"]
_ATTENTION_MODES = ("tp", "dp")
_FFN_MODES = ("ep", "tp")


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature. ``modes`` in the order in which the first present one is the default; ``default`` is a
    ratio's preferred value, before clipping to the pool.
    """

    name: str
    kind: FeatureKind
    role: Role | None = None
    modes: tuple[str, ...] = ()
    default: float = math.nan

    def transform(self, value: float) -> float:
        """The scale on which distances are taken: log2 for sizes in GPUs, linear for ratios."""
        return math.log2(value) if self.kind == "size" else value


def features_of(configs: Sequence[ParallelConfig]) -> tuple[Feature, ...]:
    """The features of a pool of one mode, in a fixed order; FFN modes only when it has MoE shapes."""
    roles = [role for role, _ in configs[0].groups]
    has_moe = any(g.shape.moe_tp > 1 or g.shape.moe_ep > 1 for c in configs for _, g in c.groups)
    features = [Feature("used_gpu_ratio", "ratio", default=1.0)]
    if len(roles) > 1:
        features.append(Feature("prefill_gpu_share", "ratio", default=0.5))
    features += [Feature(f"{role}_num_gpus_per_engine_target", "size", role) for role in roles]
    for role in roles:
        features.append(Feature(f"{role}_attention_mode", "mode", role, _ATTENTION_MODES))
        if has_moe:
            features.append(Feature(f"{role}_ffn_mode", "mode", role, _FFN_MODES))
    return tuple(features)


def encode_features(
    features: Sequence[Feature], config: ParallelConfig, gpu_budget: int
) -> tuple[Value, ...]:
    """The value of each feature for ``config``. A one-GPU shape counts as attention ``tp`` and FFN ``tp``."""
    groups = dict(config.groups)
    return tuple(_value(feature, config, groups, gpu_budget) for feature in features)


def _value(
    feature: Feature, config: ParallelConfig, groups: dict[Role, WorkerGroup], gpu_budget: int
) -> Value:
    if feature.role is None:
        if feature.name == "used_gpu_ratio":
            return config.used_gpus / gpu_budget
        return groups["prefill"].total_gpus / config.used_gpus
    shape = groups[feature.role].shape
    if feature.kind == "size":
        return float(shape.gpus_per_worker)
    return shape.attention_mode if feature.name.endswith("attention_mode") else shape.ffn_mode


def geometric_centre(sizes: Sequence[float]) -> float:
    """The size closest in log space to sqrt(smallest x largest); of two equally close, the smaller.

    ``{1, 2, 4, 8, 16}`` gives 4.
    """
    # With c^2 = lo * hi, |log s - log c| is half of |log(s^2 / (lo * hi))|; comparing ratios of whole numbers
    # instead of logarithms keeps ties exact.
    product = min(sizes) * max(sizes)

    def distance(size: float) -> float:
        square = size * size
        return max(square, product) / min(square, product)

    return min(sizes, key=lambda size: (distance(size), size))
