"""Every measurement of this folder, one after the other: ``make bench``.

Each writes its numbers to ``bench/results/``. Arguments name the ones to run (default: all). One is run by
itself, because it needs a file: ``references_silicon.py``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parent
SCRIPTS = (
    "replay_overhead",
    "start_up",
    "truth_table",
    "search_quality",
    "optimizer_quality",
    "sweep_profile",
    "peer",
    "autoscaling",
    "references_frontier",
)


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in SCRIPTS]
    if unknown:
        print(f"no measurement named {', '.join(unknown)}; there are: {', '.join(SCRIPTS)}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or SCRIPTS:
        print(f"== {name}", flush=True)
        failed += subprocess.run([sys.executable, str(BENCH / f"{name}.py")], check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
