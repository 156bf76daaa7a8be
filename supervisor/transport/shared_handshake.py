"""The handshake of a server process that several clients use one after another, or at once.

It is made once, with what the first client says of itself, and kept. A client that says the same
(protocol version, capabilities, name) is answered from what was kept; the server never sees a
second `initialize`, which most of them would refuse.

Source: design section 9; MCP 2025-11-25, lifecycle.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast

import anyio

from supervisor.core.call_errors import CallError
from supervisor.core.envelope import Kind, read_envelope
from supervisor.core.errors import InternalError
from supervisor.core.json_spans import find_span
from supervisor.core.negotiation import Handshake, read_initialize
from supervisor.transport.caller import Caller, dump, result_of
from supervisor.transport.channel import Channel

if TYPE_CHECKING:
    from pydantic import JsonValue

ANYBODY: Final = "anybody"
"""The identity of all clients of a shared server: it has one handshake, whoever makes it."""

MODERN: Final = "modern"
"""What tells clients apart that make no handshake: nothing, as each request says it all."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a client says of itself in `initialize`.

    Attributes:
        identity: equal for clients that a server cannot tell apart.
        params: of its request, as they came.
        roots: whether it will tell of changed roots.
    """

    identity: str
    params: bytes
    roots: bool


def read_hello(line: bytes) -> Hello | None:
    """Read an `initialize` request; None where its params are none."""
    span = find_span(line, ("params",))
    if span is None:
        return None
    params = line[slice(*span)]
    try:
        body = cast("object", json.loads(params))
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    said = cast("dict[str, object]", body)
    client = said.get("clientInfo")
    name = cast("dict[str, object]", client).get("name") if isinstance(client, dict) else None
    capabilities = said.get("capabilities")
    seen = {
        "capabilities": capabilities,
        "name": name,
        "protocolVersion": said.get("protocolVersion"),
    }
    digest = sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()
    roots = isinstance(capabilities, dict) and "roots" in capabilities
    return Hello(digest, params, roots)


class SharedHandshake:
    """The handshake of one channel.

    Attributes:
        identity: whose it is; None while nobody has made one.
    """

    def __init__(self, channel: Channel, turn: anyio.Lock) -> None:
        self.identity: str | None = None
        self._channel = channel
        self._turn = turn
        self._answer: bytes | None = None
        self._attempt: _Attempt | None = None

    def claim(self, identity: str) -> bool:
        """Whether a client of this identity may use the channel; the first one decides."""
        if self.identity is None:
            self.identity = identity
        return self.identity in {identity, ANYBODY}

    def adopt(self, handshake: Handshake) -> None:
        """Keep the handshake that the daemon made, for clients that come later."""
        if handshake.era == "legacy" and self._answer is None:
            result: dict[str, JsonValue] = {
                "protocolVersion": handshake.protocol_version,
                "capabilities": dict(handshake.capabilities),
                "serverInfo": dict(handshake.server_info),
            }
            if handshake.instructions is not None:
                result["instructions"] = handshake.instructions
            self._answer = b'{"jsonrpc":"2.0","id":0,"result":%b}' % dump(result)

    def as_negotiated(self) -> Handshake | None:
        """The handshake that a client made, for the daemon's own use; None where there is none."""
        if self._answer is None:
            return None
        try:
            read = read_initialize(
                result_of(self._channel.server, "initialize", self._answer), "remembered"
            )
        except CallError:
            return None
        return read if isinstance(read, Handshake) else None

    async def make(self, hello: Hello) -> tuple[bytes, bool]:
        """Make the handshake, or take the one that was made.

        Returns:
            The server's answer line, with an id of ours, and whether it was kept before. An
            error of the server is an answer too; it is not kept.

        Raises:
            CallError: the server gave none.
        """
        if self._answer is not None:
            return self._answer, True
        attempt, kept = self._attempt, True
        if attempt is None:
            if self._channel.ended is not None:
                raise self._channel.ended
            attempt, kept = _Attempt(), False
            self._attempt = attempt
            # of the channel, not of the client: it may leave, and the server has been asked
            self._channel.tasks.start_soon(self._shake, hello, attempt)
        await attempt.over.wait()
        if attempt.answer:
            return attempt.answer, kept
        if attempt.error is not None:
            raise attempt.error
        why = f"the handshake with {self._channel.server!r} was given up"
        raise InternalError(why)

    async def _shake(self, hello: Hello, attempt: "_Attempt") -> None:
        """Make the handshake; the channel limits it, and ends an instance that makes none."""
        try:
            async with self._turn:  # the daemon may be making one of its own
                attempt.answer = self._answer or await self._ask(hello)
        except CallError as error:
            attempt.error = error
            self.identity = None
        finally:
            self._attempt = None
            attempt.over.set()

    async def _ask(self, hello: Hello) -> bytes:
        caller = Caller(self._channel)
        try:
            line = await caller.request_line("initialize", hello.params, limit_s=float("inf"))
            if find_span(line, ("result",)) is None:
                self.identity = None
            else:
                caller.notify("notifications/initialized")
                self._answer = line
        finally:
            caller.close()
        return line


class _Attempt:
    """A handshake under way, and what came of it."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.answer = b""
        self.error: CallError | None = None


def with_id(line: bytes, id_token: bytes) -> bytes:
    """An answer line with the id of another request."""
    envelope = read_envelope(line)
    if envelope.kind is not Kind.RESPONSE or envelope.id_span is None:
        return line
    start, end = envelope.id_span
    return line[:start] + id_token + line[end:]


ROOTS_CHANGED: Final = b'{"jsonrpc":"2.0","method":%b}' % dump("notifications/roots/list_changed")
