"""What a sweep does in the background only to save time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sweep_fakes import Setup

from spica import api


@pytest.mark.parametrize("error", [ImportError, AttributeError])
def test_a_module_that_another_thread_has_half_made_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """An error that leaves a thread would fail this test as pytest's warning."""
    tried = threading.Event()

    def half_made(*_: object) -> None:
        tried.set()
        raise error("partially initialized module 'pandas'")

    monkeypatch.setattr(api, "preload", half_made)
    monkeypatch.setattr(api, "warm_up", half_made)
    with api._warming_up(Setup(tmp_path).inputs):
        assert tried.wait(10)
    for thread in threading.enumerate():
        if thread.name == "spica-warm-up":
            thread.join(10)
