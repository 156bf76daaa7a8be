"""Serves `mcp.sock`: one greeting line of JSON, one line of answer, then raw bytes.

`{"connect": {…}}` gives the client a private instance, or that of a named session;
`{"stderr": {…}}` the bytes that a server writes on its stderr.

Source: design section 9.
"""

import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

import anyio
import structlog

from supervisor.core.errors import RequestError, SupervisorError
from supervisor.core.exits import exit_of_code
from supervisor.core.ids import SHARED, InstanceId, ServerName, SessionKey, is_session_key
from supervisor.linux.pipes import Sink, Source
from supervisor.linux.unix_socket import peer_credentials
from supervisor.manager.private_link import HIGH_WATER_BYTES, PrivateLink
from supervisor.manager.session_link import SessionLink
from supervisor.process.instance import Instance

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager

GREETING_BYTES: Final = 65536
"""Far more than a greeting needs; a client that sends more has mistaken the socket."""

EARLY_BYTES: Final = 1048576
"""What a client may send before there is a server for it; the rest waits in its own pipe."""

GREETING_PATIENCE_S: Final = 10.0
"""How long a connection may stay without a greeting."""

BUSY_S: Final = 0.1
"""How long to wait when a connection cannot be accepted, for want of descriptors."""

VERSION: Final = 1

UNKNOWN_VERSION: Final = "its greeting needs `version` 1 and a `server`; update mcpctl"
BAD_SESSION: Final = "a session key is 1 to 128 characters out of A-Z a-z 0-9 . _ : @ -"
NO_GREETING: Final = "it did not greet with a line of JSON; use `mcpctl connect NAME`"

_log = structlog.get_logger(__name__)


class GreetingError(RequestError):
    """What a client said first cannot be understood, or not be served."""

    code = "greeting_refused"

    def __init__(self, why: str) -> None:
        super().__init__(f"The connection is refused: {why}.")


async def serve(
    listener: socket.socket, host: "Manager", greetings: "Mapping[str, Greeted]"
) -> None:
    """Accept clients until cancelled; the listener is closed at the end.

    Args:
        listener: of `mcp.sock`, listening, non-blocking.
        host: has the servers.
        greetings: what other layers make of greetings of their own, by the greeting's word.
    """
    known: Mapping[str, Greeted] = {"connect": _connect, "stderr": _stderr, **greetings}
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
                tasks.start_soon(_serve_one, connection, host, known)


async def _serve_one(
    connection: socket.socket, host: "Manager", known: "Mapping[str, Greeted]"
) -> None:
    try:
        client = ClientConnection(connection)
    except OSError as error:  # out of descriptors, or the client is gone
        _log.warning("client_not_accepted", errno=error.errno)
        connection.close()
        return
    try:
        request = await client.greeting()
        if request is not None:
            word, wanted = _read(request, known)
            await known[word](client, wanted, host)
    except SupervisorError as error:
        client.refuse(error)
    except Exception:  # noqa: BLE001 - one client's trouble is not the others'
        _log.exception("client_failed", pid=client.peer.pid)
    finally:
        client.close()


def _read(request: object, known: "Mapping[str, Greeted]") -> tuple[str, dict[str, object]]:
    """What a greeting asks for."""
    if isinstance(request, dict):
        for word, wanted in cast("dict[str, object]", request).items():
            if word in known and isinstance(wanted, dict):
                return word, cast("dict[str, object]", wanted)
    why = f"it asks for none of {', '.join(known)}"
    raise GreetingError(why)


async def _connect(client: "ClientConnection", wanted: dict[str, object], host: "Manager") -> None:
    name, cwd, session = wanted.get("server"), wanted.get("cwd"), wanted.get("session")
    if wanted.get("version") != VERSION or not isinstance(name, str):
        raise GreetingError(UNKNOWN_VERSION)
    directory = cwd if isinstance(cwd, str) and cwd.startswith("/") else None
    shared = host.record(ServerName(name)).scope == "shared"
    if session is None and not shared:
        await _serve_private(client, host, ServerName(name), directory)
    elif session is None:
        await _serve_session(client, host, ServerName(name), SHARED, None)
    elif isinstance(session, str) and is_session_key(session):
        await _serve_session(client, host, ServerName(name), SessionKey(session), directory)
    else:
        raise GreetingError(BAD_SESSION)


