"""Rooms import only what stands below them, in the order of docs/architecture.md and pyproject.toml."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
_RUN: Final = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"


def _contracts() -> list[dict[str, list[str] | str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(settings["tool"]["importlinter"]["contracts"])


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts on the package in ``folder``/src."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.run(
        [sys.executable, "-P", "-c", _RUN], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_imports_keep_the_order() -> None:
    done = _lint(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "line", "named"),
    [
        (
            "storage/scratch.py",
            "from spica.config import Goal",
            "spica.storage is not allowed to import spica.config",
        ),
        ("sweep/loop.py", "import dynamo.llm", "dynamo"),
        ("goals/score.py", "from aisimulate_core.sdk import memory", "aisimulate_core"),
        ("branches/build.py", "import jax", "jax"),
    ],
)
def test_a_wrong_import_is_found(tmp_path: Path, module: str, line: str, named: str) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    wrong = tmp_path / "src/spica" / module
    wrong.write_text(wrong.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
    done = _lint(tmp_path)
    assert done.returncode == 1, done.stdout
    assert named in done.stdout


def test_the_architecture_page_lists_the_rooms_in_that_order() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = [
        name.removesuffix("/").removesuffix(".py") for cell in cells for name in re.findall("`([^`]+)`", cell)
    ]
    layers = next(contract["layers"] for contract in _contracts() if contract["id"] == "rooms")
    assert listed == layers


def test_the_root_is_small() -> None:
    assert len(list((ROOT / "src/spica").glob("*.py"))) <= 10
