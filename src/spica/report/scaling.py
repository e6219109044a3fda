"""What the planners of the measured candidates did, in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from spica.evaluate.ticks import ACTED, HELD, NOT_READY
from spica.report.data import Leader


def scaling_lines(best: Leader, leaders: Sequence[Leader]) -> list[str]:
    """What the best candidate's planner did, and how many candidates' policies never acted.

    Empty where nothing scaled, and for runs of a time when ticks were not counted.
    """
    lines = []
    if ACTED in best.metrics:
        lines.append(f"its planner {_told(best)}")
    idle = [leader for leader in leaders if _idle(leader)]
    counted = [leader for leader in leaders if ACTED in leader.metrics]
    if idle:
        lines.append(
            f"{len(idle)} of {len(counted)} candidates with a scaling policy never changed their workers: "
            "each is worth what the same deployment is without scaling"
        )
    return lines


def _idle(leader: Leader) -> bool:
    return leader.metrics.get(ACTED) == 0


def _told(leader: Leader) -> str:
    found = leader.metrics
    acted, held, unready = (int(found.get(name, 0)) for name in (ACTED, HELD, NOT_READY))
    ticks = acted + held + unready
    reasons = sorted(
        (
            (-int(count), name.removeprefix(f"{HELD}_").replace("_", " "))
            for name, count in found.items()
            if name.startswith(f"{HELD}_")
        ),
    )
    parts = [f"changed the workers at {acted} of {ticks} ticks" if acted else f"never acted in {ticks} ticks"]
    if held:
        parts.append(f"held at {held} ({', '.join(f'{name} {-count}' for count, name in reasons)})")
    if unready:
        parts.append(f"had no estimate at {unready}")
    return ", ".join(parts)
