"""What the lifecycle needs of the manager, which has it without knowing this file."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from supervisor.api.control import Control
from supervisor.config.models import Configuration
from supervisor.core.places import Places
from supervisor.core.report import Reason
from supervisor.manager.clients import Greeted
from supervisor.manager.runtimes import Runtimes
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.server_logs import ServerLogs


class StopSummary(Protocol):
    """How the daemon's own stop ended, in instances."""

    @property
    def confirmed(self) -> int:
        """Cleanups that are confirmed."""

    @property
    def unconfirmed(self) -> int:
        """Cleanups that are not, those from before the stop included."""


class Manager(Control, Protocol):
    """Owns all instances, from `open_manager` until it is closed.

    Attributes:
        configuration: as it is now; a reload exchanges it.
        logs: what servers write on stderr; None where nothing is kept.
    """

    configuration: Configuration
    logs: ServerLogs | None

    async def metrics_text(self) -> bytes:
        """What Prometheus reads."""

    async def stop_all(self, reason: Reason, *, budget_s: float) -> StopSummary:
        """Stop every instance in parallel; answers within `budget_s` seconds."""

    def force_stops(self) -> None:
        """Hurry every stop that is under way."""

    @property
    def runtimes(self) -> Runtimes | None:
        """The sessions; None where there are none to be had."""

    async def serve_clients(
        self, listener: socket.socket, greetings: Mapping[str, Greeted]
    ) -> None:
        """Serve the clients of `mcp.sock` on a listening, non-blocking socket until cancelled."""

    def children_changed(self) -> None:
        """SIGCHLD came: some child of ours has changed its state."""


class OpenManager(Protocol):
    """Opens the manager: subreaper, fork server, sweep of what an earlier run left."""

    def __call__(
        self,
        configuration: Configuration,
        places: Places,
        events: EventLog,
        *,
        original_nofile: tuple[int, int],
        original_umask: int,
    ) -> AbstractAsyncContextManager[Manager]:
        """A manager for the time of the context."""


Listen = Callable[[socket.socket], Awaitable[None]]
"""Takes a new socket into service, beside those in service already."""
