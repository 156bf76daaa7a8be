"""Calls through `mcpctl connect`, beside a direct pipe to the same server."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from time import clock_gettime
from typing import Final

from scripts.benchmarks.callees import ANSWERING
from scripts.benchmarks.callers import KIB, MIB, SIZES, Caller, opened
from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import Daemon, open_daemon, record
from scripts.benchmarks.results import Peer, Row, row

ADDED_MS: Final = 0.15
PER_THOUSAND_MS: Final = 20.0
"""50 000 calls in a second."""

CPU_US: Final = {KIB: 90.0, MIB: 1500.0}
"""Source: design section 21, for all four."""

IN_FLIGHT: Final = 16
ROUNDS: Final = 10
"""Ours and the peer's take turns so often, so that a disturbance of seconds hits both."""

DIRECT: Final = "direct pipe"
SERVER: Final = "answering"
SESSION: Final = ("--session", "bench")
WAYS: Final = {"connect": (), "a session": SESSION}
"""The words behind `mcpctl connect NAME`, by what a row calls the way."""


def measure_calls(counts: Counts) -> list[Row]:
    """How long calls take, one at a time and sixteen in flight."""
    rows: list[Row] = []
    with open_daemon({SERVER: record(ANSWERING)}) as daemon:
        for way, words in WAYS.items():
            with opened(Caller.bare(ANSWERING), Caller.through(daemon, SERVER, *words)) as (
                direct,
                ours,
            ):
                rows += [
                    _one_at_a_time(counts, way, direct, ours, KIB),
                    _one_at_a_time(counts, way, direct, ours, MIB),
                    _in_flight(counts, way, direct, ours, KIB),
                    _in_flight(counts, way, direct, ours, MIB),
                ]
    return rows


def by_turns(
    count: int, *calls: Callable[[], float], rounds: int = ROUNDS
) -> tuple[list[float], ...]:
    """Call each of these `count` times, some of one, then some of the next; the first is lost."""
    each = -(-count // rounds)
    samples = tuple(list[float]() for _ in calls)
    for _ in range(rounds):
        for call, taken in zip(calls, samples, strict=True):
            call()  # it finds the caches as the other way left them
            taken += [call() for _ in range(each)]
    return samples


def _one_at_a_time(counts: Counts, way: str, direct: Caller, ours: Caller, size: int) -> Row:
    count = counts.calls if size == KIB else counts.big_calls
    bare, through = by_turns(count, lambda: direct.call_ms(size), lambda: ours.call_ms(size))
    return row(
        f"call of {SIZES[size]} through {way}",
        through,
        peer=Peer(DIRECT, bare),
        judged="difference",
        bound=ADDED_MS if size == KIB else None,
    )


def _in_flight(counts: Counts, way: str, direct: Caller, ours: Caller, size: int) -> Row:
    """As the time of many calls, since bounds are for what shall be small."""
    count = counts.burst if size == KIB else counts.big_burst
    per = 1000 if size == KIB else IN_FLIGHT

    def taken_ms(caller: Caller) -> float:
        return caller.calls_s(count, size, IN_FLIGHT) * 1000 * per / count

    bare, through = by_turns(
        counts.bursts, lambda: taken_ms(direct), lambda: taken_ms(ours), rounds=counts.bursts
    )
    return row(
        f"{per} calls of {SIZES[size]}, {IN_FLIGHT} in flight, through {way}",
        through,
        peer=Peer(DIRECT, bare),
        bound=PER_THOUSAND_MS if size == KIB else None,
    )


def measure_call_cpu(counts: Counts) -> list[Row]:
    """What relaying one call costs the daemon: its CPU time around many, one at a time."""
    rows: list[Row] = []
    with open_daemon({SERVER: record(ANSWERING)}) as daemon, ExitStack() as stack:
        for way, words in WAYS.items():
            (caller,) = stack.enter_context(opened(Caller.through(daemon, SERVER, *words)))
            for size, name in SIZES.items():
                count = counts.calls if size == KIB else counts.big_calls
                samples = _cpu_us(daemon, caller, size, -(-count // ROUNDS))
                rows.append(
                    row(
                        f"daemon's CPU for a call of {name} through {way}",
                        samples,
                        unit="us",
                        bound=CPU_US[size],
                    )
                )
    return rows


def _cpu_us(daemon: Daemon, caller: Caller, size: int, each: int) -> Sequence[float]:
    """Microseconds for one call, as the mean of some, that as often as there are rounds."""
    caller.call_ms(size)
    samples = []
    for _ in range(ROUNDS):
        before_s = cpu_s(daemon.process.pid)
        for _ in range(each):
            caller.call_ms(size)
        samples.append((cpu_s(daemon.process.pid) - before_s) / each * 1e6)
    return samples


def cpu_s(pid: int) -> float:
    """User and system time of a process and all its threads so far, exact to the nanosecond.

    Source: clock_getcpuclockid(3); what /proc/PID/stat says is in ticks of 10 ms.
    """
    return clock_gettime(~pid << 3 | 2)
