"""The planner has its model of the engines, in replay and files alike, and what it did is counted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from evaluation_samples import LOAD, MOE, VERSIONS, Make

from spica.deployment.sample import Backend, Sample
from spica.deployment.shapes import ParallelShape
from spica.evaluate.engine_args import WORKER_TYPES, engine_args
from spica.evaluate.planner_config import planner_config
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.replay import run_replay
from spica.evaluate.ticks import ACTED, HELD, NOT_READY, tick_counts
from spica.planner.presets import PlannerTarget
from spica.ship.manifests import DeployContext, planner_settings
from spica.traffic.replayed import SyntheticTraffic
from spica.trial import Metrics, Sla

SLA = Sla(ttft_ms=1500.0, itl_ms=30.0)
CONTEXT = DeployContext("1.6.1", 8, "sla", ttft_ms=1500.0, itl_ms=30.0)
EXPERTS = Make(model=MOE, shape=ParallelShape(tp=1, attention_dp=2, moe_tp=1, moe_ep=2))
#: 10 requests a second are more than the three workers carry.
OVERLOAD = SyntheticTraffic(isl=3000, osl=150, num_requests=160, request_rate=10.0)


def _informed(sample: Sample, *, informed: bool = True, budget: int = 16) -> Sample:
    return replace(
        sample,
        deployment=replace(sample.deployment, gpu_budget=budget),
        planner=replace(sample.planner, engine_model=informed),
    )


@pytest.mark.real
@pytest.mark.parametrize("backend", sorted(VERSIONS))
@pytest.mark.parametrize("disagg", [False, True])
@pytest.mark.parametrize("make", [Make(), EXPERTS], ids=["dense", "experts"])
def test_each_role_has_the_timing_of_its_engine(make: Make, backend: Backend, disagg: bool) -> None:
    """The planner's own parser takes it, its model can be built, and the files have the same."""
    from dynamo.planner.config.planner_config import PlannerConfig

    plain = replace(make, backend=backend, disagg=disagg, planner=LOAD).sample()
    assert "ais_perf_model" not in (planner_config(plain, "sla", SLA) or {})
    assert "ais_perf_model" not in (planner_settings(plain.config(), CONTEXT) or {})
    sample = _informed(plain)
    fields = planner_config(sample, "sla", SLA)
    assert fields is not None
    planner = PlannerConfig.from_config_arg(json.dumps(fields))
    assert planner.ais_perf_model is not None
    roles = planner.ais_perf_model.roles
    assert set(roles) == ({"prefill", "decode"} if disagg else {"aggregated"})
    for role, group in sample.parallel.groups:
        told = roles[WORKER_TYPES[role]]
        assert (told["backend"], told["backend_version"]) == (backend, VERSIONS[backend])
        assert (told["tp"], told["attention_dp"]) == (group.shape.tp, group.shape.attention_dp)
        engine: Any = engine_args(sample, role)["engine"]
        given = fields["ais_perf_model"]["roles"][WORKER_TYPES[role]]  # type: ignore[call-overload, index]
        assert given == engine["timing_model"]["config"]
    assert planner_settings(sample.config(), CONTEXT)["ais_perf_model"] == fields["ais_perf_model"]  # type: ignore[index]


@pytest.mark.real
@pytest.mark.parametrize(
    "backend",
    ["vllm", pytest.param("sglang", marks=pytest.mark.slow), pytest.param("trtllm", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("disagg", [False, True])
def test_the_model_estimates_before_the_first_pass(backend: Backend, disagg: bool) -> None:
    from dynamo.planner.config.planner_config import PlannerConfig

    make = Make(backend=backend, disagg=disagg, planner=LOAD, sku="h100_sxm")
    fields = planner_config(_informed(make.sample()), "sla", SLA)
    assert _sources(PlannerConfig.model_validate(fields)) == {"aic"}


def _sources(planner: Any) -> set[str]:
    """Where the planner's model of each role has its estimates from before it has seen a single pass."""
    from dynamo.planner.core.perf_model.ais_adapter import PlannerEnginePerfModel
    from dynamo.planner.core.types import EngineCapabilities

    caps = EngineCapabilities(max_num_batched_tokens=8192, max_num_seqs=256, max_kv_tokens=300_000)
    found = set()
    for role in planner.ais_perf_model.roles:
        model = PlannerEnginePerfModel(worker_type=role, config=planner, capabilities=caps)
        assert model.has_sufficient_data(), role
        found.add(str(model._engine_diagnostics()["source"]))
    return found


def _measured(sample: Sample, target: PlannerTarget = "sla") -> Metrics:
    result = run_replay(ReplayPlan(sample, OVERLOAD, target, SLA))
    assert result.metrics is not None, result.reason
    return result.metrics


def _ticks(metrics: Metrics) -> tuple[float, float, float]:
    acted, held, not_ready = (metrics.summary[name] for name in (ACTED, HELD, NOT_READY))
    assert acted + held + not_ready == metrics.planner_total_ticks
    return acted, held, not_ready


@pytest.mark.real
def test_a_planner_with_its_model_scales_at_the_first_tick() -> None:
    make = Make(replicas=3, planner=LOAD, sku="h100_sxm")
    blind = _measured(_informed(make.sample(), informed=False))
    seeing = _measured(_informed(make.sample()))
    assert _ticks(blind) == (0, 0, blind.planner_total_ticks)
    assert [count.decode for count in blind.replicas] == [3]
    assert _ticks(seeing)[2] == 0
    workers = [count.decode for count in seeing.replicas]
    # One more every 5 seconds.
    assert workers == [3, 4, 5, 6]
    assert [round(count.at_s) for count in seeing.replicas] == [0, 5, 10, 15]
    assert _ticks(seeing)[0] == 3
    good = [m.summary["goodput_output_throughput_tok_s"] for m in (blind, seeing)]
    assert good[1] > 3 * good[0]


@pytest.mark.real
@pytest.mark.slow
def test_by_thresholds_the_model_changes_nothing() -> None:
    """Why only candidates that scale against an SLA have it."""
    make = Make(replicas=3, planner=LOAD, sku="h100_sxm")
    plain = _measured(_informed(make.sample(), informed=False), "throughput")
    assert _measured(_informed(make.sample()), "throughput") == plain


def _tick(target: int | None, **reasons: str) -> dict[str, Any]:
    return {
        "runtime_decision": {"target_prefill": None, "target_decode": target},
        "effects": {"diagnostics": {f"{name}_decision_reason": text for name, text in reasons.items()}},
    }


def test_ticks_are_counted_once() -> None:
    ticks = [
        _tick(4, load="scale_up"),
        _tick(None, load="no_change", throughput="disabled"),
        _tick(None, load="no_change"),
        _tick(None, load="disabled", throughput="model_not_ready"),
        _tick(None, load="insufficient_data"),
        _tick(None, load="disabled"),
        _tick(None, load="Budget guard: hold"),
    ]
    found = tick_counts(ticks, by_estimates=False)
    assert found == {
        ACTED: 1,
        HELD: 4,
        NOT_READY: 2,
        f"{HELD}_no_change": 2,
        f"{HELD}_nothing_due": 1,
        f"{HELD}_budget_guard_hold": 1,
    }
    # None of them has an estimate: against an SLA "no change" is then no decision.
    assert tick_counts(ticks, by_estimates=True)[NOT_READY] == 4
    assert found[ACTED] + found[HELD] + found[NOT_READY] == len(ticks)
