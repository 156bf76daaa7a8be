"""`/metrics` and `/healthz` for a Prometheus on this machine, over TCP on a loopback address.

Every local user can reach it, hence: two paths and nothing else, few connections, each of one
request and a few seconds, and counters that are collected once a second at most. A browser that
was lured here is refused by the names in Host and Origin.

Source: design section 17; RFC 9110 section 7.2 (Host); Fetch, section 3.2 (Origin).
"""

import asyncio  # noqa: TID251 - uvicorn's protocols are asyncio's
import contextlib
import ipaddress
import logging
import os
import socket
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from supervisor.api.routes.metrics import CollectMetrics
from supervisor.api.server import ApiServer
from supervisor.core.errors import KernelError
from supervisor.telemetry.metrics import CONTENT_TYPE

MAX_CONNECTIONS: Final = 16
"""One scraper needs one; a person with curl another."""

CONNECTION_S: Final = 10.0
"""How long a connection may last: Prometheus gives up after ten seconds by default."""

KEPT_S: Final = 1.0
"""How old an answer may be. A scrape looks at all processes, so a flood of them must not."""

_quiet = logging.getLogger("supervisor.metrics_listener")
_quiet.setLevel(logging.ERROR)  # uvicorn warns of every request that is no HTTP


def bind_loopback(address: tuple[str, int]) -> socket.socket:
    """Bind the address of `supervisor.metrics.listen`.

    Args:
        address: literal and loopback, which the configuration has made sure of, and a port; 0
            takes any free one.

    Returns:
        A bound socket, not yet listening, that the caller closes.

    Raises:
        KernelError: the OS refused, for instance because the port is taken.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno or 0)
        message = f"supervisor.metrics.listen: {host} port {port} cannot be used: {reason}."
        raise KernelError(message) from error
    return listener


class MetricsServer(ApiServer):
    """Serves the two paths; `run_until_stopped` and `stop` are those of the control API."""

    def __init__(self, metrics: CollectMetrics) -> None:
        super().__init__(metrics_app(metrics))
        self.config.headers.append(("connection", "close"))  # one request each

    @override
    def _protocol(self) -> "_BoundedProtocol":  # type: ignore[override] # no peer to know on TCP
        return _BoundedProtocol(self.config, self.server_state, self.lifespan.state)


def metrics_app(metrics: CollectMetrics) -> ASGIApp:
    """The two paths as an ASGI application that answers loopback names only."""
    kept = _Kept(metrics)

    async def show_metrics(_request: Request) -> Response:
        return Response(await kept.collect(), media_type=CONTENT_TYPE)

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    routes = [Route("/metrics", show_metrics), Route("/healthz", healthz)]
    return _LoopbackOnly(Starlette(routes=routes))


class _Kept:
    """Collects for all who ask within one second."""

    def __init__(self, metrics: CollectMetrics) -> None:
        self._metrics = metrics
        self._lock = anyio.Lock()
        self._answer = b""
        self._collected_at = float("-inf")

    async def collect(self) -> bytes:
        async with self._lock:
            if anyio.current_time() - self._collected_at >= KEPT_S:
                self._answer = await self._metrics()
                self._collected_at = anyio.current_time()
            return self._answer


class _LoopbackOnly:
    """Refuses requests for other names: DNS can point any name at this address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        hosts = [f"//{host}" for host in request.headers.getlist("host")]
        origins = request.headers.getlist("origin")
        if len(hosts) == 1 and all(map(_is_loopback, hosts + origins)):
            await self._app(scope, receive, send)
            return
        sentence = "This address answers to loopback names only, such as 127.0.0.1.\n"
        await PlainTextResponse(sentence, 403)(scope, receive, send)


class _BoundedProtocol(H11Protocol):
    """One connection: a few seconds long, and only while there are few others."""

    def __init__(self, *args: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args)
        self.logger = _quiet
        self._end: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._end = self.loop.call_later(CONNECTION_S, transport.abort)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)


def _is_loopback(url: str) -> bool:
    """Whether the authority of `url` is a loopback address or `localhost`, with any port."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        host = parts.hostname or ""
        if "@" in parts.netloc or parts.path not in {"", "/"}:
            return False
        return host == "localhost" or _is_plain(ipaddress.ip_address(host))
    return False


def _is_plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it is loopback, and not as an IPv4 address inside an IPv6 one."""
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None
