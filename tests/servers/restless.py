"""Descendants that do not hold still: they re-create each other, or flee by forking.

All of it is bounded, in generations or in time, so that a test can never run away.
"""

import os
import signal
import time
from typing import Final

from family import Family, ignore

GENERATIONS: Final = 4000
"""How often a pair may be re-created in all. The creator counts down and its creature inherits the
rest, so the bound holds however the pair is killed."""

HOP_S: Final = 12.0


def respawn_in_group(family: Family) -> int:
    """Two children in the same group; each re-creates the other when that dies."""
    family.child(lambda: _watch_each_other(family, escape=False))
    family.wait_placed()
    return 3


def respawn_escaping(family: Family) -> int:
    """The same, but each new one goes into a session of its own by a double fork."""

    def first() -> None:
        os.setsid()
        _watch_each_other(family, escape=True)

    family.child(first)
    family.wait_placed()
    return 3


def hop(family: Family) -> int:
    """One child that forks and lets the parent exit, in a loop: its pid is never the same twice."""

    def run() -> None:
        family.note()
        end_at = time.monotonic() + HOP_S
        while time.monotonic() < end_at:
            if os.fork() > 0:
                os._exit(0)
            os.setsid()
            family.in_place()

    family.child(run)
    family.wait_placed()
    return 2


def _watch_each_other(family: Family, *, escape: bool) -> None:
    ignore(signal.SIGTERM, signal.SIGHUP)
    # the kernel then reaps what we forked: a dead partner must not stay as our zombie
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    family.note()
    for _ in range(GENERATIONS):
        partner, held = _create_partner(family, escape=escape)
        family.in_place()
        os.read(partner, 1)  # EOF: the partner, which alone held the other end, is dead
        os.close(partner)
        os.close(held)


def _create_partner(family: Family, *, escape: bool) -> tuple[int, int]:
    """Fork the partner; both copies return and go on, in the same generation.

    Returns:
        The pipe that ends with the partner, and the one that ends with the caller.
    """
    from_new, new_holds = os.pipe()
    from_old, old_holds = os.pipe()
    if not _forked(family, escape=escape):
        os.close(new_holds)
        os.close(from_old)
        return from_new, old_holds
    os.close(from_new)
    os.close(old_holds)
    return from_old, new_holds


def _forked(family: Family, *, escape: bool) -> bool:
    """Whether the caller is the new process."""
    if os.fork() > 0:
        return False
    if escape:
        os.setsid()
        if os.fork() > 0:
            os._exit(0)
    family.note()
    return True
