"""The server under the control API: sockets and signals are the daemon's, and nothing holds it."""

import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from starlette.types import Receive, Scope, Send

from supervisor.api.server import GRACEFUL_STOP_S, ApiServer
from supervisor.linux.unix_socket import BoundSocket, Peer, bind_private, connect

pytestmark = pytest.mark.anyio


@dataclass
class Application:
    """Answers `/` at once; begins one to `/half` and never ends it; `/big` fills every buffer."""

    peers: list[Peer] = field(default_factory=list)
    halves: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        self.peers.append(scope["state"]["peer"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/half":
            self.halves += 1
            await anyio.sleep_forever()
        size_bytes = 1 << 24 if scope["path"] == "/big" else 0
        await send({"type": "http.response.body", "body": b"whole" + bytes(size_bytes)})


@dataclass
class Served:
    """A server that runs, what it serves, and its socket."""

    server: ApiServer
    application: Application
    bound: BoundSocket


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Served]:
    """A server until the end of the block, which must come within seconds of its stop."""
    application = Application()
    server, bound = ApiServer(application), bind_private(str(path))

    async def run(*, task_status: TaskStatus[None]) -> None:
        await server.run_until_stopped(bound.socket, on_serving=task_status.started)

    try:
        with anyio.fail_after(GRACEFUL_STOP_S + 5):
            async with anyio.create_task_group() as tasks:
                await tasks.start(run)
                yield Served(server, application, bound)
                server.stop()
    finally:
        bound.remove()


async def until(condition: object) -> None:
    """Let the server work until `condition()`."""
    assert callable(condition)
    with anyio.fail_after(5):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def ask(path: str, target: str = "/") -> bytes:
    """The whole answer to one GET."""
    with anyio.fail_after(5):
        async with await anyio.connect_unix(path) as client:
            await client.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = b""
            while b"whole" not in answer:
                answer += await client.receive()
            return answer


def received(client: socket.socket) -> bytes:
    """Everything up to the end of a connection, which the other side must have closed."""
    client.settimeout(5)
    text = b""
    try:
        while more := client.recv(1 << 16):
            text += more
    except ConnectionResetError:
        pass
    finally:
        client.close()
    return text


async def test_the_application_knows_who_asks(tmp_runtime: Path) -> None:
    """From the kernel, for every connection (SO_PEERCRED)."""
    async with serving(tmp_runtime / "api.sock") as served:
        await ask(served.bound.path)

    assert served.application.peers == [Peer(os.getpid(), os.geteuid(), os.getegid())]


async def test_signals_stay_the_daemons(tmp_runtime: Path) -> None:
    """The library's handlers would end the API before the servers are stopped."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    async with serving(tmp_runtime / "api.sock"):
        assert {number: signal.getsignal(number) for number in before} == before


async def test_no_client_holds_the_stop(tmp_runtime: Path) -> None:
    """One that is idle, one with half a request, one whose answer never ends: all are let go."""
    async with serving(tmp_runtime / "api.sock") as served:
        clients = [connect(served.bound.path) for _ in range(3)]
        clients[1].sendall(b"GET /")
        clients[2].sendall(b"GET /half HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: served.application.halves == 1)
        await until(lambda: len(served.server.server_state.connections) == len(clients))

    idle, half, cut_off = (received(client) for client in clients)
    assert (idle, half) == (b"", b"")
    assert cut_off.startswith(b"HTTP/1.1 200")


async def test_a_client_that_does_not_read_is_cut_off(tmp_runtime: Path) -> None:
    """Its answer lies in the daemon's memory, and nobody waits for it to be fetched."""
    async with serving(tmp_runtime / "api.sock") as served:
        deaf = connect(served.bound.path)
        deaf.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: served.application.peers)

    await until(lambda: not served.server.server_state.connections)
    assert len(received(deaf)) < 1 << 24


async def test_an_answer_under_way_is_finished_first(tmp_runtime: Path) -> None:
    """The stop's own answer goes out over this server."""
    async with serving(tmp_runtime / "api.sock") as served:
        client = connect(served.bound.path)
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: served.application.peers)
        served.server.stop()

    assert received(client).endswith(b"whole\r\n0\r\n\r\n")


async def test_a_second_socket_is_served_beside_the_first(tmp_runtime: Path) -> None:
    """A socket whose file was removed is made again while the clients of the old one go on."""
    async with serving(tmp_runtime / "api.sock") as served:
        again = bind_private(str(tmp_runtime / "again.sock"))
        await served.server.listen(again.socket)

        assert b"whole" in await ask(again.path)
        assert b"whole" in await ask(served.bound.path)
    again.remove()


async def test_an_idle_server_does_not_wake_up(tmp_runtime: Path) -> None:
    """The library looks ten times a second whether it should stop; nothing here may poll."""
    import asyncio  # noqa: PLC0415, TID251 - the loop's own list of timers

    async with serving(tmp_runtime / "api.sock"):
        await anyio.lowlevel.checkpoint()
        timers = getattr(asyncio.get_running_loop(), "_scheduled")  # noqa: B009 - not in typeshed
        # what asyncio.sleep schedules
        assert [timer for timer in timers if "set_result" in repr(timer)] == []
