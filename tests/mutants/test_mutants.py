"""The tests notice faults: each mutant in a copy of the sources, and its tests must fail on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
#: pytest's exit code for tests that ran and failed; anything else is no catch.
FAILED = 1


def run(source: Path, tests: str) -> int:
    """pytest's exit code for ``tests`` on the product in ``source``."""
    env = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *tests.split()], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode


def copied(target: Path) -> Path:
    shutil.copytree(ROOT / "src", target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return target


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_changes_one_place(mutant: Mutant) -> None:
    text = (ROOT / "src" / "spica" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_catch(mutant: Mutant, tmp_path: Path) -> None:
    file = copied(tmp_path / "src") / "spica" / mutant.file
    file.write_text(file.read_text().replace(mutant.old, mutant.new))
    assert run(tmp_path / "src", mutant.tests) == FAILED


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_copy_without_a_fault_passes(tmp_path: Path) -> None:
    """Positive control: it is the fault that is caught, not the copy."""
    assert run(copied(tmp_path / "src"), "tests/goals tests/record tests/branches/test_kv_load.py") == 0
