"""The structure of ``parallel_configs`` entries. Which backend can run one is decided with the branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spica.config.values import check_scalar, shown
from spica.deployment.shapes import AggConfig, DisaggConfig, ParallelConfig, ParallelShape, WorkerGroup
from spica.errors import Problem, nearest
from spica.knobs.setting import whole

_DIMS: Final = ("tp", "attention_dp", "moe_tp", "moe_ep", "pp")
#: The keys of one role's workers.
DIMENSIONS: Final = {
    **{dim: whole(dim, 1, 1, 4096, "ranks") for dim in _DIMS},
    "replicas": whole("replicas", 1, 1, 4096, "workers"),
}
ROLES: Final = ("prefill", "decode")
_AGG_FORM: Final = "{tp: N, attention_dp, moe_tp, moe_ep, pp, replicas}"
_DISAGG_FORM: Final = "{prefill: {tp: N, ...}, decode: {tp: N, ...}}"


def parallel_config(entry: object, key: str) -> tuple[ParallelConfig | None, tuple[Problem, ...]]:
    """One entry as a typed config, or everything that is wrong with it. ``key`` is its dotted path."""
    if isinstance(entry, (AggConfig, DisaggConfig)):
        return entry, ()
    allowed = f"agg: {_AGG_FORM}; disagg: {_DISAGG_FORM}"
    if not isinstance(entry, Mapping):
        return None, (Problem(f"{shown(entry)} is not a dict", key, allowed=allowed),)
    if not any(role in entry for role in ROLES):
        workers, problems = _workers(entry, key)
        return (AggConfig(workers) if workers else None), problems
    problems = tuple(
        Problem(
            "no such key beside prefill and decode",
            f"{key}.{name}",
            allowed=_DISAGG_FORM,
            suggestion=nearest(str(name), ROLES) or "",
        )
        for name in entry
        if name not in ROLES
    )
    groups: list[WorkerGroup] = []
    for role in ROLES:
        if role not in entry:
            problems += (Problem(f"the dict lacks {role}", key, allowed=_DISAGG_FORM),)
            continue
        workers, wrong = _workers(entry[role], f"{key}.{role}")
        problems += wrong
        if workers is not None:
            groups.append(workers)
    return (DisaggConfig(*groups) if len(groups) == 2 and not problems else None), problems


def _workers(entry: object, key: str) -> tuple[WorkerGroup | None, tuple[Problem, ...]]:
    if not isinstance(entry, Mapping):
        return None, (Problem(f"{shown(entry)} is not a dict", key, allowed=_AGG_FORM),)
    problems = [
        Problem(
            "no such dimension",
            f"{key}.{name}",
            allowed=", ".join(DIMENSIONS),
            suggestion=_near_dimension(str(name)),
        )
        for name in entry
        if name not in DIMENSIONS
    ]
    if "tp" not in entry:
        problems.append(Problem("the dict lacks tp", key, allowed=_AGG_FORM))
    values: dict[str, int] = {}
    for name, setting in DIMENSIONS.items():
        value, problem = check_scalar(setting, entry.get(name, 1), f"{key}.{name}")
        if problem:
            problems.append(problem)
        elif isinstance(value, int):
            values[name] = value
    if problems:
        return None, tuple(problems)
    replicas = values.pop("replicas")
    return WorkerGroup(ParallelShape(**values), replicas), ()


def _near_dimension(name: str) -> str:
    common = {"dp": "attention_dp", "ep": "moe_ep", "expert_parallel": "moe_ep", "tensor_parallel": "tp"}
    return common.get(name) or nearest(name, DIMENSIONS) or ""


def config_entry(config: ParallelConfig) -> dict[str, object]:
    """The YAML form of a typed config. Inverse of :func:`parallel_config`."""
    if isinstance(config, AggConfig):
        return dict(_group_entry(config.workers))
    return {"prefill": _group_entry(config.prefill), "decode": _group_entry(config.decode)}


def _group_entry(group: WorkerGroup) -> dict[str, int]:
    return {**{dim: getattr(group.shape, dim) for dim in _DIMS}, "replicas": group.replicas}
