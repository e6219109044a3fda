"""Study dimensions, keys and replay arguments of fixed configurations, as they were when the golden file was
written: a run that was begun then resumes, and equal seeds suggest what they did.

``python tests/branches/test_golden_space.py`` writes the file; a difference in it is a broken old run.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest
from branch_fakes import Fake, config, plan

from spica.branches import Branch
from spica.deployment.sample import Sample
from spica.evaluate.engine_args import engine_args
from spica.evaluate.planner_config import planner_config
from spica.optimize.protocol import FloatParameter, Parameter, Value
from spica.planner.presets import PlannerTarget
from spica.trial import Sla

GOLDEN = Path(__file__).parent / "golden" / "space.json"
POINTS = 150

OFFLOAD = {
    "num_g2_blocks": 20_000,
    "kv_bytes_per_token": 65536,
    "bandwidth_g1_to_g2_gbps": 20.0,
    "offload_batch_size": 4,
}
PARETO: dict[str, object] = {
    "target": "pareto",
    "pareto_objectives": ["throughput_per_gpu", "throughput_per_user"],
}
GOODPUT: dict[str, object] = {"target": "goodput", "sla": {"ttft_ms": 2000, "itl_ms": 30}}
CUSTOM = {"max_num_fpm_samples": 50, "fpm_sample_bucket_size": 25}
EVERYTHING = {"deployment_mode": ["disagg", "agg"], "backend": ["vllm", "sglang", "trtllm"]}

#: Name -> search space, load, goal; whether the model has experts.
CASES: dict[str, tuple[dict[str, object], dict[str, object], dict[str, object] | None, bool]] = {
    "defaults": (
        {"deployment_mode": ["disagg", "agg"], "router_mode": ["kv_router", "round_robin"]},
        {"concurrency": 64},
        None,
        False,
    ),
    "round robin": ({**EVERYTHING, "agg_block_size": 32}, {"request_rate": 4.0}, None, False),
    "offload": ({**OFFLOAD, "router_mode": ["kv_router"]}, {"concurrency": 64}, None, False),
    "scaling": (
        {
            "planner_scaling_policy": ["disabled", "load_180_5", "hybrid_180_5"],
            "planner_fpm_sampling": ["default", CUSTOM],
            "min_gpu_budget": 2,
            "min_endpoint": 1,
            "startup_time": 30,
        },
        {"request_rate": 4.0},
        GOODPUT,
        False,
    ),
    "pareto": (
        {**EVERYTHING, "router_mode": ["kv_router"], "router_temperature": [0.2, 0.5, 1.0]},
        {"kv_load_ratio": [0.1, 0.9]},
        PARETO,
        True,
    ),
    "pinned": (
        {
            "parallel_configs": [{"tp": 2, "replicas": 2}],
            "agg_max_num_seqs": [512],
            "agg_max_num_batched_tokens": [8192],
            "agg_enable_prefix_caching": False,
            "agg_gpu_memory_utilization": 0.8,
            "context_length": 20_000,
            "aic_nextn": 2,
        },
        {"concurrency": 64},
        None,
        False,
    ),
}


def _parameter(parameter: Parameter) -> dict[str, object]:
    fields = asdict(parameter)
    return {"type": type(parameter).__name__, **fields, "influence": parameter.influence.value}


def _value(parameter: Parameter, draw: random.Random) -> Value:
    if isinstance(parameter, FloatParameter):
        return draw.uniform(parameter.low, parameter.high)
    choices: tuple[Value, ...] = parameter.choices
    return draw.choice(choices)


def _draw(branch: Branch, draw: random.Random) -> dict[str, Value]:
    return {p.name: _value(p, draw) for p in branch.parameters}


def _replay(sample: Sample) -> dict[str, object]:
    """What the replay is told of a candidate, but for the router, which is an object of the runtime."""
    target: PlannerTarget = "sla" if sample.planner.scaling else "throughput"
    return {
        **{role: engine_args(sample, role) for role, _ in sample.parallel.groups},
        "planner": planner_config(sample, target, Sla(ttft_ms=2000.0, itl_ms=30.0)),
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _branch(branch: Branch) -> dict[str, object]:
    draw = random.Random(7)
    points = [branch.centre, *(_draw(branch, draw) for _ in range(POINTS if branch.parameters else 0))]
    found = [branch.decode(point) for point in points]
    return {
        "parameters": [_parameter(p) for p in branch.parameters],
        "centre": {
            "key": found[0].key,
            "config": found[0].sample.config(),
            "replay": _replay(found[0].sample),
        },
        "keys": _digest([f.key for f in found]),
        "requested": _digest([f.requested.key() for f in found]),
        "identities": _digest([branch.identity(p) for p in points]),
        "canonical points": _digest([branch.canonical(p) for p in points]),
        "replays": _digest([_replay(f.sample) for f in found]),
    }


def space_of(name: str) -> dict[str, object]:
    """What the golden file holds of one case."""
    space, load, goal, moe = CASES[name]
    made = plan(config(space, load, goal), Fake(moe=moe))
    found: dict[str, object] = {branch.mode: _branch(branch) for branch in made.branches}
    # As the file holds it: tuples are lists there.
    return json.loads(json.dumps(found | {"dropped": [str(d) for d in made.dropped]}))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CASES)
def test_the_space_is_what_it_was(name: str) -> None:
    assert space_of(name) == json.loads(GOLDEN.read_text())[name]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: space_of(name) for name in CASES}, indent=1) + "\n")
