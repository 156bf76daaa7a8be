"""Decides what the daemon sends to the processes of a family that it has inherited.

The same stages as the relay's: SIGTERM once to each, SIGKILL again and again. An anchor that is
still alive cleans up by itself and gets nothing before SIGKILL is due but the SIGCONT that lets
it work.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from supervisor.core import stages
from supervisor.core.attribution import Identity, Orphan

DrainSignal = Literal["SIGTERM", "SIGCONT", "SIGKILL"]


@dataclass(frozen=True, slots=True)
class Send:
    """Send `signal` to one inherited child."""

    identity: Identity
    signal: DrainSignal


def plan_drain(
    orphans: Iterable[Orphan],
    anchor: Identity | None,
    stage: int,
    sent: Mapping[Identity, DrainSignal],
) -> tuple[Send, ...]:
    """What to send now.

    Args:
        orphans: the family's processes among the daemon's children, zombies included.
        anchor: the anchor if it is one of them.
        stage: TERM before SIGKILL is due (there is no grace for a family that lost its relay).
        sent: the strongest signal that each got already.

    Returns:
        The signals in order; SIGTERM is followed by SIGCONT, so that a stopped process can obey.
    """
    sends: list[Send] = []
    for orphan in orphans:
        if orphan.zombie:
            continue
        if stage >= stages.KILL:
            sends.append(Send(orphan.identity, "SIGKILL"))
        elif orphan.identity not in sent:
            if orphan.identity != anchor:
                sends.append(Send(orphan.identity, "SIGTERM"))
            sends.append(Send(orphan.identity, "SIGCONT"))
    return tuple(sends)
