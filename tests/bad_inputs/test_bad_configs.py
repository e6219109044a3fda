"""Every file of ``configs/`` is refused with the messages and the exit code that its first lines declare."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spica.config.load import load_config
from spica.errors import ConfigError

CONFIGS = sorted((Path(__file__).parent / "configs").glob("*.yaml"))


def declared(path: Path, name: str) -> list[str]:
    """The values of the ``# name: value`` lines at the head of a file of any encoding."""
    text = path.read_bytes().decode("latin-1")
    return re.findall(rf"^# {name}: (.*)$", text, flags=re.MULTILINE)


def test_the_catalogue_is_there() -> None:
    assert len(CONFIGS) >= 100


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_a_broken_config_is_refused_as_declared(path: Path) -> None:
    expected = declared(path, "expect")
    assert expected, "the file declares no message"
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    for fragment in expected:
        assert fragment in message
    assert [str(caught.value.exit_code)] == declared(path, "exit")
    assert "pydantic" not in message.lower()
    assert "\x1b" not in message
    assert len(message) < 20_000
    # Every problem says in which file it is.
    assert all(problem.where.startswith(str(path)) for problem in caught.value.problems)
