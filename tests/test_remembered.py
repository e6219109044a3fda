"""Slow answers of the installed components are asked for once."""

from __future__ import annotations

from pathlib import Path

import pytest

from spica import remembered as module
from spica.errors import StackError
from spica.remembered import Answer, remembered


def never() -> Answer:
    raise StackError("asked again")


@pytest.mark.parametrize("answer", ["0.24.0", None, [["vllm", "agg"], ["vllm", "disagg"]]])
def test_an_answer_is_asked_for_once(tmp_path: Path, answer: Answer) -> None:
    assert remembered(["a", "b"], lambda: answer, tmp_path) == answer
    assert remembered(["a", "b"], never, tmp_path) == answer
    with pytest.raises(StackError, match="asked again"):
        remembered(["a", "c"], never, tmp_path)
    # What could not be answered is not remembered.
    assert remembered(["a", "c"], lambda: "now", tmp_path) == "now"


def test_other_components_are_asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(["a"], lambda: "old", tmp_path)
    monkeypatch.setattr(module, "stack_versions", lambda: {"ai-dynamo": "9.9.9"})
    assert remembered(["a"], lambda: "new", tmp_path) == "new"


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "\x00", '{"question": ["a"]}', '{"question": ["a"], "answer": [["vllm", 3]]}']
)
def test_a_damaged_answer_is_asked_for_again(tmp_path: Path, text: str) -> None:
    remembered(["a"], lambda: "first", tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert remembered(["a"], lambda: "second", tmp_path) == "second"
    assert remembered(["a"], never, tmp_path) == "second"


def test_without_a_place_to_keep_it_an_answer_is_asked_for_every_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "folder"
    assert remembered(["a"], lambda: "first", folder) == "first"
    assert remembered(["a"], lambda: "second", folder) == "second"


@pytest.mark.real
def test_what_the_runner_can_do_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spica.evaluate import capabilities

    monkeypatch.setattr(module, "default_folder", lambda: tmp_path)
    every = {(b, m) for b in ("vllm", "sglang", "trtllm") for m in ("agg", "disagg")}
    assert capabilities.runner_pairs() == every
    monkeypatch.setattr(capabilities, "_asked", never)
    assert capabilities.runner_pairs() == every
