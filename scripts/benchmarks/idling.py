"""A daemon that has many servers and nothing to do: what it costs, and what asking it costs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil

from scripts.benchmarks.callers import MCPCTL, MIB
from scripts.benchmarks.calling import cpu_s
from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import Daemon, open_daemon, record
from scripts.benchmarks.programs import CAT
from scripts.benchmarks.results import Peer, Row, row
from scripts.benchmarks.starting import run_ms
from scripts.benchmarks.surroundings import UnexpectedError, becomes_readable

CORE_PERCENT: Final = 1.0
RESIDENT_MIB: Final = 120e6 / MIB
STATUS_MS: Final = 150.0
"""Source: design section 21."""


def measure_idling(counts: Counts) -> list[Row]:
    """CPU, memory and threads of idle daemons with many instances and with one; their `status`."""
    many, one, status_many, status_one = [], [], [], []
    with _daemon_with(counts.idle) as daemon, _daemon_with(1) as small:
        for _ in range(counts.programs):
            status_many.append(run_ms([MCPCTL, "status"], daemon.environ))
            status_one.append(run_ms([MCPCTL, "status"], small.environ))
        many.append(_core_percent(daemon, counts.idle_s))
        one.append(_core_percent(small, counts.idle_s))
        resident = [_resident_mib(each) for each in (daemon, small)]
        threads = [psutil.Process(each.process.pid).num_threads() for each in (daemon, small)]
    name, beside = f"{counts.idle} instances", "a daemon with one"
    return [
        row(
            f"mcpctl status, {name}",
            status_many,
            peer=Peer(beside, status_one),
            judged="difference",
            bound=STATUS_MS,
        ),
        row(
            f"idle daemon, {name}, of a core",
            many,
            unit="%",
            peer=Peer(beside, one),
            bound=CORE_PERCENT,
        ),
        row(
            f"idle daemon, {name}, resident memory",
            resident[:1],
            unit="MiB",
            peer=Peer(beside, resident[1:]),
            bound=RESIDENT_MIB,
        ),
        row(
            f"idle daemon, {name}, threads",
            threads[:1],
            unit="count",
            peer=Peer(beside, threads[1:]),
            judged="difference",
            bound=0,
        ),
    ]


@contextmanager
def _daemon_with(instances: int) -> Iterator[Daemon]:
    names = [f"cat-{number}" for number in range(instances)]
    with open_daemon(dict.fromkeys(names, record(CAT))) as daemon:
        for name in names:
            daemon.start(name)
        yield daemon


def _core_percent(daemon: Daemon, watched_s: float) -> float:
    """The share of one core that a daemon uses while nobody asks it anything."""
    before_s = cpu_s(daemon.process.pid)
    if becomes_readable(daemon.process.pidfd, watched_s):
        message = "an idle daemon has ended"
        raise UnexpectedError(message)
    return (cpu_s(daemon.process.pid) - before_s) / watched_s * 100


def _resident_mib(daemon: Daemon) -> float:
    used: int = psutil.Process(daemon.process.pid).memory_info().rss
    return used / MIB
