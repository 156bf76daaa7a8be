"""How often each measurement is repeated: the full run, the quick one, and one for tests."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Repetitions and spans of one run.

    Attributes:
        warm_up: rounds whose samples are thrown away, in measurements that start processes.
        spawns: spawns for each of fork server and exec'd relay, and as many bare ones.
        held: instances alive while their helpers' memory is read.
        crowd: instances that are started, and stopped, at once.
        crowd_rounds: how often that is done.
        stops: polite stops for each server and peer.
        stubborn: stops of a server that ignores everything; each lasts `deadline_s`.
        sdk_stubborn: the same through the SDK's client, 4 s each; 0 leaves that peer out.
        exits: servers that are killed to see when that is noticed.
        sdk_exits: the same for the SDK's client; each takes `patience_s`.
        losses: daemons that are killed.
        lost_each: polite servers of such a daemon, and as many stubborn ones.
        cycles: starts and stops after which nothing may have grown.
        programs: starts of each command-line program.
        deadline_s: deadline of stubborn servers, seconds.
        patience_s: how long something is waited for that is expected never to happen, seconds.
    """

    warm_up: int
    spawns: int
    held: int
    crowd: int
    crowd_rounds: int
    stops: int
    stubborn: int
    sdk_stubborn: int
    exits: int
    sdk_exits: int
    losses: int
    lost_each: int
    cycles: int
    programs: int
    deadline_s: float = 1.0
    patience_s: float = 1.0


FULL: Final = Counts(
    warm_up=3,
    spawns=80,
    held=40,
    crowd=200,
    crowd_rounds=5,
    stops=40,
    stubborn=8,
    sdk_stubborn=2,
    exits=50,
    sdk_exits=3,
    losses=5,
    lost_each=10,
    cycles=100,
    programs=25,
)
"""Medians that differ by a few per cent between two runs on a quiet machine."""

QUICK: Final = Counts(
    warm_up=2,
    spawns=15,
    held=10,
    crowd=200,
    crowd_rounds=1,
    stops=8,
    stubborn=2,
    sdk_stubborn=1,
    exits=10,
    sdk_exits=1,
    losses=1,
    lost_each=10,
    cycles=30,
    programs=6,
)
"""Enough to see that something is ten times too slow, not that it is 10 % slower."""

TINY: Final = Counts(
    warm_up=0,
    spawns=1,
    held=1,
    crowd=2,
    crowd_rounds=1,
    stops=1,
    stubborn=1,
    sdk_stubborn=0,
    exits=1,
    sdk_exits=1,
    losses=1,
    lost_each=1,
    cycles=2,
    programs=1,
    deadline_s=0.3,
    patience_s=0.05,
)
"""Only to see that each measurement works; its numbers mean nothing."""
