"""The root of a configuration, and the rules between its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationInfo, model_validator

from spica.config.block import Block, BlockError, unknown_keys
from spica.config.goal import Goal
from spica.config.search_space import SearchSpace
from spica.config.sweep import SweepOptions
from spica.config.values import shown
from spica.config.workload import LOADS, Workload
from spica.errors import ConfigError, Problem
from spica.planner.filters import filter_scaling_policies

#: The load of a synthetic Pareto goal that sets none: the whole KV capacity is searched.
DEFAULT_PARETO_LOAD: Final = (0.0, 1.0)

_BLOCKS: Final[Mapping[str, type[Block]]] = {
    "search_space": SearchSpace,
    "workload": Workload,
    "goal": Goal,
    "sweep": SweepOptions,
}
_REQUIRED: Final = ("search_space", "workload")


class SmartSearchConfig(BaseModel):
    """What to search, under which traffic, for which goal, and how. Raises ConfigError with every problem."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    search_space: SearchSpace
    workload: Workload
    goal: Goal = Goal()
    sweep: SweepOptions = SweepOptions()

    @model_validator(mode="wrap")
    @classmethod
    def _checked(
        cls, value: Any, handler: ModelWrapValidatorHandler[SmartSearchConfig], info: ValidationInfo
    ) -> SmartSearchConfig:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            message = f"{shown(value)} is not a configuration"
            raise ConfigError(Problem(message, allowed=f"the blocks {', '.join(_BLOCKS)}"))
        problems = list(unknown_keys(value, _BLOCKS, ""))
        blocks: dict[str, Block] = {}
        unsound: set[str] = set()
        for name, block_type in _BLOCKS.items():
            try:
                blocks[name] = _block(name, block_type, value, info)
            except BlockError as error:
                problems.extend(error.problems)
                blocks[name] = error.block
                unsound.update(f"{name}.{field}" for field in error.unsound)
        problems.extend(_between(blocks, unsound))
        if problems:
            raise ConfigError(problems)
        return handler(_with_default_load(blocks))


def _block(name: str, block_type: type[Block], given: Mapping[str, object], info: ValidationInfo) -> Block:
    if given.get(name) is None:
        if name in _REQUIRED:
            problem = Problem("this block is required", name)
            raise BlockError([problem], block_type.bare(), frozenset({"*"}))
        return block_type()
    return block_type.model_validate(given[name], context=info.context)


def _between(blocks: Mapping[str, Block], unsound: set[str]) -> Iterator[Problem]:
    """The rules that need two blocks, over what is sound in them."""
    space, workload, goal = blocks["search_space"], blocks["workload"], blocks["goal"]
    assert isinstance(space, SearchSpace)
    assert isinstance(workload, Workload)
    assert isinstance(goal, Goal)

    def sound(*fields: str) -> bool:
        wholes = {f"{field.split('.')[0]}.*" for field in fields}
        return not unsound.intersection({*fields, *wholes})

    if sound("goal.target", "workload.trace_path", *(f"workload.{load}" for load in LOADS)):
        yield from _load_and_goal(workload, goal)
    if sound("search_space.context_length", "workload.isl", "workload.osl", "workload.trace_path"):
        yield from _lengths(space, workload)
    if sound("search_space.planner_scaling_policy", "goal.target", "goal.sla"):
        yield from _policies(space, goal)


def _load_and_goal(workload: Workload, goal: Goal) -> Iterator[Problem]:
    if not workload.has_load and not goal.is_pareto:
        yield Problem(
            "no traffic is set",
            "workload",
            allowed=f"trace_path, or isl, osl, num_request_ratio and one of {', '.join(LOADS)}",
        )
    if workload.kv_load_range is not None and not goal.is_pareto:
        yield Problem(
            f"a range of loads needs a pareto goal, not {goal.target}",
            "workload.kv_load_ratio",
            remedy="write one ratio, or set goal.target: pareto",
        )


def _policies(space: SearchSpace, goal: Goal) -> Iterator[Problem]:
    try:
        filter_scaling_policies(
            space.planner_scaling_policy,
            allow_throughput=goal.allows_throughput_scaling,
            allow_load=goal.allows_load_scaling,
        )
    except ConfigError as error:
        yield from error.problems


def _lengths(space: SearchSpace, workload: Workload) -> Iterator[Problem]:
    limit = space.context_length
    if limit is None or workload.is_trace or workload.isl is None or workload.osl is None:
        return
    if workload.isl + workload.osl > limit:
        yield Problem(
            f"a request has isl {workload.isl} + osl {workload.osl} = {workload.isl + workload.osl} tokens, "
            f"more than context_length ({limit})",
            "workload.isl",
            remedy="shorten the requests, or raise search_space.context_length",
        )


def _with_default_load(blocks: Mapping[str, Block]) -> dict[str, Block]:
    workload, goal = blocks["workload"], blocks["goal"]
    assert isinstance(workload, Workload)
    assert isinstance(goal, Goal)
    if goal.is_pareto and not workload.has_load:
        workload = workload.model_copy(update={"kv_load_ratio": DEFAULT_PARETO_LOAD})
    return {**blocks, "workload": workload}
