"""What a channel has seen of its server's handshake: whether it answers, and in which revision.

`ready` is what was observed, never what was configured.
"""

import json
from collections.abc import Callable
from typing import Final, cast

import anyio

NEWEST: Final = "2026-07-28"
"""What a server speaks that answers `server/discover`."""


class HandshakeSeen:
    """The handshake of one server process.

    Attributes:
        ready: whether the server has answered.
        protocol_version: what it answered; None before, and where it did not say.
        on_ready: called when it has answered.
    """

    def __init__(self) -> None:
        self.ready = False
        self.protocol_version: str | None = None
        self.on_ready: Callable[[], None] = _nothing
        self._answer = anyio.Event()

    async def wait_answer(self) -> None:
        """Wait for the first answer to `initialize`, be it an error."""
        await self._answer.wait()

    def answered(self, method: str, line: bytes) -> None:
        """The server answered `initialize` or `server/discover`."""
        try:
            body = cast("object", json.loads(line))
        except (ValueError, RecursionError):
            return
        match body:
            case {"result": {"protocolVersion": str(version)}}:
                self.ready, self.protocol_version = True, version
            case {"result": {"supportedVersions": list()}}:
                self.ready, self.protocol_version = True, NEWEST
            case _:
                pass  # an error: a server of the older revisions refuses `server/discover`
        if method == "initialize" or self.ready:
            self._answer.set()
        if self.ready:
            self.on_ready()


def _nothing() -> None:
    """Nobody wants to know."""
