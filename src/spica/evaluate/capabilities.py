"""What the installed replay runner can do."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import platformdirs

from spica.errors import StackError
from spica.versions import stack_versions

Pairs = frozenset[tuple[str, str]]


def runner_pairs(cache_dir: Path | None = None) -> Pairs:
    """The (backend, deployment mode) pairs that the installed runner says it can replay.

    Importing the runner to ask it takes a second, so its answer is kept in ``cache_dir`` (default: the user's
    cache) for the same components at the same place. Raises StackError when the runner is missing or broken;
    one that broke after it had answered is found by the replays of the preflight.
    """
    file = (cache_dir or Path(platformdirs.user_cache_dir("spica")) / "runner") / f"{_key()}.json"
    known = _read(file)
    if known is not None:
        return known
    pairs = _asked()
    _write(file, pairs)
    return pairs


def _key() -> str:
    text = json.dumps([stack_versions(), sys.prefix, sys.version])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(file: Path) -> Pairs | None:
    """None when there is no answer, or none that can be used."""
    try:
        pairs = json.loads(file.read_text())
        return frozenset((str(backend), str(mode)) for backend, mode in pairs)
    except (OSError, ValueError, TypeError):
        return None


def _write(file: Path, pairs: Pairs) -> None:
    """Whole or not at all; without a place for it the runner is asked again next time."""
    new = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(sorted(pairs)))
        new.replace(file)
    except OSError:
        return


def _asked() -> Pairs:
    # Read by Dynamo when it is imported; what it logs below errors says nothing to a user of Spica.
    os.environ.setdefault("DYN_LOG", "error")
    try:
        from dynamo.replay.simulation import DynamoReplayRunnerFactory
    except ImportError as error:
        raise StackError(
            f"the replay runner cannot be imported: {error}",
            remedy="install the pinned environment again: make setup",
        ) from error
    pairs = DynamoReplayRunnerFactory().capabilities().supported_backend_topologies
    return frozenset((str(backend), str(mode)) for backend, mode in pairs)
