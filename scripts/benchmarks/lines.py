"""Servers that say very much, or nothing any more, while a call is in flight."""

import json
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Final

import anyio

from scripts.benchmarks.callees import SILENT, talking
from scripts.benchmarks.callers import Caller, opened, request
from scripts.benchmarks.calling import DIRECT, by_turns
from scripts.benchmarks.counts import Counts
from scripts.benchmarks.ours import open_daemon, open_owner, record
from scripts.benchmarks.peers import PATIENCE_S
from scripts.benchmarks.results import Peer, Row, row
from scripts.benchmarks.surroundings import UnexpectedError, open_pidfd
from supervisor.core.limits import CallLimits
from supervisor.linux.signals import signal_pidfd
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.metrics import Metrics
from supervisor.transport.channel import Channel

if TYPE_CHECKING:
    from supervisor.core.call_errors import CallError, ServerGoneError

READING_RATIO: Final = 1.5
STRAYS_MS: Final = 1000.0
NOTICED_MS: Final = 2.0
"""Source: design section 21; the last for the exit of a server."""

GONE: Final = -32002


def measure_lines(counts: Counts) -> list[Row]:
    """One very long line, and very many stray ones, beside those who only read the bytes."""
    reading, ours = anyio.run(_long_lines, counts)
    return [
        row(
            f"{_name(counts)} through the byte channel",
            ours,
            peer=Peer("reading the bytes", reading),
            judged="ratio",
            bound=READING_RATIO,
        ),
        _talk(counts, f"{_name(counts)} through connect", None, strays=0),
        _talk(
            counts,
            f"{counts.strays} stray lines before the answer",
            STRAYS_MS,
            strays=counts.strays,
        ),
    ]


def _name(counts: Counts) -> str:
    return f"answer of {counts.long_bytes / 1e6:g} MB"


def _talk(counts: Counts, name: str, bound: float | None, *, strays: int) -> Row:
    """A call whose answer is long, or comes late, beside a pipe on which the same is read."""
    argv = talking(strays=strays, answer_bytes=0 if strays else counts.long_bytes)
    with (
        open_daemon({"talking": record(argv)}) as daemon,
        opened(Caller.bare(argv), Caller.through(daemon, "talking")) as (direct, ours),
    ):
        reading, through = by_turns(
            counts.lines,
            lambda: _talk_ms(direct),
            lambda: _talk_ms(ours),
            rounds=min(counts.lines, 3),
        )
    return row(name, through, peer=Peer(DIRECT, reading), bound=bound)


def _talk_ms(caller: Caller) -> float:
    began_at = perf_counter()
    caller.write(request(1, 0))
    caller.read_line(b'"}}\n')
    return (perf_counter() - began_at) * 1000


class _Reader:
    """A peer of a channel, or of a server's stdout, that only waits for the end of an answer."""

    is_client = True

    def __init__(self) -> None:
        self._answered = anyio.Event()

    async def wait(self) -> None:
        """Wait for it, and be ready for the next."""
        with anyio.fail_after(PATIENCE_S):
            await self._answered.wait()
        self._answered = anyio.Event()

    def deliver(self, data: bytes) -> None:
        """Look at the end of what came."""
        if data.endswith(b'"}}\n'):
            self._answered.set()

    def ended(self) -> None:
        """The server has left: the measurement fails for want of an answer."""

    def fail(self, id_token: bytes, error: "CallError") -> None:
        """Likewise."""

    def pause(self) -> None:
        """A request is short."""

    def resume(self) -> None:
        """Likewise."""

    def channel_ended(self, error: "ServerGoneError", failed: int) -> None:
        """It is over."""


async def _long_lines(counts: Counts) -> tuple[list[float], list[float]]:
    """Milliseconds until an answer is read in this process: the bytes alone, and as a line."""
    argv = talking(strays=0, answer_bytes=counts.long_bytes)
    limits = CallLimits()
    reading, ours = list[float](), list[float]()
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(open_owner())
        tasks = await stack.enter_async_context(anyio.create_task_group())
        first, second = await owner.spawn(argv), await owner.spawn(argv)
        reader, peer = _Reader(), _Reader()
        first.family.attach(reader.deliver, reader.ended)
        metrics = Metrics([second.instance.server], version="bench")
        channel = Channel(second, limits, EventLog(), metrics, private=True)
        await tasks.start(channel.run)
        client = channel.attach(peer)

        def write_bare() -> None:
            first.family.stdin.write(request(1, 0))

        def send() -> None:
            channel.send(client, [request(1, 0)[:-1]])

        for number in range(counts.warm_up + counts.lines):
            for act, waits, taken in ((write_bare, reader, reading), (send, peer, ours)):
                taken_ms = await _answered_ms(act, waits)
                if number >= counts.warm_up:
                    taken.append(taken_ms)
        for held in (first, second):
            await owner.stop(held)
    return reading, ours


async def _answered_ms(act: Callable[[], None], reader: _Reader) -> float:
    began_at = perf_counter()
    act()
    await reader.wait()
    return (perf_counter() - began_at) * 1000


def measure_lost_calls(counts: Counts) -> list[Row]:
    """From a server's SIGKILL until the error of its call in flight is at the client."""
    # a name for each, since a server that is killed again and again is left alone for a while
    names = [f"silent-{number}" for number in range(counts.warm_up + counts.exits)]
    direct, ours = list[float](), list[float]()
    with open_daemon(dict.fromkeys(names, record(SILENT))) as daemon:
        for name in names:
            direct.append(_lost_ms(Caller.bare(SILENT), expected=b""))
            ours.append(_lost_ms(Caller.through(daemon, name), expected=b"%d" % GONE))
    return [
        row(
            "call in flight fails when its server exits",
            ours[counts.warm_up :],
            peer=Peer(f"{DIRECT}'s end", direct[counts.warm_up :]),
            bound=NOTICED_MS,
        )
    ]


def _lost_ms(caller: Caller, *, expected: bytes) -> float:
    """Kill the server of a caller; how long it takes until the caller reads what is expected."""
    with opened(caller):
        caller.write(request(1, 0))
        pid: int = json.loads(caller.read_line())["params"]
        with open_pidfd(pid) as pidfd:
            began_at = perf_counter()
            signal_pidfd(pidfd, signal.SIGKILL)
            said = caller.read_some(end_is_good=not expected)
            taken_ms = (perf_counter() - began_at) * 1000
    if expected not in said:
        message = f"a call whose server was killed was answered with {said[:200]!r}"
        raise UnexpectedError(message)
    return taken_ms
