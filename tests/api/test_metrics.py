"""`/metrics`: on the control socket, and for a scraper on a loopback address."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio
import httpx2
import pytest
from anyio.abc import TaskStatus
from prometheus_client.parser import text_string_to_metric_families

from supervisor.api import metrics_listener
from supervisor.api.app import create_app
from supervisor.api.metrics_listener import MAX_CONNECTIONS, MetricsServer, bind_loopback
from supervisor.api.routes.metrics import CollectMetrics
from supervisor.api.server import ApiServer
from supervisor.core.errors import KernelError
from supervisor.core.views import QueueView
from supervisor.linux.unix_socket import bind_private
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.metrics import Metrics, MetricsSnapshot

if TYPE_CHECKING:
    from supervisor.api.control import Control

pytestmark = pytest.mark.anyio


@dataclass
class Collecting:
    """Makes real metrics, and counts how often it is asked.

    Attributes:
        allowed: answers wait for it.
    """

    times: int = 0
    allowed: anyio.Event = field(default_factory=anyio.Event)
    metrics: Metrics = field(default_factory=lambda: Metrics(["git"], version="0.1.0"))

    async def __call__(self) -> bytes:
        """One collection."""
        self.times += 1
        await self.allowed.wait()
        queue = QueueView(starting=0, waiting=0)
        return self.metrics.collect(
            MetricsSnapshot(instances={}, sessions=2, queue=queue, survivors=0)
        )


@asynccontextmanager
async def served(server: ApiServer, listener: socket.socket) -> AsyncIterator[None]:
    """The server until the end of the block."""

    async def run(*, task_status: TaskStatus[None]) -> None:
        await server.run_until_stopped(listener, on_serving=task_status.started)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            await tasks.start(run)
            yield
            server.stop()


@dataclass
class Scraped:
    """A listener that is served, and what is behind it."""

    collecting: Collecting
    server: MetricsServer
    address: tuple[str, int]
    client: httpx2.AsyncClient


@pytest.fixture
async def scraped() -> AsyncIterator[Scraped]:
    """The listener for one test."""
    collecting, listener = Collecting(), bind_loopback(("127.0.0.1", 0))
    collecting.allowed.set()
    server, address = MetricsServer(collecting), listener.getsockname()
    base = f"http://127.0.0.1:{address[1]}"
    async with (
        served(server, listener),
        httpx2.AsyncClient(base_url=base, timeout=5, trust_env=False) as client,
    ):
        yield Scraped(collecting, server, address, client)


def app_with(metrics: CollectMetrics | None) -> ApiServer:
    """The control API, of which only `/metrics` is used."""

    def stop(*, force: bool, caller: str) -> None:
        """Nobody asks."""

    events = EventLog(run="00c0ffee")
    unused = cast("Control", None)
    return ApiServer(
        create_app(unused, events, lambda: True, request_shutdown=stop, metrics=metrics)
    )


async def get_from(server: ApiServer, path: Path) -> httpx2.Response:
    """The answer to `GET /metrics` on a Unix socket."""
    bound = bind_private(str(path))
    transport = httpx2.AsyncHTTPTransport(uds=str(path))
    try:
        async with (
            served(server, bound.socket),
            httpx2.AsyncClient(transport=transport, base_url="http://daemon") as client,
        ):
            return await client.get("/metrics")
    finally:
        bound.remove()


def check_metrics(response: httpx2.Response) -> None:
    """It is what Prometheus reads."""
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    assert families["mcp_supervisor_sessions"].samples[0].value == 2


async def test_the_control_socket_shows_metrics(tmp_runtime: Path) -> None:
    """For an operator, and for an exporter that may use the socket."""
    collecting = Collecting()
    collecting.allowed.set()

    check_metrics(await get_from(app_with(collecting), tmp_runtime / "control.sock"))


async def test_without_metrics_there_is_no_such_path(tmp_runtime: Path) -> None:
    """The API can be put together without them."""
    response = await get_from(app_with(None), tmp_runtime / "control.sock")

    assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_a_scraper_gets_metrics_and_health_and_nothing_else(scraped: Scraped) -> None:
    """Every user of the machine can reach this address."""
    check_metrics(await scraped.client.get("/metrics"))
    assert (await scraped.client.get("/healthz")).text == "ok\n"
    others = ("/", "/v1/status", "/openapi.json", "/docs", "/metrics/", "/readyz", "/v1/shutdown")
    for path in others:
        assert (await scraped.client.get(path)).status_code in {404, 307}, path
        assert (await scraped.client.get(path, follow_redirects=True)).text.startswith(
            ("Not Found", "# HELP")
        )
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        response = await scraped.client.request(method, "/metrics")
        assert response.status_code == 405, method


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:9464"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "[::1]:9464"}, 200),
        ({"origin": "http://localhost:3000"}, 200),
        ({"host": "rebound.example.com"}, 403),
        ({"host": "localhost.example.com"}, 403),
        ({"host": "127.0.0.1.example.com"}, 403),
        ({"host": "localhost@example.com"}, 403),
        ({"host": "192.0.2.1"}, 403),
        ({"host": "0.0.0.0"}, 403),  # noqa: S104 - nothing is bound
        ({"host": "[::ffff:127.0.0.1]"}, 403),
        ({"host": "["}, 403),
        ({"host": ""}, 403),
        ({"origin": "https://example.com"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_only_loopback_names_are_answered(
    scraped: Scraped, headers: dict[str, str], status: int
) -> None:
    """DNS can point any name at this address, and a browser would send the request."""
    for path in ("/metrics", "/healthz"):
        response = await scraped.client.get(path, headers=headers)
        assert response.status_code == status
    assert scraped.collecting.times == (1 if status == 200 else 0)


async def test_a_request_without_a_host_is_refused(scraped: Scraped) -> None:
    """HTTP/1.0 has none to check."""
    async with await anyio.connect_tcp(*scraped.address) as stream:
        await stream.send(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert (await stream.receive()).startswith(b"HTTP/1.1 403")


async def test_all_who_ask_at_once_share_one_collection(scraped: Scraped) -> None:
    """A collection looks at every process of the machine."""
    scraped.collecting.allowed = anyio.Event()
    answers = list[httpx2.Response]()

    async def ask() -> None:
        answers.append(await scraped.client.get("/metrics"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
        while len(scraped.server.server_state.tasks) < 5:
            await anyio.lowlevel.checkpoint()
        scraped.collecting.allowed.set()

    assert [answer.status_code for answer in answers] == [200] * 5
    assert scraped.collecting.times == 1


async def test_later_ones_get_newer_numbers(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is kept for a moment."""
    monkeypatch.setattr(metrics_listener, "KEPT_S", 0.0)
    for _ in range(2):
        await scraped.client.get("/metrics")

    assert scraped.collecting.times == 2


async def test_idle_connections_are_few_and_end(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens many and says nothing shuts nobody out for long."""
    monkeypatch.setattr(metrics_listener, "CONNECTION_S", 0.2)
    streams = [await anyio.connect_tcp(*scraped.address) for _ in range(MAX_CONNECTIONS)]
    while len(scraped.server.server_state.connections) < MAX_CONNECTIONS:
        await anyio.lowlevel.checkpoint()

    with pytest.raises(httpx2.TransportError):
        await scraped.client.get("/healthz")
    for stream in streams:
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        await stream.aclose()

    assert (await scraped.client.get("/healthz")).status_code == 200


async def test_a_connection_is_for_one_request(scraped: Scraped) -> None:
    """The other end is told so, and opens a new one."""
    async with await anyio.connect_tcp(*scraped.address) as stream:
        await stream.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        answer = b"".join([piece async for piece in stream])

    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_is_taken_is_named(host: str) -> None:
    """Port 9464 is a common choice of exporters."""
    if host == "::1" and not Path("/proc/sys/net/ipv6").exists():
        pytest.skip("this kernel has no IPv6")
    with bind_loopback((host, 0)) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(KernelError, match=f"{host} port {port} cannot be used: Address alr"):
            bind_loopback((host, port))
