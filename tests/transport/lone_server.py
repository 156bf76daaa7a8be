"""A real server process behind a real channel, without daemon, relay and anchor.

async with lone_server("obedient.py") as server:
    server.channel.attach(peer)

The family and the instance are the few things of them that a channel uses.
"""

import os
import subprocess  # noqa: TID251 - the server is started as a test does it
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio
from anyio.abc import TaskStatus

from supervisor.core.call_errors import CallError, ServerGoneError
from supervisor.core.limits import CallLimits
from supervisor.core.shutdown import Shutdown
from supervisor.core.views import QueueView
from supervisor.linux.pipes import Sink, Source, Watch
from supervisor.process.stderr_tail import StderrTail
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.metrics import Metrics, MetricsSnapshot
from supervisor.transport.channel import Channel

if TYPE_CHECKING:
    from supervisor.process.custody import Held

SERVERS: Final = Path(__file__).parents[1] / "servers"
SERVER: Final = "files"
WITHIN_S: Final = 5.0

_NOTHING: Final = MetricsSnapshot(
    instances={}, sessions=0, queue=QueueView(starting=0, waiting=0), survivors=0
)


@dataclass(frozen=True, slots=True)
class Exited:
    """How it ended."""

    code: int | None
    signal: int | None


class _Family:
    """The pipes of one process, and its end."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.tail = StderrTail(frozenset())
        self.fed_to_the_end = False
        self.exit: Exited | None = None
        self.on_exit: Callable[[], None] = _nothing
        self._on_output_end: Callable[[], None] = _nothing
        self.stdin = Sink(os.dup(process.stdin.fileno()))
        self.stdout = Source(os.dup(process.stdout.fileno()), _drop, self._output_ended)
        self.stdout.pause()
        self.stderr = Source(os.dup(process.stderr.fileno()), self.tail.feed, self.tail.end)
        self._pidfd = os.pidfd_open(process.pid)
        self._watch = Watch(self._pidfd, self._exited)

    def attach(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """As `Family.attach`."""
        self.stdout.redirect(on_data)
        self._on_output_end = on_end
        self.stdout.resume()

    def close(self) -> None:
        """End the process and close everything."""
        self._watch.pause()
        self.stdin.close()
        for source in (self.stdout, self.stderr):
            source.close()
        os.close(self._pidfd)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.kill()
        self.process.wait(WITHIN_S)

    def _output_ended(self) -> None:
        self._on_output_end()

    def _exited(self) -> None:
        self._watch.pause()
        code = self.process.wait(WITHIN_S)
        self.exit = Exited(None, -code) if code < 0 else Exited(code, None)
        self.on_exit()


class _Instance:
    """What a channel asks of its instance; nobody has asked it to stop, unless the channel has."""

    server = SERVER
    id = "0123456789abcdef"
    session = "a"

    def __init__(self) -> None:
        self.state = Shutdown()
        self.stopping = False
        self.asked_to_stop: list[str] = []

    def request_stop(self, reason: str) -> None:
        """As `Instance.request_stop`, without one."""
        self.stopping = True
        self.asked_to_stop.append(reason)

    async def wait_settled(self) -> None:
        """It is never judged here."""
        await anyio.sleep_forever()


@dataclass
class LoneServer:
    """A process and its channel.

    Attributes:
        asked_to_stop: the reasons for which the channel wants the instance stopped.
    """

    process: "subprocess.Popen[bytes]"
    channel: Channel
    metrics: Metrics
    asked_to_stop: list[str]
    ended: anyio.Event

    async def wait_ended(self) -> None:
        """Wait until the channel has told everybody of the end."""
        with anyio.fail_after(WITHIN_S):
            await self.ended.wait()

    def dropped(self, kind: str) -> float:
        """How many messages of that kind were dropped."""
        text = self.metrics.collect(_NOTHING).decode()
        for line in text.splitlines():
            if line.startswith("mcp_supervisor_dropped_messages_total{") and f'"{kind}"' in line:
                return float(line.rpartition(" ")[2])
        return 0.0


@asynccontextmanager
async def lone_server(
    program: str, *words: str, limits: CallLimits | None = None, private: bool = False
) -> AsyncIterator[LoneServer]:
    """Start a program of `tests/servers` and open a channel to it."""
    process = _start(program, *words)
    family, instance = _Family(process), _Instance()
    try:
        metrics = Metrics((SERVER,), version="0")
        channel = Channel(
            cast("Held", _Held(instance, family)),
            limits or CallLimits(),
            EventLog(run="00c0ffee"),
            metrics,
            private=private,
        )
        ended = anyio.Event()

        async def run(*, task_status: TaskStatus[None]) -> None:
            await channel.run(task_status=task_status)
            ended.set()

        async with anyio.create_task_group() as tasks:
            await tasks.start(run)
            yield LoneServer(process, channel, metrics, instance.asked_to_stop, ended)
            tasks.cancel_scope.cancel()
    finally:
        family.close()


def _start(program: str, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - the test's own program
        [sys.executable, "-S", "-E", str(SERVERS / program), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@dataclass
class _Held:
    instance: _Instance
    family: _Family


@dataclass
class Listener:
    """A peer that keeps what it gets.

    Attributes:
        lines: in order, without their newlines.
        failed: ids of requests that got no answer, with the error.
        ends: the error and the number of failed requests of each end.
        told: whether it is to send nothing for now: "pause" and "resume", in order.
    """

    is_client: bool = True
    lines: list[bytes] = field(default_factory=list[bytes])
    failed: list[tuple[bytes, CallError]] = field(default_factory=list[tuple[bytes, CallError]])
    ends: list[tuple[ServerGoneError, int]] = field(
        default_factory=list[tuple[ServerGoneError, int]]
    )
    told: list[str] = field(default_factory=list[str])
    news: anyio.Event = field(default_factory=anyio.Event)

    def deliver(self, data: bytes) -> None:
        """As `Peer`."""
        assert data.endswith(b"\n")
        self.lines += data[:-1].split(b"\n")
        self._tell()

    def fail(self, id_token: bytes, error: CallError) -> None:
        """As `Peer`."""
        self.failed.append((id_token, error))
        self._tell()

    def pause(self) -> None:
        """As `Peer`."""
        self.told.append("pause")
        self._tell()

    def resume(self) -> None:
        """As `Peer`."""
        self.told.append("resume")
        self._tell()

    def channel_ended(self, error: ServerGoneError, failed: int) -> None:
        """As `Peer`."""
        self.ends.append((error, failed))
        self._tell()

    async def wait_for(self, true: Callable[[], bool]) -> None:
        """Wait until something is true that follows from what comes."""
        with anyio.fail_after(WITHIN_S):
            while not true():
                self.news = anyio.Event()
                await self.news.wait()

    def _tell(self) -> None:
        self.news.set()


def _nothing() -> None:
    """Nobody wants to know."""


def _drop(_data: bytes) -> None:
    """Nobody reads."""
