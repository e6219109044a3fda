"""How long one waits before anything happens: whole processes, warm file cache, median of three.

Run: ``python bench/start_up.py``; writes ``bench/results/start_up.json``.

"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

BENCH = Path(__file__).parent
QWEN = str(BENCH / "peers" / "spica-qwen3-32b-both.yaml")
WIDE = str(BENCH / "peers" / "spica-gpt-oss-128gpu.yaml")
COMMANDS = {
    "help": ["--help"],
    "check, 8 GPUs": ["check", QWEN],
    "check, 128 GPUs disaggregated MoE": ["check", WIDE],
}


def seconds(arguments: list[str]) -> float:
    start = time.monotonic()
    command = [sys.executable, "-m", "spica", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - start


def main() -> None:
    results: dict[str, float] = {}
    for name, arguments in COMMANDS.items():
        seconds(arguments)
        results[name] = statistics.median(seconds(arguments) for _ in range(3))
        print(f"{name:36} {results[name]:6.2f} s")
    (BENCH / "results" / "start_up.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
