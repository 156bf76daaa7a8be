"""Serves an ASGI application with uvicorn on Unix sockets that somebody else has bound.

uvicorn's own way leaves a socket 0666, takes SIGTERM and SIGINT, and looks ten times a second
whether it should stop. Here the sockets come from outside, signals are the daemon's, and an idle
server does not wake up.

Source: uvicorn 0.54, `Server` and `H11Protocol`.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator
from typing import Final

import anyio
import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from supervisor.linux.unix_socket import peer_credentials

GRACEFUL_STOP_S: Final = 1
"""Whole seconds for answers under way. All stops are decided by then, so those are short; it
stays well inside the service manager's own patience."""

_BACKLOG: Final = 128


class ApiServer(uvicorn.Server):
    """One server, for any number of listening sockets, over one event loop."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=_PeerProtocol,
                ws="none",
                lifespan="off",
                log_config=None,  # telemetry has set up the standard library's logging
                access_log=False,  # the application writes its own line, with the peer
                proxy_headers=False,
                date_header=False,  # it would need a tick every second
                server_header=False,
                timeout_graceful_shutdown=GRACEFUL_STOP_S,
            )
        )
        self._listeners: tuple[socket.socket, ...] = ()
        self._on_serving: Callable[[], None] = lambda: None
        self._stop = anyio.Event()

    async def run_until_stopped(
        self, *listeners: socket.socket, on_serving: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until `stop`. What has not finished one second after that is cut off.

        Args:
            listeners: bound Unix sockets; closed at the end.
            on_serving: called once, when connections are accepted.
        """
        self._listeners = listeners
        self._on_serving = on_serving
        try:
            await self.serve(sockets=[])
        finally:
            for server in getattr(self, "servers", ()):  # uvicorn makes the list at its start
                server.close()
            for connection in list(self.server_state.connections):
                connection.transport.abort()  # cut off, not kept open for a reader that is gone
            for listener in listeners:
                listener.close()

    def stop(self) -> None:
        """Accept nothing more and let what is under way finish; returns at once."""
        self._stop.set()

    async def listen(self, listener: socket.socket) -> None:
        """Accept connections on a bound Unix socket, beside those that are served already."""
        server = await asyncio.get_running_loop().create_server(
            self._protocol, sock=listener, backlog=_BACKLOG
        )
        self.servers.append(server)

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Take none."""
        yield

    @override
    async def main_loop(self) -> None:
        """Accept, then wait for `stop` instead of asking for it."""
        await self.on_tick(0)  # it sets the default headers
        for listener in self._listeners:
            await self.listen(listener)
        self._on_serving()
        await self._stop.wait()

    def _protocol(self) -> "_PeerProtocol":
        return _PeerProtocol(self.config, self.server_state, self.lifespan.state)


class _PeerProtocol(H11Protocol):
    """Puts the caller's credentials into the scope: `request.state.peer`."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        super().connection_made(transport)
        self.app_state = {
            **self.app_state,
            "peer": peer_credentials(transport.get_extra_info("socket")),
        }
