"""How prefill and decode take turns: where the knobs act on the real replay, and where they are left out."""

from __future__ import annotations

from typing import Any

import pytest
from branch_fakes import Fake, all_points, config, plan

import spica.evaluate.replay
from spica.deployment.sample import Backend, Deployment, EngineSettings, KvManager, PlannerSettings, Sample
from spica.deployment.shapes import AggConfig, ParallelShape, WorkerGroup
from spica.evaluate.engine_args import EngineArgs, engine_args
from spica.evaluate.protocol import ReplayPlan
from spica.evaluate.replay import run_replay
from spica.traffic.replayed import SyntheticTraffic
from spica.trial import Metrics

VERSIONS: dict[Backend, str] = {"vllm": "0.24.0", "sglang": "0.5.14"}
RANKS = ParallelShape(tp=1, attention_dp=2, moe_ep=2)
ONE = ParallelShape(tp=2, moe_ep=2)
TRAFFIC = SyntheticTraffic(isl=2000, osl=40, num_requests=32, concurrency=16)


def sample(backend: Backend, shape: ParallelShape, **more: int) -> Sample:
    return Sample(
        backend=backend,
        backend_version=VERSIONS[backend],
        deployment=Deployment("Qwen/Qwen3-30B-A3B", "h200_sxm", 8, max_seq_len=40_960),
        kv_manager=KvManager(),
        parallel=AggConfig(WorkerGroup(shape, 1)),
        engines=(("agg", EngineSettings(8192, 256, more=tuple(more.items()))),),
        router_mode="round_robin",
        router=None,
        planner=PlannerSettings("disabled"),
    )


def measure(wanted: Sample) -> Metrics:
    result = run_replay(ReplayPlan(wanted, TRAFFIC, "throughput"))
    assert result.metrics is not None, result.reason
    return result.metrics


@pytest.mark.real
@pytest.mark.parametrize(
    ("backend", "name"), [("vllm", "prefill_schedule_interval"), ("sglang", "prefill_decode_interval")]
)
def test_an_interval_acts(backend: Backend, name: str) -> None:
    assert measure(sample(backend, RANKS)) != measure(sample(backend, RANKS, **{name: 4}))


@pytest.mark.real
def test_without_attention_ranks_the_schedule_interval_cannot_act(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to the engine against the row, it changes nothing: so it is left out of such a candidate."""
    plain = measure(sample("vllm", ONE))

    def told(wanted: Sample, role: Any, **more: Any) -> EngineArgs:
        args = engine_args(wanted, role, **more)
        engine = args["engine"]
        assert isinstance(engine, dict)
        engine["prefill_schedule_interval"] = 4
        return args

    monkeypatch.setattr(spica.evaluate.replay, "engine_args", told)
    assert measure(sample("vllm", ONE)) == plain


def test_a_candidate_has_only_what_its_workers_have() -> None:
    """vLLM's interval on workers with attention ranks, SGLang's on its own, neither on the others."""
    space = {
        "backend": ["vllm", "sglang", "trtllm"],
        "agg_prefill_schedule_interval": [4],
        "agg_prefill_decode_interval": [2],
        "agg_max_num_seqs": [256],
        "agg_max_num_batched_tokens": [8192],
    }
    (branch,) = plan(config(space), Fake(moe=True)).branches
    seen = set()
    for point in all_points(branch, floats=3):
        made = branch.decode(point).sample
        ((_, group),) = made.parallel.groups
        dp = group.shape.attention_dp > 1
        flat = made.config()
        vllm, sglang = flat.get("agg_prefill_schedule_interval"), flat.get("agg_prefill_decode_interval")
        assert vllm == (4 if made.backend == "vllm" and dp else None)
        assert sglang == (2 if made.backend == "sglang" else None)
        seen.add((made.backend, dp))
    assert {("vllm", True), ("vllm", False), ("sglang", True), ("trtllm", True)} <= seen
