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
    text = json.dumps([list(question), stack_versions(), sys.prefix, sys.version])
    file = (folder or default_folder()) / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"
    try:
        kept = json.loads(file.read_text())
        if kept["question"] == list(question):
            return _checked(kept["answer"])
    except (OSError, ValueError, TypeError, KeyError):
        pass
    answer = ask()
    _keep(file, json.dumps({"question": list(question), "answer": answer}))
    return answer


def _checked(answer: object) -> Answer:
    """Raises TypeError for what cannot have been written here."""
    if answer is None or isinstance(answer, str):
        return answer
    if not isinstance(answer, list) or not all(isinstance(row, list) for row in answer):
        raise TypeError(f"not an answer: {answer!r}")
    if not all(isinstance(item, str) for row in answer for item in row):
        raise TypeError(f"not an answer: {answer!r}")
    return answer


def _keep(file: Path, text: str) -> None:
    """Whole or not at all."""
    new = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text)
        new.replace(file)
    except OSError:
        return
