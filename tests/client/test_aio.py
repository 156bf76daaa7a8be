"""The async client against a real daemon and real servers, under asyncio and under trio."""

import json
import os
import subprocess  # noqa: TID251 - the example is run as a reader would run it
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from client.conftest import WITHIN_S, Notes
from real_daemon.daemon_fixture import Daemon, record, running_daemon
from supervisor.client import bodies
from supervisor.client.aio import (
    AsyncClient,
    GivenUpError,
    ProblemError,
    SessionHandle,
    ToolFilter,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """An agent is written for either."""
    return str(request.param)


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[AsyncClient]:
    """A client of the shared daemon."""
    async with AsyncClient(socket_of(daemon)) as opened:
        yield opened


@pytest.fixture
async def session(client: AsyncClient) -> AsyncIterator[SessionHandle]:
    """A session with the patient server."""
    async with await client.open_session("agent", ["patient"]) as opened:
        yield opened


def socket_of(daemon: Daemon) -> str:
    """The control socket."""
    return str(daemon.runtime_dir / "control.sock")


# Sessions


async def test_a_session_offers_and_does_what_its_servers_do(session: SessionHandle) -> None:
    """The whole of MCP that an agent needs, through one handle."""
    tools = await session.tools()
    assert [tool["name"] for tool in tools["tools"]] == [
        "patient__fail",
        "patient__tell",
        "patient__wait",
    ]
    assert tools["diagnostics"] == []
    told = await session.call("patient__tell", {"city": "Zürich"})
    assert (told.structured, told.is_error) == ({"city": "Zürich"}, False)
    assert told.text.count('"city":"Zürich"') == 2
    failed = await session.call("patient__fail")
    assert (failed.text, failed.is_error, failed.structured) == ("it did not work", True, None)

    assert [found["name"] for found in (await session.prompts())["prompts"]] == ["patient__greet"]
    prompt = await session.get_prompt("patient__greet", {"name": "Ada"})
    assert prompt.value["messages"][0]["content"] == {"type": "text", "text": "Greet Ada."}
    uris = [found["uri"] for found in (await session.resources())["resources"]]
    assert uris == ["demo://a", "demo://never"]
    resource = await session.read_resource("demo://a")
    assert resource.value["contents"][0]["text"] == "the text of a"


async def test_arguments_and_results_pass_byte_for_byte(session: SessionHandle) -> None:
    """A number that a float cannot hold must not change on its way; nor must the order of keys."""
    arguments = b'{"z": 1.10, "a": 12345678901234567890.0000000001}'
    result = await session.call("patient__tell", arguments)
    assert arguments.decode() in result.text
    assert json.loads(result.raw) == result.value


async def test_a_session_is_reused_filtered_and_closed(client: AsyncClient) -> None:
    """The same key and wish are the same session; its end stops what it holds, with reports."""
    wish = ToolFilter(include=("e*",))
    session = await client.open_session("narrow", ["demo"], wish, idle_timeout_s=120)
    assert (session.key, session.opened["reused"]) == ("narrow", False)
    again = await client.open_session("narrow", ["demo"], wish, idle_timeout_s=120)
    assert again.opened["reused"]
    assert again.opened["fingerprint"] == session.opened["fingerprint"]
    assert [tool["name"] for tool in (await session.tools())["tools"]] == ["demo__echo"]
    (view,) = [one for one in (await client.status())["sessions"] if one["key"] == "narrow"]
    assert (view["idle_timeout_s"], len(view["instances"])) == (120.0, 1)

    with pytest.raises(ProblemError) as refused:
        await session.call("demo__add", {"a": 1, "b": 2})
    assert (refused.value.problem, refused.value.status) == ("unknown_tool", 404)
    stopped = await session.close()
    assert (stopped["outcome"], len(stopped["reports"])) == ("confirmed", 1)
    with pytest.raises(ProblemError) as gone:
        await session.close()
    assert gone.value.problem == "unknown_session"


async def test_a_problem_tells_its_fields(client: AsyncClient) -> None:
    """Who handles an error reads fields, never text."""
    with pytest.raises(ProblemError) as refused:
        await client.open_session("wrong", ["nope"])
    assert refused.value.problem == "unknown_server"
    assert refused.value.fields["known"] == ["demo", "mute", "patient"]


async def test_leaving_a_session_deletes_it_even_when_cancelled(client: AsyncClient) -> None:
    """An agent that is cancelled must not leave servers behind."""
    with anyio.CancelScope() as scope:
        async with await client.open_session("left", ["demo"]) as session:
            await session.call("demo__echo", {"text": "hello"})
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert "left" not in [one["key"] for one in (await client.status())["sessions"]]


async def test_a_session_that_was_closed_is_left_in_peace(client: AsyncClient) -> None:
    """`close` gives the reports; the end of the block then has nothing to do."""
    async with await client.open_session("closed", ["demo"]) as session:
        assert (await session.close())["outcome"] == "nothing_running"


# Cancellation


@pytest.mark.parametrize("what", ["tool", "prompt", "resource"])
async def test_a_cancelled_request_is_cancelled_at_the_server(
    session: SessionHandle, notes: Notes, what: str
) -> None:
    """Nobody will read the answer: the server should not work on for it."""

    async def ask() -> None:
        match what:
            case "tool":
                await session.call("patient__wait")
            case "prompt":
                await session.get_prompt("patient__greet", {"name": "nobody"})
            case _:
                await session.read_resource("demo://never")

    method, name = {
        "tool": ("tools/call", "wait"),
        "prompt": ("prompts/get", "greet"),
        "resource": ("resources/read", "demo://never"),
    }[what]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        asked = await notes.wait_for(method, name)
        tasks.cancel_scope.cancel()
    cancelled = await notes.wait_for("notifications/cancelled")
    assert cancelled["params"]["requestId"] == asked["id"]
    assert (await session.call("patient__tell", {})).structured == {}


async def test_a_call_over_its_limit_is_given_up_and_cancelled(
    session: SessionHandle, notes: Notes
) -> None:
    """The caller's limit is the caller's: the daemon's own may be far longer."""
    await session.tools()
    with pytest.raises(TimeoutError) as over:
        await session.call("patient__wait", limit_s=0.5)
    assert isinstance(over.value, GivenUpError)
    assert (over.value.what, over.value.limit_s) == ("patient__wait", 0.5)
    asked = await notes.wait_for("tools/call", "wait")
    cancelled = await notes.wait_for("notifications/cancelled")
    assert cancelled["params"]["requestId"] == asked["id"]


async def test_a_caller_that_hangs_up_cancels_its_call(
    daemon: Daemon, session: SessionHandle, notes: Notes
) -> None:
    """By a bare socket: neither FastAPI nor uvicorn does so by itself."""
    body = b'{"arguments":{}}'
    head = (
        f"POST /v1/sessions/{session.key}/tools/patient__wait HTTP/1.1\r\nHost: x\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    async with await anyio.connect_unix(socket_of(daemon)) as connection:
        await connection.send(head.encode() + body)
        asked = await notes.wait_for("tools/call", "wait")
    cancelled = await notes.wait_for("notifications/cancelled")
    assert cancelled["params"]["requestId"] == asked["id"]


async def test_a_probe_that_nobody_waits_for_leaves_nothing(
    client: AsyncClient, daemon: Daemon, notes: Notes
) -> None:
    """Its server is stopped whoever gave up on it."""
    async with client.events() as events, anyio.create_task_group() as tasks:
        tasks.start_soon(client.probe, "mute")
        started = await heard(events, "instance_started", "mute")
        await notes.wait_for("tools/list")
        tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(daemon.wait_judged, str(started["instance"]))


# Servers and events


async def heard(events: AsyncIterator[bodies.Event], name: str, server: str) -> bodies.Event:
    """The next event of this name and server."""
    with anyio.fail_after(WITHIN_S):
        async for event in events:
            if (event["name"], event["server"]) == (name, server):
                return event
    raise AssertionError(name)


async def test_a_server_is_started_probed_and_stopped(client: AsyncClient) -> None:
    """By name, with the answers that `mcpctl --json` prints."""
    started = await client.start("demo")
    assert (started["started"], started["instance"]["session"]) == (True, "default")
    assert not (await client.start("demo"))["started"]
    elsewhere = await client.start("demo", "other")
    stopped = await client.stop("demo", "other")
    assert [report["instance"] for report in stopped["reports"]] == [elsewhere["instance"]["id"]]
    assert (await client.stop("demo", force=True))["outcome"] == "confirmed"
    assert (await client.stop("demo"))["outcome"] == "nothing_running"
    probed = await client.probe("demo")
    assert (probed["ok"], probed["tools"]) == (True, 3)


async def test_events_come_as_they_happen_and_again_from_a_place(client: AsyncClient) -> None:
    """The id of the last one that is known is enough to miss nothing."""
    async with client.events() as events:
        await client.start("demo")
        started = await heard(events, "instance_started", "demo")
    await client.stop("demo")
    async with client.events(started["id"]) as events:
        stopped = await heard(events, "cleanup_confirmed", "demo")
    assert stopped["instance"] == started["instance"]


async def test_events_go_on_after_a_restart_of_the_daemon(daemon: Daemon) -> None:
    """An agent that watches does not have to know that the daemon was updated."""
    del daemon  # this one has its own; the names of the shared one would be in its way
    with running_daemon({"cat": record("cat")}) as own:
        async with (
            AsyncClient(socket_of(own)) as client,
            client.events() as events,
            anyio.create_task_group() as tasks,
        ):
            await client.start("cat")
            await heard(events, "instance_started", "cat")
            await anyio.to_thread.run_sync(own.stop)
            tasks.start_soon(anyio.to_thread.run_sync, own.start)
            names = []
            with anyio.fail_after(WITHIN_S):
                async for event in events:
                    names.append(event["name"])
                    if event["name"] == "daemon_ready":
                        break
    assert "gap" in names


# Where the daemon is


async def test_the_environment_says_where_the_daemon_is(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `mcpctl`, with no argument to forget."""
    monkeypatch.setenv("MCP_SUPERVISOR_RUNTIME_DIR", str(daemon.runtime_dir))
    async with AsyncClient.from_environment() as client:
        assert client.path == socket_of(daemon)
        assert (await client.status())["daemon"]["pid"] == daemon.pid


def test_the_example_of_the_readme_runs(daemon: Daemon) -> None:
    """What is printed there is what a reader gets."""
    done = subprocess.run(  # noqa: S603 - the command is the test's own
        [sys.executable, str(Path(__file__).with_name("example_agent.py"))],
        env={**os.environ, **daemon.places},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == [
        "demo__add - Add two numbers.",
        "demo__echo - Answer with the text that was given.",
        "demo__spawn_helper - Start a background process that does not end with this server.",
        "5 None False",
    ]


def test_mcpctl_loads_nothing_of_it() -> None:
    """A command line must not pay for a library that it does not use."""
    code = "import sys, supervisor.client.client; print(*sys.modules)"
    done = subprocess.run(  # noqa: S603 - the command is the test's own
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert not {"httpx2", "anyio", "ssl", "supervisor.client.exchange"} & set(done.stdout.split())
