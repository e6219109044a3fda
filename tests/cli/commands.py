"""Running ``spica`` in this process, as the installed program would."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from spica.cli import main

SMALL = """\
search_space:
  model_name: Qwen/Qwen3-32B
  hardware_sku: h200_sxm
  gpu_budget: 8
  deployment_mode: [agg]
  parallel_configs: [{tp: 2, replicas: 4}]
  agg_max_num_batched_tokens: [8192]
  agg_max_num_seqs: [256]
  router_mode: [round_robin]
  planner_scaling_policy: [disabled]
workload: {isl: 3000, osl: 300, concurrency: 64, num_request_ratio: 4}
sweep: {max_rounds: 1, parallel_evals: 1}
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Spica:
    """``spica("check", path)`` -> exit code, stdout, stderr."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Done:
        self._capsys.readouterr()
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        captured = self._capsys.readouterr()
        return Done(code, captured.out, captured.err)
