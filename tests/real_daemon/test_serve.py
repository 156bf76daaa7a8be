"""`mcpctl serve`: a whole session as one MCP server, for the SDK's client and for raw bytes.

Source: design sections 10, 13 and 16.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp import Client, MCPError

from real_daemon.clients import MODES, Mode, Shim, sdk_client_of_session
from real_daemon.daemon_fixture import Daemon, running_daemon
from real_daemon.diaries import Held, Stage, stage

pytestmark = pytest.mark.anyio

LEGACY: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture(scope="module")
def on_stage() -> Iterator[Stage]:
    """A folder of diaries."""
    with stage() as made:
        yield made


@pytest.fixture(scope="module")
def daemon(on_stage: Stage) -> Iterator[Daemon]:
    """A daemon that the tests share, with one server that can never be had."""
    records = {
        "a": on_stage.record("a", supportsParallelToolCalls=True),
        "b": on_stage.record("b"),
        "short": on_stage.record(
            "short", requestTimeoutMs=500, resetTimeoutOnProgress=True, maxTotalTimeoutMs=1500
        ),
        "odd": on_stage.record("odd", "version=1999-01-01"),
    }
    with running_daemon(records) as running:
        yield running


@pytest.fixture(autouse=True)
def no_session_is_left(daemon: Daemon) -> Iterator[None]:
    """Each test has servers of its own."""
    yield
    for session in daemon.api("GET", "/v1/sessions")["sessions"]:
        daemon.api("DELETE", f"/v1/sessions/{session['key']}")


def line(method: str, ident: object = None, **params: Any) -> bytes:  # noqa: ANN401 - JSON
    """A request, or a notification where there is no id, as one line."""
    known = {} if ident is None else {"id": ident}
    return json.dumps({"jsonrpc": "2.0", **known, "method": method, "params": params}).encode() + (
        b"\n"
    )


def call_line(ident: object, tool: str, **arguments: object) -> bytes:
    """A call of a tool."""
    return line("tools/call", ident, name=tool, arguments=arguments)


def texts(result: Any) -> list[str]:  # noqa: ANN401 - of the SDK
    """The texts of a result."""
    return [content.model_dump().get("text") for content in result.content]


# The SDK's client


@pytest.mark.parametrize("mode", MODES)
async def test_the_sdk_client_uses_all_servers_as_one(
    daemon: Daemon, on_stage: Stage, mode: Mode
) -> None:
    """Names tell the servers apart; the server that cannot be had costs the others nothing."""
    async with sdk_client_of_session(daemon, "sdk", mode) as client:
        starts = on_stage["a"].starts()
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {name.partition("__")[0] for name in tools} == {"a", "b", "short"}
        for server in ("a", "b"):
            result = await client.call_tool(f"{server}__echo", {"text": f"for {server}"})
            assert texts(result) == [f"for {server}"]
        assert (await client.call_tool("a__fails")).is_error
        wrong = await client.call_tool("a__typed", {"rows": [{"id": "x"}]})
        assert wrong.is_error
        assert "$.rows[0].id" in str(texts(wrong))
        with pytest.raises(MCPError) as gone:
            await client.call_tool("a__die")
        assert gone.value.error.code == -32002
        assert "exited with code 7" in gone.value.error.message
        assert "out of cheese" in gone.value.error.message
        assert texts(await client.call_tool("a__echo", {"text": "again"})) == ["again"]
        with pytest.raises(MCPError) as refused:
            await client.call_tool("odd__anything")
        assert "1999-01-01" in refused.value.error.message
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("a__nothing")
        assert "a__nothing" in unknown.value.error.message
        assert on_stage["a"].starts() == starts + 2
    assert daemon.instances(), "the session outlives its client"


@pytest.mark.parametrize("mode", MODES)
async def test_progress_reaches_the_sdk_client_and_extends_the_time_up_to_the_total(
    daemon: Daemon, on_stage: Stage, mode: Mode
) -> None:
    """A long call that reports lives beyond its limit; one that reports for ever does not."""
    heard: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        heard.append(progress)

    async with sdk_client_of_session(daemon, "progress", mode) as client:
        result = await client.call_tool(
            "short__steps", {"n": 4, "gap_s": 0.25}, progress_callback=progressed
        )
        assert texts(result) == ["done"]
        assert heard[:4] == [1, 2, 3, 4]
        with pytest.raises(MCPError) as total:
            await client.call_tool(
                "short__steps", {"n": 40, "gap_s": 0.2}, progress_callback=progressed
            )
        assert total.value.error.code == -32003
        assert "maxTotalTimeoutMs" in total.value.error.message
        with pytest.raises(MCPError) as silent:
            await client.call_tool("short__silent", progress_callback=progressed)
        assert "requestTimeoutMs" in silent.value.error.message
        # the note after an answer, and what the given-up call still reports, hurt nobody
        assert texts(await client.call_tool("short__echo", {"text": "next"})) == ["next"]
    ids = {made["id"] for made in on_stage["short"].calls("silent")}
    cancelled = on_stage["short"].heard("notifications/cancelled")
    assert ids <= {note["params"]["requestId"] for note in cancelled}


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_call_of_the_sdk_client_is_cancelled_at_the_server(
    daemon: Daemon, on_stage: Stage, mode: Mode
) -> None:
    """And its connection serves the next call."""
    async with sdk_client_of_session(daemon, "cancel", mode) as client:
        with Held(on_stage.folder, f"cancel-{mode}") as held:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "a__hold", held.arguments)
                await anyio.to_thread.run_sync(held.wait_entered)
                tasks.cancel_scope.cancel()
            assert texts(await client.call_tool("a__echo", {"text": "next"})) == ["next"]
            hold = on_stage["a"].calls("hold")[-1]
            last = on_stage["a"].heard("notifications/cancelled")[-1]
            assert last["params"]["requestId"] == hold["id"]
            held.release()


async def test_the_sdk_client_hears_of_a_changed_list(daemon: Daemon) -> None:
    """Fifty announcements of the server; the client sees the new tool when it looks."""
    told = anyio.Event()

    async def heard(message: Any) -> None:  # noqa: ANN401 - of the SDK
        if "list_changed" in str(getattr(message, "method", "")):
            told.set()

    async with sdk_client_of_session(daemon, "grow", "legacy", message_handler=heard) as client:
        assert "a__extra1" not in await names_of(client)
        await client.call_tool("a__grow")
        await told.wait()
        assert "a__extra1" in await names_of(client)
        assert texts(await client.call_tool("a__extra1")) == ["extra1"]


async def test_the_sdk_client_hears_that_a_new_process_offers_something_else(
    daemon: Daemon,
) -> None:
    """What had grown is lost with the process that died, and nobody else would say so."""
    told = anyio.Event()

    async def heard(message: Any) -> None:  # noqa: ANN401 - of the SDK
        if "list_changed" in str(getattr(message, "method", "")):
            told.set()

    async with sdk_client_of_session(daemon, "shrink", "legacy", message_handler=heard) as client:
        await client.call_tool("a__grow")
        await told.wait()
        assert "a__extra1" in await names_of(client)
        with pytest.raises(MCPError):
            await client.call_tool("a__die")
        told = anyio.Event()
        await client.call_tool("a__echo")
        await told.wait()
        assert "a__extra1" not in await names_of(client)
        with pytest.raises(MCPError) as unknown:
            await client.call_tool("a__extra1")
        assert "a__extra1" in unknown.value.error.message


async def names_of(client: Client) -> set[str]:
    """The names of all tools."""
    return {tool.name for tool in (await client.list_tools()).tools}


# Raw bytes


def test_a_client_that_closes_its_side_gets_its_answers(daemon: Daemon) -> None:
    """As `printf … | mcpctl serve` does; ids come back as they were spelled."""
    with Shim(daemon, "--session", "pipe", command="serve") as shim:
        shim.send(line("initialize", "first", **LEGACY))
        shim.send(line("notifications/initialized"))
        shim.send(call_line(1, "a__echo", text="one"))
        shim.send(call_line("1", "b__echo", text="two"))
        shim.leave()
        code, out, err = shim.finish()
    assert (code, err) == (0, "")
    answers = {json.dumps(a["id"]): a for a in map(json.loads, out.splitlines()) if "id" in a}
    assert set(answers) == {'"first"', "1", '"1"'}
    assert answers['"first"']["result"]["protocolVersion"] == "2025-11-25"
    for ident, text in (("1", "one"), ('"1"', "two")):
        assert answers[ident]["result"]["content"][0]["text"] == text


def test_results_pass_byte_for_byte(daemon: Daemon) -> None:
    """As over the API."""
    with Shim(daemon, "--session", "bytes", command="serve") as shim:
        shim.ask("initialize", **LEGACY)
        shim.send(b'{"jsonrpc":"2.0","id":"\\u00e9","method":"tools/call","params":')
        shim.send(b'{"name":"a__odd","arguments":{"n": 1.0e+02}}}\n')
        answer = shim.read_line()
        assert answer.startswith(b'{"jsonrpc":"2.0","id":"\\u00e9","result":{"content"')
        for spelled in (b'"x-colour": 1.50e+2', b"12345678901234567890123", b"caf\\u00e9"):
            assert spelled in answer


def test_answers_come_as_they_are_ready(daemon: Daemon, on_stage: Stage) -> None:
    """A slow server holds up nobody else; cancelling a request that waits leaves the others."""
    with (
        Held(on_stage.folder, "slow") as slow,
        Shim(daemon, "--session", "ready", command="serve") as shim,
    ):
        shim.ask("initialize", **LEGACY)
        shim.send(call_line("slow", "b__hold", **slow.arguments))
        slow.wait_entered()
        shim.send(call_line("waits", "b__echo", text="never sent"))
        shim.send(call_line("quick", "a__echo", text="quick"))
        assert json.loads(shim.read_line())["id"] == "quick"
        before = len(on_stage["b"].calls("echo"))
        shim.send(line("notifications/cancelled", requestId="waits"))
        shim.send(line("ping", "alive"))
        assert json.loads(shim.read_line()) == {"jsonrpc": "2.0", "id": "alive", "result": {}}
        slow.release()
        assert json.loads(shim.read_line())["id"] == "slow"
        shim.send(call_line("last", "b__pid"))
        assert json.loads(shim.read_line())["error"]["code"] == -32008
        assert len(on_stage["b"].calls("echo")) == before


def test_two_clients_of_a_session_share_its_servers_and_hear_of_its_changes(
    daemon: Daemon, on_stage: Stage
) -> None:
    """The same id at the same time: each gets its own answer."""
    starts = on_stage["a"].starts()
    with (
        Held(on_stage.folder, "both") as held,
        Shim(daemon, "--session", "both", command="serve") as one,
        Shim(daemon, "--session", "both", command="serve") as two,
    ):
        for shim in (one, two):
            shim.ask("initialize", **LEGACY)
            shim.send(line("notifications/initialized"))
        one.send(call_line(7, "a__hold", **held.arguments))
        held.wait_entered()
        two.send(call_line(7, "a__echo", text="mine"))
        assert json.loads(two.read_line())["result"]["content"][0]["text"] == "mine"
        two.leave()
        assert two.finish()[0] == 0
        held.release()
        answer = json.loads(one.read_line())
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (7, "released")
    assert on_stage["a"].starts() == starts + 1


def test_what_is_no_request_is_answered_and_the_connection_goes_on(daemon: Daemon) -> None:
    """Whatever a client sends, it is told, and its next request is served."""
    with Shim(daemon, "--session", "bad", command="serve") as shim:
        for sent, code in (
            (b"hello\n", -32700),
            (b'{"jsonrpc":"2.0","id":{},"method":"ping"}\n', -32600),
            (line("no/such/method", 5), -32601),
            (line("tools/call", 5, arguments={}), -32602),
        ):
            shim.send(sent)
            assert json.loads(shim.read_line())["error"]["code"] == code
        assert shim.ask("ping")["result"] == {}


def test_a_session_key_that_is_none_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    """Before anything is started."""
    with Shim(daemon, "--session", "no spaces", command="serve", cwd=tmp_path) as shim:
        shim.leave()
        code, out, err = shim.finish()
    assert code != 0
    assert out == b""
    assert "a session key is 1 to 128 characters" in err
    assert daemon.api("GET", "/v1/sessions")["sessions"] == []
