"""`mcp-supervisord` over a manager that owns nothing: the real shell, to be started by tests.

    python program.py run|start --runtime-dir DIR ...

The fake does what the environment says: FAKE_UNCONFIRMED (so many unconfirmed cleanups at the
stop), FAKE_STUBBORN (the stop ends when it is forced), FAKE_REFUSES (it cannot be opened: `os`,
`bug` or `killed`), FAKE_DIES (serving clients fails), FAKE_LOOK_EVERY_S (seconds between two
looks at the socket files), FAKE_GATE (a fifo: the manager opens once its other end is closed).
What clients of `mcp.sock` send comes back.
"""

import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from typing_extensions import override

from supervisor.config.models import Configuration
from supervisor.core.errors import KernelError, UnknownInstanceError, UnknownServerError
from supervisor.core.ids import InstanceId, ServerName, SessionKey
from supervisor.core.places import Places
from supervisor.core.report import CleanupReport, Outcome, Reason
from supervisor.core.views import (
    DaemonView,
    InstanceView,
    LimitsView,
    QueueView,
    ReloadAnswer,
    RestartAnswer,
    ServerView,
    StartAnswer,
    StatusView,
    StopAnswer,
)
from supervisor.daemon import detach, run
from supervisor.daemon.main import main
from supervisor.daemon.ports import Manager
from supervisor.manager.clients import Greeted
from supervisor.telemetry.events import EventLog

if TYPE_CHECKING:
    from supervisor.telemetry.server_logs import ServerLogs


@dataclass(frozen=True)
class Summary:
    """How the stop ended."""

    confirmed: int
    unconfirmed: int


class FakeManager(Manager):
    """Owns nothing, and says what it was given and told."""

    def __init__(self, configuration: Configuration, places: Places, events: EventLog) -> None:
        self.configuration = configuration
        self._servers = tuple(configuration.servers)
        self._places = places
        self._events = events
        self._forced = anyio.Event()
        self.logs: ServerLogs | None = None

    @override
    def status(self) -> StatusView:
        return StatusView(
            daemon=DaemonView(
                pid=os.getpid(),
                version="0",
                run=self._events.run,
                started_at_utc="",
                uptime_s=0.0,
                stopping=False,
                config_file=None,
                runtime_dir=self._places.runtime_dir,
                state_dir=self._places.state_dir,
                fork_server_pid=None,
            ),
            servers=(),
            sessions=(),
            instances=(),
            queue=QueueView(starting=0, waiting=0),
            limits=LimitsView(
                max_instances=0,
                instances=0,
                start_concurrency=0,
                descriptors=0,
                descriptors_open=0,
            ),
        )

    @override
    def servers(self) -> tuple[ServerView, ...]:
        return ()

    @override
    def server(self, name: ServerName) -> ServerView:
        raise UnknownServerError(name, self._servers)

    @override
    def instances(self, *, quarantined: bool | None = None) -> tuple[InstanceView, ...]:
        return ()

    @override
    def instance(self, instance: InstanceId) -> InstanceView:
        raise UnknownInstanceError(instance)

    @override
    def reports(self, *, outcome: Outcome | None = None) -> tuple[CleanupReport, ...]:
        return ()

    @override
    def report(self, instance: InstanceId) -> CleanupReport:
        raise UnknownInstanceError(instance)

    @override
    async def settled_report(self, instance: InstanceId) -> CleanupReport:
        raise UnknownInstanceError(instance)

    @override
    async def start(self, name: ServerName, session: SessionKey) -> StartAnswer:
        raise UnknownServerError(name, self._servers)

    @override
    async def stop(
        self, name: ServerName, session: SessionKey | None, *, force: bool, verify: bool
    ) -> StopAnswer:
        raise UnknownServerError(name, self._servers)

    @override
    async def stop_instance(self, instance: InstanceId, *, force: bool, verify: bool) -> StopAnswer:
        raise UnknownInstanceError(instance)

    @override
    async def restart(
        self, name: ServerName, session: SessionKey, *, force: bool, verify: bool
    ) -> RestartAnswer:
        raise UnknownServerError(name, self._servers)

    @override
    async def reload(self) -> ReloadAnswer:
        self._events.record("fake_reloaded")
        return ReloadAnswer(
            unchanged=(), changed=(), retuned=(), added=(), removed=(), warnings=(), reports=()
        )

    @override
    async def metrics_text(self) -> bytes:
        return b""

    @override
    async def release(self, instance: InstanceId) -> CleanupReport:
        raise UnknownInstanceError(instance)

    @property
    @override
    def runtimes(self) -> None:
        return None

    @override
    async def stop_all(self, reason: Reason, *, budget_s: float) -> Summary:
        self._events.record("all_asked_to_stop", reason=reason, budget_s=budget_s)
        if "FAKE_STUBBORN" in os.environ:
            await self._forced.wait()
        return Summary(confirmed=2, unconfirmed=int(os.environ.get("FAKE_UNCONFIRMED", "0")))

    @override
    def force_stops(self) -> None:
        self._events.record("all_forced")
        self._forced.set()

    @override
    async def serve_clients(
        self, listener: socket.socket, greetings: Mapping[str, Greeted]
    ) -> None:
        if "FAKE_DIES" in os.environ:
            message = "a bug in the clients' task"
            raise ZeroDivisionError(message)
        # what is under test is the listener that we are handed, so it is used as it is
        while True:
            await anyio.wait_readable(listener)
            client, _ = listener.accept()
            with client:
                client.sendall(client.recv(100))

    @override
    def children_changed(self) -> None:
        self._events.record("child_changed")


@asynccontextmanager
async def open_fake(
    configuration: Configuration,
    places: Places,
    events: EventLog,
    *,
    original_nofile: tuple[int, int],
    original_umask: int,
) -> AsyncIterator[FakeManager]:
    """The fake, unless the environment says that it cannot be had."""
    if "FAKE_GATE" in os.environ:
        Path(os.environ["FAKE_GATE"]).read_bytes()  # noqa: ASYNC240 - nothing else is to happen
    match os.environ.get("FAKE_REFUSES"):
        case "os":
            message = "The fork server cannot be started: no more processes."
            raise KernelError(message)
        case "bug":
            message = "not foreseen"
            raise ZeroDivisionError(message)
        case "killed":
            signal.raise_signal(signal.SIGKILL)
        case _:
            pass
    events.record("manager_opened", original_nofile=original_nofile, original_umask=original_umask)
    yield FakeManager(configuration, places, events)
    events.record("manager_closed")


if __name__ == "__main__":
    # the seam of the shell: both take the manager as a parameter
    run.run_in_foreground = partial(
        run.run_in_foreground,
        open_manager=open_fake,
        look_every_s=float(os.environ.get("FAKE_LOOK_EVERY_S", "5")),
    )
    detach.start_detached = partial(detach.start_detached, open_manager=open_fake)
    main()
