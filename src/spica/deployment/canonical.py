"""Candidates in other clothes: settings that provably cannot act are given one standing value.

Two samples that canonicalize to the same sample replay bit for bit alike (under the KV router as far as a
replay repeats itself at all), so one replay measures both. The canonical sample is the one that is keyed,
measured and shown. Every rule is proven on the real replay in ``tests/branches/test_canonical_real.py``;
what is not proven is not a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from spica.deployment.sample import EngineSettings, KvRouterSettings, Sample
from spica.deployment.shapes import Role
from spica.planner.presets import FpmSampling, LoadSensitivity, PlannerTarget
from spica.traffic.replayed import SyntheticTraffic, TraceTraffic, Traffic


@dataclass(frozen=True, slots=True)
class Menu:
    """What a branch may choose from, as far as rules need it; a canonical value is always on the menu.

    ``max_num_seqs`` per role, ascending. ``router``, ``fpm`` and
    ``sensitivity`` are the entries that stand for all others where they cannot act. ``kv_load_range`` is
    the (low, high) of a searched ``kv_load_ratio``. ``kv_tokens(sample, role)`` is the KV capacity per
    rank; None when it is not known, and rules that could move it then do not apply.
    """

    max_num_seqs: tuple[tuple[Role, tuple[int, ...]], ...]
    round_robin: bool
    router: KvRouterSettings | None
    fpm: FpmSampling
    sensitivity: LoadSensitivity
    planner_target: PlannerTarget
    kv_load_range: tuple[float, float] | None
    kv_tokens: Callable[[Sample, Role], int | None]


@dataclass(frozen=True, slots=True)
class Canonical:
    """The canonical sample, and the names of the rules that changed something on the way to it."""

    sample: Sample
    rules: tuple[str, ...]


def canonicalize(sample: Sample, traffic: Traffic, menu: Menu) -> Canonical:
    """``sample`` with every setting that cannot act under ``traffic`` at its standing value. Idempotent."""
    applied: list[str] = []
    for rule in RULES:
        changed = rule(sample, traffic, menu)
        if changed != sample:
            applied.append(rule.__name__)
            sample = changed
    return Canonical(sample, tuple(applied))


def most_in_flight(traffic: Traffic) -> int:
    """No more requests than this are in the system at any time.

    A session sends one turn at a time, so sessions in flight are requests in flight; an open loop can at
    worst pile up everything it sends.
    """
    match traffic:
        case SyntheticTraffic():
            cap = traffic.concurrency
        case TraceTraffic():
            cap = traffic.replay_concurrency
    return traffic.num_requests if cap is None else min(cap, traffic.num_requests)


def reuses_nothing(traffic: Traffic) -> bool:
    """No prompt shares a prefix with another one."""
    if not isinstance(traffic, SyntheticTraffic):
        return False
    return traffic.shared_prefix_ratio == 0 and traffic.turns_per_session == 1


def seqs_beyond_the_load(sample: Sample, traffic: Traffic, menu: Menu) -> Sample:
    """``max_num_seqs`` of a rank cannot bind when it is at least the number of requests in flight in all.

    The scheduler compares it with the sequences it runs, which are never more. Its other effect, on the
    memory left for KV, is excluded by comparing the capacities.
    """
    if not _plain(sample):
        return sample
    bound = most_in_flight(traffic)
    for role, _ in sample.engines:
        sample = _lower_seqs(sample, role, bound, menu)
    return sample


def prefill_seqs_beyond_a_step(sample: Sample, traffic: Traffic, menu: Menu) -> Sample:
    """``max_num_seqs`` of a prefill worker cannot bind when one step's token budget admits fewer prompts.

    Prompts are served first come, first served, and nothing decodes there: a step of T tokens holds at most
    the rest of one prompt, whole prompts of isl tokens, and the start of another one, which is
    ``(T - 2) // isl + 2`` sequences. Needs prompts that cost isl tokens each: no prefix reuse.
    """
    if not _plain(sample) or sample.mode != "disagg" or sample.deployment.aic_nextn:
        return sample
    if not isinstance(traffic, SyntheticTraffic) or not reuses_nothing(traffic):
        return sample
    budget = sample.engine("prefill").max_num_batched_tokens
    return _lower_seqs(sample, "prefill", max(0, budget - 2) // traffic.isl + 2, menu)


def router_without_a_choice(sample: Sample, traffic: Traffic, menu: Menu) -> Sample:
    """With one rank per role every router sends everything there: the weights and the mode cannot act."""
    if sample.router_mode != "kv_router" or not _plain(sample):
        return sample
    if any(g.replicas > 1 or g.shape.attention_dp > 1 for _, g in sample.parallel.groups):
        return sample
    if menu.round_robin:
        return replace(sample, router_mode="round_robin", router=None)
    return replace(sample, router=menu.router)


def ratio_of_the_same_load(sample: Sample, traffic: Traffic, menu: Menu) -> Sample:
    """KV-load ratios that give the same concurrency give the same replay: the ratio itself goes no further.

    The standing one is concurrency / capacity, or the end of the searched range next to it.
    """
    load = sample.kv_load
    if load is None or menu.kv_load_range is None:
        return sample
    low, high = menu.kv_load_range
    ratio = load.concurrency / load.concurrency_capacity
    if math.floor(ratio * load.concurrency_capacity) < load.concurrency:
        ratio = math.nextafter(ratio, math.inf)
    ratio = min(max(ratio, low), high)
    if max(1, math.floor(ratio * load.concurrency_capacity)) != load.concurrency:
        return sample
    return replace(sample, kv_load=replace(load, kv_load_ratio=ratio))


def planner_by_thresholds(sample: Sample, traffic: Traffic, menu: Menu) -> Sample:
    """Without an SLA the planner scales on fixed thresholds of queue and KV use.

    It then fits no performance model, so how measurements are sampled and how carefully it shrinks cannot
    act.
    """
    scaling = sample.planner.scaling
    if scaling is None or menu.planner_target == "sla" or sample.planner.enable_throughput_scaling:
        return sample
    standing = replace(
        scaling,
        max_num_fpm_samples=menu.fpm.max_num_fpm_samples,
        fpm_sample_bucket_size=menu.fpm.fpm_sample_bucket_size,
        load_scaling_down_sensitivity=menu.sensitivity.load_scaling_down_sensitivity,
        load_min_observations=menu.sensitivity.load_min_observations,
    )
    return replace(sample, planner=replace(sample.planner, scaling=standing))


Rule = Callable[[Sample, Traffic, Menu], Sample]

RULES: Final[tuple[Rule, ...]] = (
    seqs_beyond_the_load,
    prefill_seqs_beyond_a_step,
    router_without_a_choice,
    planner_by_thresholds,
    ratio_of_the_same_load,
)


def _plain(sample: Sample) -> bool:
    """The static deployments on which the rules were proven: without host offload, and with engines that are
    told nothing besides their own fields."""
    carried = any(engine.more for _, engine in sample.engines)
    return sample.planner.scaling is None and sample.kv_manager.num_g2_blocks == 0 and not carried


def _lower_seqs(sample: Sample, role: Role, bound: int, menu: Menu) -> Sample:
    """``max_num_seqs`` of ``role`` lowered to the smallest choice of at least ``bound``, if that changes no
    KV capacity."""
    engine = sample.engine(role)
    enough = [n for n in dict(menu.max_num_seqs)[role] if bound <= n < engine.max_num_seqs]
    if not enough:
        return sample
    return _if_same_kv(sample, role, replace(engine, max_num_seqs=enough[0]), menu)


def _if_same_kv(sample: Sample, role: Role, engine: EngineSettings, menu: Menu) -> Sample:
    """``sample`` with another engine for ``role``, if that leaves its KV capacity as it is and known."""
    engines = tuple((r, engine if r == role else e) for r, e in sample.engines)
    changed = replace(sample, engines=engines)
    before, after = menu.kv_tokens(sample, role), menu.kv_tokens(changed, role)
    return changed if before is not None and before == after else sample
