"""Serves `mcp.sock`: one greeting line of JSON, one line of answer, then raw bytes.

`{"connect": {…}}` gives the client a private instance, `{"stderr": {…}}` the bytes that a server
writes on its stderr.

Source: design section 9.
"""

import json
import os
import socket
from typing import TYPE_CHECKING, Final, cast

import anyio
import structlog

from supervisor.core.errors import RequestError, SupervisorError
from supervisor.core.exits import exit_of_code
from supervisor.core.ids import InstanceId, ServerName
from supervisor.linux.pipes import Sink, Source
from supervisor.linux.unix_socket import peer_credentials
from supervisor.manager.attachment import HIGH_WATER_BYTES, Attachment

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervisor.manager.manager import Manager

GREETING_BYTES: Final = 65536
"""Far more than a greeting needs; a client that sends more has mistaken the socket."""

GREETING_PATIENCE_S: Final = 10.0
"""How long a connection may stay without a greeting."""

BUSY_S: Final = 0.1
"""How long to wait when a connection cannot be accepted, for want of descriptors."""

VERSION: Final = 1

UNKNOWN_VERSION: Final = "its greeting needs `version` 1 and a `server`; update mcpctl"
NO_SESSIONS: Final = "named sessions are not served yet; connect without --session"
NO_GREETING: Final = "it did not greet with a line of JSON; use `mcpctl connect NAME`"

_log = structlog.get_logger(__name__)


class GreetingError(RequestError):
    """What a client said first cannot be understood, or not be served."""

    code = "greeting_refused"

    def __init__(self, why: str) -> None:
        super().__init__(f"The connection is refused: {why}.")


async def serve(listener: socket.socket, host: "Manager") -> None:
    """Accept clients until cancelled; the listener is closed at the end."""
    with listener:
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.wait_readable(listener)
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    continue
                except OSError as error:
                    _log.warning("client_not_accepted", errno=error.errno)
                    await anyio.sleep(BUSY_S)
                    continue
                tasks.start_soon(_serve_one, connection, host)


async def _serve_one(connection: socket.socket, host: "Manager") -> None:
    client = _Client(connection)
    try:
        request = await client.greeting()
        match request:
            case {"connect": dict(wanted)}:
                await _connect(client, wanted, host)
            case {"stderr": dict(wanted)}:
                await _stderr(client, wanted, host)
            case None:
                pass
            case _:
                client.refuse(GreetingError("it asks neither for `connect` nor for `stderr`"))
    except SupervisorError as error:
        client.refuse(error)
    except Exception:  # noqa: BLE001 - one client's trouble is not the others'
        _log.exception("client_failed", pid=client.peer.pid)
    finally:
        client.close()


async def _connect(client: "_Client", wanted: dict[str, object], host: "Manager") -> None:
    name, cwd = wanted.get("server"), wanted.get("cwd")
    if wanted.get("version") != VERSION or not isinstance(name, str):
        raise GreetingError(UNKNOWN_VERSION)
    if wanted.get("session") is not None:
        raise GreetingError(NO_SESSIONS)
    directory = cwd if isinstance(cwd, str) and cwd.startswith("/") else None
    held = await host.spawn(host.record(ServerName(name)), None, directory)
    instance = held.instance
    host.clients[instance.id] += 1
    host.events.record(
        "client_connected",
        server=instance.server,
        instance=instance.id,
        caller=f"pid {client.peer.pid} uid {client.peer.uid}",
    )
    attachment = Attachment(client.source, client.sink, held)
    client.on_end = attachment.source_ended
    client.answer({"connected": {"instance": instance.id, "session": None}})
    attachment.begin(client.take_early())
    await instance.wait_settled()
    host.clients.pop(instance.id, None)
    attachment.end()
    await client.flushed()


async def _stderr(client: "_Client", wanted: dict[str, object], host: "Manager") -> None:
    instance = InstanceId(str(wanted.get("instance")))
    held = host.custody.held.get(instance)
    if held is None:
        client.sink.write(_lines(host.report(instance).last_stderr))
        await client.flushed()
        return
    tail = held.family.tail

    def copy(data: bytes) -> None:
        # a shim that does not read loses lines; it shall not hold up the server
        if client.sink.waiting_bytes < HIGH_WATER_BYTES:
            client.sink.write(data)

    client.sink.write(_lines(tail.lines()))
    tail.follow(copy)
    try:
        await held.instance.wait_settled()
    finally:
        tail.unfollow(copy)
    await client.flushed()


def _lines(lines: tuple[str, ...]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _nothing() -> None:
    """Before there is an instance, nobody needs to know that the client left."""


class _Client:
    """One connection: two descriptors of the same socket, so that each side ends by itself."""

    def __init__(self, connection: socket.socket) -> None:
        self.peer = peer_credentials(connection)
        self.on_end: Callable[[], None] = _nothing
        self._early = b""
        self._news = anyio.Event()
        self._drained = anyio.Event()
        self._drained.set()
        fd = connection.detach()
        self.sink = Sink(os.dup(fd))
        self.source = Source(fd, self._take, self._ended)

    async def greeting(self) -> object:
        """The first line, parsed; None when the client left or took too long."""
        with anyio.move_on_after(GREETING_PATIENCE_S):
            while b"\n" not in self._early:
                if self.source.ended:
                    return None
                if len(self._early) > GREETING_BYTES:
                    raise GreetingError(NO_GREETING)
                await self._news.wait()
                self._news = anyio.Event()
            line, _, self._early = self._early.partition(b"\n")
            try:
                return cast("object", json.loads(line))
            except ValueError:
                raise GreetingError(NO_GREETING) from None
        return None

    def take_early(self) -> bytes:
        """What came behind the greeting."""
        early, self._early = self._early, b""
        return early

    def answer(self, body: dict[str, object]) -> None:
        """Send one line."""
        self.sink.write(json.dumps(body).encode() + b"\n")

    def refuse(self, error: SupervisorError) -> None:
        """Say why there is nothing to be had."""
        _log.info("client_refused", code=error.code, pid=self.peer.pid)
        code = exit_of_code(error.code)
        self.answer({"error": {"code": error.code, "message": str(error), "exit_code": code}})

    async def flushed(self) -> None:
        """Wait until everything is written, or the client is gone."""
        with anyio.move_on_after(GREETING_PATIENCE_S):
            await self.sink.wait_empty()

    def close(self) -> None:
        """Close both directions, what is written still arrives."""
        self.source.close()
        self.sink.end()

    def _take(self, data: bytes) -> None:
        self._early += data
        self._news.set()

    def _ended(self) -> None:
        self._news.set()
        self.on_end()
