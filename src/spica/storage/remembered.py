"""Answers of the installed components that take a second to get, and hold as long as they are installed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import platformdirs

from spica.versions import stack_versions

#: What can be remembered: what JSON gives back as it was.
Answer = str | list[list[str]] | None


def default_folder() -> Path:
    return Path(platformdirs.user_cache_dir("spica")) / "answers"


def remembered(question: Sequence[str], ask: Callable[[], Answer], folder: Path | None = None) -> Answer:
    """The answer to ``question``, from ``folder`` (default: the user's cache) or else by ``ask()``.

    It holds for the same components at the same place. What ``ask`` raises is raised, and not remembered.
    Without a place to keep answers they are asked for every time.
    """
    file = (folder or default_folder()) / f"{_digest(question)}.json"
    try:
        kept = json.loads(file.read_text())
        if kept["question"] == list(question) and kept["sum"] == _sum(question, kept["answer"]):
            return _checked(kept["answer"])
    except (OSError, ValueError, TypeError, KeyError):
        pass
    answer = ask()
    kept = {"question": list(question), "answer": answer, "sum": _sum(question, answer)}
    keep_whole(file, json.dumps(kept).encode())
    return answer


class Notes:
    """Many small answers to questions about one subject, in one file to which each is appended when it is
    learnt.

    They hold as long as what ``remembered`` keeps. Several processes may write at once: a line is written in
    one piece, the same answer twice does no harm, and a line that is damaged is passed over. A file too large
    to be read at every start begins anew.
    """

    _LARGEST = 8 * 1024 * 1024

    def __init__(self, subject: Sequence[str], folder: Path | None = None) -> None:
        self._file = (folder or default_folder()) / f"{_digest(subject)}.jsonl"
        self._known: dict[str, str] = {}
        try:
            if self._file.stat().st_size > self._LARGEST:
                self._file.unlink()
            lines = self._file.read_text(errors="replace").splitlines()
        except OSError:
            return
        for line in lines:
            self._read(line)

    def _read(self, line: str) -> None:
        try:
            question, answer, kept_sum = json.loads(line)
        except (ValueError, TypeError):
            return
        if isinstance(question, str) and isinstance(answer, str) and kept_sum == _sum([question], answer):
            self._known[question] = answer

    def get(self, question: str) -> str | None:
        """The answer, None when it is not known."""
        return self._known.get(question)

    def add(self, question: str, answer: str) -> None:
        """Without a place to keep it, for this process alone."""
        self._known[question] = answer
        line = json.dumps([question, answer, _sum([question], answer)]) + "\n"
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered and appending: one write, which others do not interleave with.
            with self._file.open("ab", buffering=0) as file:
                file.write(line.encode())
        except OSError:
            return


def _sum(question: Sequence[str], answer: Answer) -> str:
    """A checksum by which a changed answer is none."""
    return hashlib.sha256(json.dumps([list(question), answer]).encode()).hexdigest()[:16]


def _digest(question: Sequence[str]) -> str:
    text = json.dumps([list(question), stack_versions(), sys.prefix, sys.version])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _checked(answer: object) -> Answer:
    """Raises TypeError for what cannot have been written here."""
    if answer is None or isinstance(answer, str):
        return answer
    if not isinstance(answer, list) or not all(isinstance(row, list) for row in answer):
        raise TypeError(f"not an answer: {answer!r}")
    if not all(isinstance(item, str) for row in answer for item in row):
        raise TypeError(f"not an answer: {answer!r}")
    return answer


def keep_whole(file: Path, data: bytes) -> None:
    """Put ``data`` in a file of a cache, whole or not at all; not at all where there is no place for it."""
    new = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(data)
        new.replace(file)
    except OSError:
        return
