"""Who stands at the other end of a byte channel: a client's connection, or the daemon itself."""

from typing import Protocol

from supervisor.core.call_errors import CallError, ServerGoneError


class Peer(Protocol):
    """One client of a channel. All methods are called from the event loop and must not block."""

    @property
    def is_client(self) -> bool:
        """Whether it is somebody else than the daemon."""

    def deliver(self, data: bytes) -> None:
        """Take one or more whole lines, each with its newline."""

    def fail(self, id_token: bytes, error: CallError) -> None:
        """One request of this peer gets no answer of the server's, but `error`."""

    def pause(self) -> None:
        """Send nothing for now: the server does not read."""

    def resume(self) -> None:
        """Send again."""

    def channel_ended(self, error: ServerGoneError, failed: int) -> None:
        """The server is gone; `failed` requests of this peer have failed with it."""
