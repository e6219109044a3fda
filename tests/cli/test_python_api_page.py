"""The examples of docs/python-api.md, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/python-api.md"

CHECKS = """
import json
assert result.folder.samefile("mine") and (result.folder / "report.html").exists()
listed = json.loads((result.folder / "candidates.json").read_text())["candidates"]
assert [c.key for c in result.ranked] == [c["key"] for c in listed]
assert [c.objectives[0] for c in result.ranked] == [c["values"]["throughput"] for c in listed]
assert len(listed) == 2
assert resumed.candidates == result.candidates and resumed.folder.samefile("mine")
"""


@pytest.mark.real
def test_the_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    script = tmp_path / "page.py"
    script.write_text("\n".join([*blocks, CHECKS]), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = done.stdout
    assert "done this run is complete: 2 candidates" in printed  # what the observer was told
    assert "h200_sxm" in printed  # the error names what is allowed
