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
        calls: calls of 1 KB each way, one at a time.
        big_calls: calls of 1 MB likewise.
        burst: calls of 1 KB with several in flight, for one sample.
        big_burst: calls of 1 MB likewise.
        bursts: how many such samples are taken.
        sdk_calls: calls of the SDK's client each way.
        gateway_calls: calls through an HTTP gateway; 0 leaves that measurement out, which
            installs something.
        lines: how often a server says very much before, or in, an answer.
        long_bytes: how much is in such an answer.
        strays: how many lines stand before such an answer.
        idle: instances that an idle daemon has.
        idle_s: how long such a daemon is watched, seconds.
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
    calls: int
    big_calls: int
    burst: int
    big_burst: int
    bursts: int
    sdk_calls: int
    gateway_calls: int
    lines: int
    long_bytes: int
    strays: int
    idle: int
    idle_s: float
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
    calls=3000,
    big_calls=100,
    burst=20000,
    big_burst=32,
    bursts=5,
    sdk_calls=300,
    gateway_calls=300,
    lines=10,
    long_bytes=16_000_000,
    strays=200_000,
    idle=200,
    idle_s=5.0,
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
    calls=300,
    big_calls=20,
    burst=5000,
    big_burst=16,
    bursts=2,
    sdk_calls=50,
    gateway_calls=50,
    lines=3,
    long_bytes=16_000_000,
    strays=200_000,
    idle=200,
    idle_s=2.0,
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
    calls=2,
    big_calls=1,
    burst=20,
    big_burst=1,
    bursts=1,
    sdk_calls=1,
    gateway_calls=0,
    lines=1,
    long_bytes=100_000,
    strays=10,
    idle=2,
    idle_s=0.05,
    deadline_s=0.3,
    patience_s=0.05,
)
"""Only to see that each measurement works; its numbers mean nothing."""
