"""The format of experts reaches the sample, its key, the replay, and the warnings that `check` shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from branch_fakes import Fake, config

from spica.branches import BranchPlan, build_branches
from spica.evaluate.engine_args import engine_args

PAIRS = frozenset({("trtllm", "agg"), ("vllm", "agg")})


def _plan(format_of: dict[str, str]) -> BranchPlan:
    space: dict[str, object] = {"deployment_mode": ["agg"], "backend": ["vllm", "trtllm"]}
    components = replace(
        Fake(moe=True).components, expert_format=lambda model, sku, backend, version: format_of.get(backend)
    )
    return build_branches(config(space), runner_pairs=PAIRS, components=components)


def _timing(plan: BranchPlan, backend: str) -> tuple[str, Any]:
    (branch,) = plan.branches
    sample = branch.decode({**branch.centre, "backend": backend}).sample
    engine: Any = engine_args(sample, "agg")["engine"]
    return sample.key(), engine["timing_model"]["config"].get("moe_quant_mode")


def test_the_format_is_that_of_its_backend_alone() -> None:
    plain, told = _plan({}), _plan({"trtllm": "w4a8_mxfp4_mxfp8"})
    assert _timing(plain, "trtllm")[1] is None
    assert _timing(told, "trtllm")[1] == "w4a8_mxfp4_mxfp8"
    assert _timing(plain, "trtllm")[0] != _timing(told, "trtllm")[0]
    # The other backend is the candidate it was.
    assert _timing(plain, "vllm") == _timing(told, "vllm")
    (note,) = set(told.warnings) - set(plain.warnings)
    assert note.startswith("trtllm: the experts are timed in w4a8_mxfp4_mxfp8")
