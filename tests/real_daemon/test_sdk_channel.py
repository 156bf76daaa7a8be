"""What people use: the official client, with progress, cancellation, large results, and company."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import TextContent

from real_daemon.clients import CONVERSATION_WITHIN_S, MODES, Mode, sdk_client
from real_daemon.conversation import Events
from real_daemon.daemon_fixture import MCPCTL, Daemon, running_daemon
from real_daemon.waywards import MEBIBYTE, dropped, only, state_of, stop_all, wayward

pytestmark = pytest.mark.anyio

TEN_MIB = 10 * MEBIBYTE


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that the tests share."""
    state = tmp_path_factory.mktemp("state")
    with running_daemon({"files": wayward(state / "files")}) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_runs(daemon: Daemon) -> Iterator[None]:
    """Sessions outlive their clients, but no test."""
    (state_of(daemon, "files") / "events").unlink(missing_ok=True)
    yield
    stop_all(daemon)


@asynccontextmanager
async def of_session(daemon: Daemon, key: str, mode: Mode = "legacy") -> AsyncIterator[Client]:
    """The official client of a named session."""
    shim = StdioServerParameters(
        command=MCPCTL, args=["connect", "files", "--session", key], env=daemon.places
    )
    with anyio.fail_after(CONVERSATION_WITHIN_S):
        async with Client(shim, mode=mode) as client:
            yield client


async def text(client: Client, tool: str, **arguments: object) -> str:
    """Call a tool; its text."""
    result = await client.call_tool(tool, dict(arguments))
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize("mode", MODES)
async def test_progress_is_told_while_a_call_runs(daemon: Daemon, mode: Mode) -> None:
    """Every step, to the call that wanted it."""
    steps: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert (total, message) == (20, None)
        steps.append(progress)

    async with sdk_client(daemon, "files", mode=mode) as client:
        await client.call_tool("progress", {"steps": 20}, progress_callback=on_progress)
        assert await text(client, "hello") == "hi"
    assert steps == [float(step) for step in range(1, 21)]


async def test_a_cancelled_call_costs_nobody_anything(daemon: Daemon) -> None:
    """The server hears of it, answers late and twice, and the client goes on."""
    async with sdk_client(daemon, "files", mode="legacy") as client:
        pid = only(daemon, "files")["pid"]
        before = dropped(daemon, "files").get("late_answer", 0)
        with anyio.move_on_after(0.3):
            await client.call_tool("stubborn", {})
        seen = Events(state_of(daemon, "files"))
        await anyio.to_thread.run_sync(seen.wait_for, "cancelled")
        assert await text(client, "hello") == "hi"
        assert dropped(daemon, "files")["late_answer"] == before + 1
        assert only(daemon, "files")["pid"] == pid


async def test_ten_megabytes_arrive_whole(daemon: Daemon) -> None:
    """A page image, a database dump."""
    async with sdk_client(daemon, "files", mode="legacy") as client:
        got = await text(client, "sized", bytes=TEN_MIB)
        assert TEN_MIB - 200 < len(got) < TEN_MIB
        assert got.count("x") == len(got)


async def test_two_clients_of_a_session_get_their_own_answers(daemon: Daemon) -> None:
    """Both number their requests alike; the server is asked by one handshake."""
    seen = Events(state_of(daemon, "files"))
    async with of_session(daemon, "a") as first, of_session(daemon, "a") as second:

        async def busy(client: Client, who: str) -> None:
            async def one(at: int) -> None:
                delay = 0.01 * ((7 * at) % 5)
                told = json.loads(await text(client, "echo", tag=f"{who}/{at}", delay=delay))
                assert told["tag"] == f"{who}/{at}"

            async with anyio.create_task_group() as calls:
                for at in range(25):
                    calls.start_soon(one, at)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(busy, first, "first")
            tasks.start_soon(busy, second, "second")
        assert len(daemon.instances()) == 1
    async with of_session(daemon, "a") as third:
        assert await text(third, "hello") == "hi"
    assert len(seen.lines("initialize")) == 1


async def test_calls_of_both_clients_fail_when_their_server_dies_and_both_go_on(
    daemon: Daemon,
) -> None:
    """With the reason, and with another process for the next call."""
    async with of_session(daemon, "a") as first, of_session(daemon, "a") as second:
        assert await text(first, "hello") == await text(second, "hello") == "hi"
        failures: list[str] = []

        async def held() -> None:
            with pytest.raises(MCPError) as failed:
                await second.call_tool("hold", {})
            failures.append(str(failed.value))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held)
            seen = Events(state_of(daemon, "files"))
            await anyio.to_thread.run_sync(seen.wait_for, "request")
            with pytest.raises(MCPError, match=r"exited with code 7 .* panic: out of cheese"):
                await first.call_tool("die", {})
        assert "panic: out of cheese" in failures[0]
        assert await text(first, "hello") == await text(second, "hello") == "hi"
