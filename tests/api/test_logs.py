"""`/v1/servers/{name}/logs` over a real socket."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio
import httpx2
import pytest
from anyio.abc import TaskStatus

from supervisor.api.app import create_app
from supervisor.api.errors import MEDIA_TYPE
from supervisor.api.server import ApiServer
from supervisor.core.errors import UnknownServerError
from supervisor.core.ids import InstanceId, ServerName
from supervisor.core.views import ServerView
from supervisor.linux.unix_socket import bind_private, connect
from supervisor.telemetry import server_logs
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.server_logs import ServerLogs

if TYPE_CHECKING:
    from supervisor.api.control import Control

pytestmark = pytest.mark.anyio

GIT: Final = ServerName("git")
SLASHED: Final = ServerName("io.github.a/tool")
ONE: Final = InstanceId("0123456789abcdef")


class TwoServers:
    """A daemon with `git` and one whose name holds a slash; no more of it is asked."""

    def server(self, name: ServerName) -> ServerView:
        """One of them."""
        if name not in {"git", SLASHED}:
            raise UnknownServerError(name, ("git", SLASHED))
        return ServerView(
            name=name, state="idle", transport="stdio", command="x", instances=(), error=None
        )


def never(*, force: bool, caller: str) -> None:
    """Nobody asks for a stop."""


@dataclass
class Api:
    """A served API, and the logs behind it."""

    logs: ServerLogs
    client: httpx2.AsyncClient
    server: ApiServer
    path: str

    def write(self, text: str, server: ServerName = GIT) -> None:
        """Let a server write to its stderr."""
        self.logs.open(server, ONE, frozenset()).feed(text.encode())


@pytest.fixture
async def api(tmp_runtime: Path) -> AsyncIterator[Api]:
    """The API for one test; it stops as the daemon stops it."""
    path = str(tmp_runtime / "control.sock")
    logs, bound = ServerLogs(str(tmp_runtime / "logs")), bind_private(path)
    app = create_app(
        cast("Control", TwoServers()), EventLog(), lambda: True, request_shutdown=never, logs=logs
    )
    server, transport = ApiServer(app), httpx2.AsyncHTTPTransport(uds=path)

    async def run(*, task_status: TaskStatus[None]) -> None:
        await server.run_until_stopped(bound.socket, on_serving=task_status.started)

    try:
        with anyio.fail_after(20):
            async with (
                logs.running(),
                anyio.create_task_group() as tasks,
                httpx2.AsyncClient(transport=transport, base_url="http://daemon") as client,
            ):
                await tasks.start(run)
                yield Api(logs, client, server, path)
                logs.end_follows()
                server.stop()
    finally:
        bound.remove()


def texts(body: str) -> list[str]:
    """The lines without time and instance."""
    return [line.split(" ", 2)[2] for line in body.splitlines()]


async def test_the_last_lines_are_plain_text(api: Api) -> None:
    """For `curl` and for `mcpctl logs`."""
    api.write("one\ntwo\nthree\n")

    response = await api.client.get("/v1/servers/git/logs")
    last = await api.client.get("/v1/servers/git/logs?lines=1")

    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert texts(response.text) == ["one", "two", "three"]
    assert texts(last.text) == ["three"]


async def test_a_name_with_slashes_has_a_log(api: Api) -> None:
    """And the server's own path is still its own."""
    api.write("hello\n", SLASHED)

    response = await api.client.get(f"/v1/servers/{SLASHED}/logs")
    encoded = await api.client.get("/v1/servers/io.github.a%2Ftool/logs")
    server = await api.client.get(f"/v1/servers/{SLASHED}")

    assert texts(response.text) == texts(encoded.text) == ["hello"]
    assert server.json()["name"] == SLASHED


async def test_a_server_that_never_wrote_has_an_empty_log(api: Api) -> None:
    """That is no error."""
    response = await api.client.get("/v1/servers/git/logs")

    assert (response.status_code, response.text) == (200, "")


@pytest.mark.parametrize("follow", ["false", "true"])
async def test_an_unknown_server_is_a_problem_and_makes_no_file(api: Api, follow: str) -> None:
    """Whatever its name."""
    for name in ("gti", "..%2F..%2Fetc%2Fpasswd", ".."):
        response = await api.client.get(f"/v1/servers/{name}/logs?follow={follow}")

        assert response.headers["content-type"] == MEDIA_TYPE
        assert response.status_code == 404
    assert not await anyio.Path(api.path).with_name("logs").exists()


@pytest.mark.parametrize("lines", ["-1", "10001", "many"])
async def test_a_wrong_number_of_lines_is_explained(api: Api, lines: str) -> None:
    """As every wrong parameter."""
    response = await api.client.get(f"/v1/servers/git/logs?lines={lines}")

    assert (response.status_code, response.json()["code"]) == (422, "request_invalid")


async def test_a_follower_misses_nothing_after_the_head(api: Api) -> None:
    """Who has seen the head may act at once and will see what comes of it."""
    api.write("before\nlast\n")

    async with api.client.stream("GET", "/v1/servers/git/logs?follow=true&lines=1") as response:
        api.write("after\n")
        seen = ""
        async for piece in response.aiter_text():
            seen += piece
            if "after" in seen:
                break

    assert texts(seen) == ["last", "after"]


async def test_a_follower_ends_with_the_logs(api: Api) -> None:
    """It must not hold the daemon's stop."""
    async with api.client.stream("GET", "/v1/servers/git/logs?follow=true") as response:
        api.logs.end_follows()
        assert (await response.aread()) == b""


async def test_a_follower_that_goes_away_is_forgotten(api: Api) -> None:
    """Each of them costs memory."""
    with connect(api.path) as client:
        client.sendall(b"GET /v1/servers/git/logs?follow=true HTTP/1.1\r\nHost: x\r\n\r\n")
        while not api.logs._followers:
            await anyio.lowlevel.checkpoint()
    while api.logs._followers:
        await anyio.lowlevel.checkpoint()


async def test_a_disk_that_does_not_answer_is_a_problem(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no request that hangs."""
    monkeypatch.setattr(server_logs, "PATIENCE_S", -1.0)
    response = await api.client.get("/v1/servers/git/logs")
    monkeypatch.undo()

    assert response.status_code == 500
    assert response.json()["detail"] == (
        "The log of server 'git' cannot be read: the disk does not answer."
    )
