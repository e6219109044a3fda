"""The ``search_space`` block: the knobs to explore and the pinned context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import create_model

from spica.config.block import Block, Converted, Rule, is_composite
from spica.config.shapes import parallel_config
from spica.deployment.sample import Backend, RouterMode
from spica.deployment.shapes import AggConfig, DisaggConfig, Mode, ParallelConfig
from spica.errors import Problem
from spica.knobs.knob import KnobKind
from spica.knobs.setting import Setting, ValueType
from spica.knobs.table import KNOBS, default
from spica.planner.predictors import PredictorSpec, predictor_problems, resolve_predictor
from spica.planner.presets import (
    PLANNER_PRESETS,
    FpmSampling,
    LoadSensitivity,
    ScalingPolicy,
    composite_problems,
    resolve_composite,
)


def _budget(space: SearchSpace) -> Iterator[Problem]:
    low = space.min_gpu_budget
    if low is not None and low > space.gpu_budget:
        yield Problem(
            f"{low} is more than gpu_budget ({space.gpu_budget})",
            "search_space.min_gpu_budget",
            allowed=f"1 to {space.gpu_budget}",
        )


def _pins(space: SearchSpace) -> Iterator[Problem]:
    if not space.parallel_configs:
        return
    if len(space.deployment_mode) != 1:
        modes = ", ".join(space.deployment_mode)
        yield Problem(
            f"parallel_configs needs exactly one mode, not {modes}",
            "search_space.deployment_mode",
            remedy=f"write deployment_mode: [{space.parallel_configs[0].mode}]",
        )
        return
    (mode,) = space.deployment_mode
    for index, config in enumerate(space.parallel_configs):
        key = f"search_space.parallel_configs[{index}]"
        if config.mode != mode:
            form = "{prefill: {...}, decode: {...}}" if mode == "disagg" else "{tp: N, ...}"
            message = f"this is {config.mode} config, but deployment_mode is [{mode}]"
            yield Problem(
                message.replace("is agg", "is an agg").replace("is disagg", "is a disagg"), key, allowed=form
            )
        elif config.used_gpus > space.gpu_budget:
            yield Problem(
                f"it uses {config.used_gpus} GPUs, more than gpu_budget ({space.gpu_budget})",
                key,
                remedy="raise gpu_budget, or take fewer replicas",
            )


def _offload(space: SearchSpace) -> Iterator[Problem]:
    if space.num_g2_blocks > 0 and space.kv_bytes_per_token is None:
        yield Problem(
            f"it is required because num_g2_blocks is {space.num_g2_blocks}",
            "search_space.kv_bytes_per_token",
            allowed=KNOBS["kv_bytes_per_token"].setting.allowed,
            remedy="offload cannot be replayed without the size of a token's KV cache",
        )


_ADMISSION = tuple(name for name, knob in KNOBS.items() if knob.group.startswith("Admission"))


def _admission(space: SearchSpace) -> Iterator[Problem]:
    if "kv_router" not in space.router_mode:
        return
    for name in _ADMISSION:
        if getattr(space, name) != default(name):
            yield Problem(
                "admission control cannot be replayed with kv_router",
                f"search_space.{name}",
                remedy="leave it out, or write router_mode: [round_robin]",
            )


#: The type of one value of a setting.
_PLAIN: Final[Mapping[ValueType, type]] = MappingProxyType(
    {ValueType.STR: str, ValueType.INT: int, ValueType.FLOAT: float, ValueType.BOOL: bool}
)
_ENTRIES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "parallel_configs": AggConfig | DisaggConfig,
        "planner_scaling_policy": ScalingPolicy,
        "planner_fpm_sampling": FpmSampling,
        "planner_load_sensitivity": LoadSensitivity,
        "load_predictor_candidates": PredictorSpec,
    }
)


def _field(setting: Setting) -> tuple[Any, Any]:
    """Type and default of a field, as pydantic takes them."""
    one: Any = _ENTRIES.get(setting.name) or _PLAIN[setting.type]
    if setting.is_list:
        one = tuple[one, ...]
    elif setting.optional:
        one = one | None
    return one, ... if setting.required else setting.default


if TYPE_CHECKING:
    _Fields = Block
else:
    _Fields = create_model(
        "_Fields", __base__=Block, **{name: _field(knob.setting) for name, knob in KNOBS.items()}
    )


class SearchSpace(_Fields):
    """Every knob of ``spica.knobs.table``, decoded: presets are typed policies, pins are typed configs.

    The fields are made from the table. Those that code reads by name are named below once more, for its
    types; the others are read by ``value``. List knobs are tuples without duplicates. Units and meanings are
    in ``docs/knobs.md``. Raises ConfigError.
    """

    path: ClassVar[str] = "search_space"
    stand_ins = {"model_name": "?", "hardware_sku": "?"}  # noqa: RUF012 - a ClassVar of the base
    rules = (
        Rule(("gpu_budget", "min_gpu_budget"), _budget),
        Rule(("parallel_configs", "deployment_mode", "gpu_budget"), _pins),
        Rule(("num_g2_blocks", "kv_bytes_per_token"), _offload),
        Rule(("router_mode", *_ADMISSION), _admission),
    )

    if TYPE_CHECKING:
        deployment_mode: tuple[Mode, ...]
        backend: tuple[Backend, ...]
        model_name: str
        hardware_sku: str
        gpu_budget: int
        min_gpu_budget: int | None
        context_length: int | None
        aic_nextn: int | None
        parallel_configs: tuple[ParallelConfig, ...]
        num_g2_blocks: int
        kv_bytes_per_token: int | None
        router_mode: tuple[RouterMode, ...]
        planner_scaling_policy: tuple[ScalingPolicy, ...]
        planner_fpm_sampling: tuple[FpmSampling, ...]
        planner_load_sensitivity: tuple[LoadSensitivity, ...]
        load_predictor_candidates: tuple[PredictorSpec, ...]

    def value(self, name: str) -> Any:
        """The value of a knob: a tuple for a list knob. Raises KeyError."""
        return getattr(self, KNOBS[name].name)

    @classmethod
    def convert(cls, setting: Setting, value: object, key: str, notices: list[Problem]) -> Converted | None:
        name = setting.name
        if name == "decode_enable_prefix_caching" and value is True:
            notices.append(Problem("prefix caching is always off on decode workers; set to false", key))
            return False, ()
        if KNOBS[name].kind is KnobKind.PARALLEL:
            return parallel_config(value, key)
        if not is_composite(setting):
            return None
        if name in PLANNER_PRESETS:
            problems = composite_problems(name, value, key)
            return (value if problems else resolve_composite(name, value)), problems
        if isinstance(value, PredictorSpec):
            return value, ()
        problems = predictor_problems(value, key)
        if problems or not isinstance(value, (str, dict)):
            return value, problems
        return resolve_predictor(value), ()

    @property
    def scales(self) -> bool:
        """Whether any scaling policy runs a planner loop."""
        return any(not policy.is_static for policy in self.planner_scaling_policy)
