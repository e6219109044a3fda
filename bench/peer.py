"""The vendor's own sweeper and ours on the same problem, one after the other, as whole processes.

Run: ``python bench/peer.py [--trials 64] [--skip-bayesian]``; writes ``bench/results/peer.json``. The problem
is aggregated and disaggregated together. Wall time includes start-up on both sides. Unique candidates are
counted from each side's own output: for the peer, evaluations that were not cache hits; for us, replays.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

BENCH = Path(__file__).parent
PEER_YAML = BENCH / "peers" / "qwen3-32b-both.yaml"
OURS = "spica-qwen3-32b-both.yaml"


@dataclass(frozen=True)
class Run:
    """One sweep: wall seconds of the whole process, unique candidates measured, best score (tok/s/GPU)."""

    name: str
    wall_seconds: float
    candidates: int
    best: float

    @property
    def seconds_per_candidate(self) -> float:
        return self.wall_seconds / max(1, self.candidates)


def run_peer(algorithm: str, trials: int, folder: Path) -> Run:
    out = folder / algorithm
    command = [
        str(Path(sys.executable).parent / "aisimulate"),
        *("recommend", "-c", str(PEER_YAML), "--output-dir", str(out)),
        *("--set", f"optimizer.algorithm={algorithm}", "--set", f"optimizer.max_trials={trials}"),
    ]
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.monotonic() - start
    result = json.loads((out / "recommendation.json").read_text())
    counts = result["counts"]
    best = max(c["score"] for c in result["candidates"] if c["score"] is not None)
    return Run(f"aisimulate recommend ({algorithm})", wall, counts["evaluated"], best)


def run_spica(name: str, config: str, folder: Path, *, cold: bool = False) -> Run:
    out = folder / name
    env = dict(os.environ)
    if cold:
        env["XDG_CACHE_HOME"] = str(folder / f"cache-{name}")
    command = [sys.executable, "-m", "spica", "sweep", str(BENCH / "peers" / config), "--out", str(out)]
    start = time.monotonic()
    subprocess.run([*command, "--jobs", "2", "--json"], check=True, env=env, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - start
    candidates = json.loads((out / "candidates.json").read_text())["candidates"]
    return Run(f"spica {name}", wall, len(candidates), max(c["score"] for c in candidates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--skip-bayesian", action="store_true", help="it takes ten minutes")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="spica-bench-"))
    runs = [
        run_spica("agg cold", "spica-qwen3-32b-agg.yaml", folder, cold=True),
        run_spica("agg warm", "spica-qwen3-32b-agg.yaml", folder),
        run_spica("cold", OURS, folder, cold=True),
        run_spica("warm", OURS, folder),
        run_peer("random", options.trials, folder),
    ]
    if not options.skip_bayesian:
        runs.append(run_peer("bayesian", options.trials, folder))
    shutil.rmtree(folder)
    warm = runs[3].seconds_per_candidate
    for run in runs:
        ratio = run.seconds_per_candidate / warm
        print(
            f"{run.name:34} {run.wall_seconds:7.1f} s {run.candidates:4d} candidates "
            f"{run.seconds_per_candidate:6.2f} s each  best {run.best:7.2f}  x{ratio:.1f}"
        )
    record = [asdict(run) | {"seconds_per_candidate": run.seconds_per_candidate} for run in runs]
    (BENCH / "results" / "peer.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