async def _serve_private(
    client: "ClientConnection", host: "Manager", name: ServerName, cwd: str | None
) -> None:
    channel = await host.spawn(host.record(name), None, cwd)
    instance = channel.held.instance
    _tell(host, "client_connected", client, instance)
    async with anyio.create_task_group() as tasks:
        link = PrivateLink(client.source, client.sink, channel, tasks)
        client.on_end = link.source_ended
        client.answer({"connected": {"instance": instance.id, "session": None}})
        link.begin(client.take_early())
        await instance.wait_settled()
        link.end()
        tasks.cancel_scope.cancel()
    await client.flushed()


async def _serve_session(
    client: "ClientConnection",
    host: "Manager",
    name: ServerName,
    session: SessionKey,
    cwd: str | None,
) -> None:
    record = host.record(name)
    where = None if record.cwd_given else cwd
    first = await host.sessions.ensure(name, session, where, None)
    instance = first.channel.held.instance
    _tell(host, "client_connected", client, instance)
    whose = client.peer.pid, instance.id
    over = anyio.Event()
    async with anyio.create_task_group() as tasks:
        link = SessionLink(
            client.source,
            client.sink,
            name,
            session,
            where,
            channels=host.sessions,
            tasks=tasks,
            max_line_bytes=record.calls.max_line_bytes,
            max_queue_bytes=host.configuration.settings.max_client_queue_bytes,
            on_move=lambda one: host.taps.move(whose, one.channel.held.family.tail),
            on_end=over.set,
        )
        client.on_end = link.source_ended
        client.answer({"connected": {"instance": instance.id, "session": session}})
        link.begin(first, client.take_early())
        try:
            await over.wait()
        finally:
            link.end()
        tasks.cancel_scope.cancel()
    _tell(host, "client_disconnected", client, instance)
    await client.flushed()


def _tell(host: "Manager", name: str, client: "ClientConnection", instance: Instance) -> None:
    host.events.record(
        name,
        server=instance.server,
        instance=instance.id,
        session=instance.session,
        caller=f"pid {client.peer.pid} uid {client.peer.uid}",
    )


async def _stderr(client: "ClientConnection", wanted: dict[str, object], host: "Manager") -> None:
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

    client.source.redirect(_discard)  # nothing is expected here
    client.sink.write(_lines(tail.lines()))
    whose = client.peer.pid, instance
    tap = host.taps.open(whose, copy, tail)
    try:
        if held.instance.session is None:
            await held.instance.wait_settled()
        else:
            await client.ended()  # the client's server may be another one by then
    finally:
        host.taps.close(whose, tap)
    await client.flushed()


def _lines(lines: tuple[str, ...]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _discard(_data: bytes) -> None:
    """What such a connection sends is nobody's."""


def _nothing() -> None:
    """Before there is an instance, nobody needs to know that the client left."""


Greeted = Callable[["ClientConnection", dict[str, object], "Manager"], Awaitable[None]]
"""Serves one client that has greeted; returns when it is done with it."""


class ClientConnection:
    """One connection: two descriptors of the same socket, so that each side ends by itself."""

    def __init__(self, connection: socket.socket) -> None:
        self.peer = peer_credentials(connection)
        self.on_end: Callable[[], None] = _nothing
        self._early = b""
        self._news = anyio.Event()
        self.sink = Sink(os.dup(connection.fileno()))
        self.source = Source(connection.detach(), self._take, self._ended)

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

    async def ended(self) -> None:
        """Wait until the client has closed its side."""
        while not self.source.ended:
            self._news = anyio.Event()
            await self._news.wait()

    def take_early(self) -> bytes:
        """What came behind the greeting."""
        early, self._early = self._early, b""
        self.source.resume()
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
        if len(self._early) > EARLY_BYTES:
            self.source.pause()  # until there is a server to send it to
        self._news.set()

    def _ended(self) -> None:
        self._news.set()
        self.on_end()
