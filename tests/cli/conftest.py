from __future__ import annotations

from pathlib import Path

import pytest
from commands import SMALL, Spica


@pytest.fixture
def spica(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Spica:
    monkeypatch.setenv("COLUMNS", "100")
    return Spica(capsys)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path
