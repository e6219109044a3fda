"""What the runner can do is asked of it once, and remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from spica.errors import StackError
from spica.evaluate import capabilities
from spica.evaluate.capabilities import runner_pairs

EVERY_PAIR = frozenset((b, m) for b in ("vllm", "sglang", "trtllm") for m in ("agg", "disagg"))


@pytest.mark.real
def test_the_installed_runner_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner_pairs(tmp_path) == EVERY_PAIR

    def gone() -> frozenset[tuple[str, str]]:
        raise StackError("the replay runner cannot be imported: no module")

    monkeypatch.setattr(capabilities, "_asked", gone)
    assert runner_pairs(tmp_path) == EVERY_PAIR
    monkeypatch.setattr(capabilities, "stack_versions", lambda: {"ai-dynamo": "9.9.9"})
    with pytest.raises(StackError, match="cannot be imported"):
        runner_pairs(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[1]", '["ab", 3]', "\x00"])
def test_a_damaged_answer_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    pairs = frozenset({("vllm", "agg")})
    monkeypatch.setattr(capabilities, "_asked", lambda: pairs)
    assert runner_pairs(tmp_path) == pairs
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert runner_pairs(tmp_path) == pairs


def test_a_place_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    pairs = frozenset({("vllm", "agg")})
    monkeypatch.setattr(capabilities, "_asked", lambda: pairs)
    assert runner_pairs(tmp_path / "file" / "folder") == pairs
