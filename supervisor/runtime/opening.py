"""What a connection needs to come into being: an instance of its server, with a channel.

The layer above has processes to give; here is what is asked of it.
"""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

import anyio

from supervisor.config.models import Server
from supervisor.core.call_errors import CallError
from supervisor.core.ids import ServerName, SessionKey
from supervisor.core.negotiation import Handshake
from supervisor.transport.channel import Channel


class Opened(Protocol):
    """One instance that the daemon may use as a client of its own."""

    negotiated: Handshake | None
    """The handshake that was made with it; None before."""

    probing: bool
    """Whether its server is being asked for its revision, which some do not survive."""

    @property
    def negotiating(self) -> anyio.Lock:
        """Held while the handshake is made."""

    @property
    def channel(self) -> Channel:
        """Its byte channel."""


class Opens(Protocol):
    """Gives instances to those who ask in the name of a session."""

    def enabled(self) -> tuple[ServerName, ...]:
        """The servers that a session may have, sorted."""

    def record(self, name: ServerName) -> Server:
        """The record of a configured server.

        Raises:
            UnknownServerError: there is no such server.
        """

    async def wait_turn(self, name: ServerName, session: SessionKey) -> None:
        """Wait until a server that failed before may be started again.

        Raises:
            ServerBackingOffError: that is too long.
        """

    def cold_start(self) -> AbstractAsyncContextManager[object]:
        """Wait for a turn to start and to handshake; turns are bounded for the whole daemon."""

    async def open(self, name: ServerName, session: SessionKey) -> Opened:
        """Find the instance for the daemon's own use, or start one.

        Raises:
            SupervisorError: there is none and it cannot be started; every subclass says why.
        """

    async def retire(self, opened: Opened) -> None:
        """End an instance that did not survive the question for its revision; not a crash."""

    def in_use(self, opened: Opened, session: SessionKey) -> AbstractContextManager[None]:
        """Keep an instance and a session from idling while a request is under way."""

    def era(self, name: ServerName) -> Handshake | None:
        """What a server with this configuration answered last; None if unknown."""

    def remember_era(self, name: ServerName, handshake: Handshake) -> None:
        """It answered this."""

    def note_failed(self, name: ServerName, error: CallError) -> None:
        """A server runs and did not get ready."""

    def note_unchecked(self, name: ServerName, tool: str, why: str) -> None:
        """Arguments or a result of a tool were passed on without a check."""
