from __future__ import annotations

from collections.abc import Iterator

import pytest

from spica.evaluate.pool import LocalEvaluator


@pytest.fixture(scope="session")
def evaluator() -> Iterator[LocalEvaluator]:
    """Two workers for the whole test session: the imports and tables are paid once."""
    with LocalEvaluator(2, max_eval_seconds=120) as pool:
        yield pool
