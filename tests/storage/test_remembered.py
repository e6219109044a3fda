"""Slow answers of the installed components are asked for once."""

from __future__ import annotations

from pathlib import Path

import pytest

from spica.errors import StackError
from spica.storage import remembered as module
from spica.storage.remembered import Answer, Notes, remembered


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


def test_notes_are_there_for_the_next_process_and_for_one_that_writes_beside(tmp_path: Path) -> None:
    first, second = Notes(["s"], tmp_path), Notes(["s"], tmp_path)
    first.add("a", "1")
    second.add("b", "é\n2")
    second.add("a", "1")
    assert (first.get("a"), first.get("b"), second.get("b")) == ("1", None, "é\n2")
    later = Notes(["s"], tmp_path)
    assert (later.get("a"), later.get("b"), later.get("c")) == ("1", "é\n2", None)
    assert Notes(["t"], tmp_path).get("a") is None


def test_damaged_notes_are_passed_over(tmp_path: Path) -> None:
    Notes(["s"], tmp_path).add("a", "1")
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(b'\xff\x00\n["x"]\n3\n["y", 3]\n\n' + whole + whole.replace(b'"a"', b'"b"')[:-4])
    notes = Notes(["s"], tmp_path)
    assert notes.get("a") == "1"
    assert [notes.get(q) for q in ("x", "y", "b")] == [None] * 3


def test_notes_that_have_grown_too_large_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Notes(["s"], tmp_path).add("a", "1" * 100)
    monkeypatch.setattr(Notes, "_LARGEST", 99)
    assert Notes(["s"], tmp_path).get("a") is None
    assert not list(tmp_path.iterdir())


def test_without_a_place_notes_last_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    notes = Notes(["s"], tmp_path / "file" / "folder")
    notes.add("a", "1")
    assert notes.get("a") == "1"


@pytest.mark.parametrize("answer", ["capacity 4096", [["vllm", "agg"]]])
def test_a_changed_answer_is_asked_for_again(tmp_path: Path, answer: Answer) -> None:
    remembered(["a"], lambda: answer, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_text()
    changed = whole.replace("4096", "4097").replace("vllm", "vlln")
    assert changed != whole
    file.write_text(changed)
    assert remembered(["a"], lambda: "second", tmp_path) == "second"


def test_a_changed_note_is_passed_over(tmp_path: Path) -> None:
    notes = Notes(["s"], tmp_path)
    notes.add("a", "4096")
    notes.add("b", "17")
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("4096", "4097"))
    later = Notes(["s"], tmp_path)
    assert (later.get("a"), later.get("b")) == (None, "17")
