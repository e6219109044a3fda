"""``spica doctor`` finds what is wrong, and only that."""

from __future__ import annotations

import json
from importlib import metadata

import pytest
from commands import Spica

from spica.commands import doctor


@pytest.mark.real
@pytest.mark.slow
def test_on_a_machine_that_works_all_is_well(spica: Spica) -> None:
    done = spica("doctor", "--json")
    assert done.code == 0, done.out
    told = json.loads(done.out)
    assert told["ok"]
    names = {finding["name"] for finding in told["findings"]}
    assert {"python", "memory", "cache folder", "ai-dynamo", "performance data", "a sweep"} <= names


@pytest.fixture
def without_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_replay", lambda: iter(()))


@pytest.mark.real
@pytest.mark.usefixtures("without_a_replay")
@pytest.mark.parametrize(
    ("version", "told"), [("1.5.0", "1.5.0, not ==1.6.1"), (None, "not installed")], ids=["other", "none"]
)
def test_another_version_of_a_component_is_bad(
    spica: Spica, monkeypatch: pytest.MonkeyPatch, version: str | None, told: str
) -> None:
    installed = metadata.version

    def of(name: str) -> str:
        if name != "ai-dynamo":
            return installed(name)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", of)
    done = spica("doctor")
    assert done.code == 3
    (bad,) = [line for line in done.out.splitlines() if line.startswith("BAD")]
    assert bad.split()[1] == "ai-dynamo"
    assert told in bad
    assert "make setup" in done.out


@pytest.mark.real
@pytest.mark.usefixtures("without_a_replay")
def test_a_folder_that_cannot_be_written_is_bad(spica: Spica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/1")
    done = spica("doctor")
    assert done.code == 3
    (bad,) = [line for line in done.out.splitlines() if line.startswith("BAD")]
    assert bad.split()[1:3] == ["cache", "folder"]
    assert "/proc/1/spica" in bad
