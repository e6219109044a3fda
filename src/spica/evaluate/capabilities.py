"""What the installed replay runner can do."""

from __future__ import annotations

import os

from spica.errors import StackError
from spica.storage.remembered import remembered


def runner_pairs() -> frozenset[tuple[str, str]]:
    """The (backend, deployment mode) pairs that the installed runner says it can replay.

    Importing the runner to ask it takes a second, so its answer is remembered. Raises StackError when the
    runner is missing or broken; one that broke after it had answered is found by the preflight's replays.
    """
    pairs = remembered(["backends and modes of the runner"], _asked)
    assert isinstance(pairs, list)
    return frozenset((backend, mode) for backend, mode in pairs)


def _asked() -> list[list[str]]:
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
    return sorted([str(backend), str(mode)] for backend, mode in pairs)
