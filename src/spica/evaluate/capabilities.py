"""What the installed replay runner can do."""

from __future__ import annotations

import os

from spica.errors import StackError


def runner_pairs() -> frozenset[tuple[str, str]]:
    """The (backend, deployment mode) pairs that the installed runner says it can replay.

    Takes a second (the runner is imported). Raises StackError when it is missing or broken.
    """
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
