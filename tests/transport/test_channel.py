"""What a channel does about servers that read nothing, start slowly, or talk to nobody."""

import json
from typing import TYPE_CHECKING

import anyio
import pytest

from supervisor.core.call_errors import CallTimedOutError, NotReadingError
from supervisor.core.framing import TooLong
from supervisor.core.limits import CallLimits
from supervisor.transport.caller import Caller
from transport.lone_server import Listener, LoneServer, lone_server

if TYPE_CHECKING:
    from pydantic import JsonValue

pytestmark = pytest.mark.anyio

MEBIBYTE = 1048576
QUICK_S = 0.2
"""A time limit that a test waits for."""

CALLS = 30


def call(id_token: str, tool: str, **arguments: object) -> bytes:
    """A tool call."""
    params = json.dumps({"name": tool, "arguments": arguments})
    head = f'{{"jsonrpc":"2.0","id":{id_token},"method":"tools/call"'
    return f'{head},"params":{params}}}'.encode()


def join(server: LoneServer, *, is_client: bool = True) -> tuple[Listener, int]:
    """A peer, and its number."""
    peer = Listener(is_client)
    return peer, server.channel.attach(peer)


async def test_a_handshake_that_takes_too_long_ends_the_instance() -> None:
    """With the limit, its setting and the last words; the stop says that the start failed."""
    limits = CallLimits(connection_timeout_s=QUICK_S)
    async with lone_server("wayward.py", "--slow", "60", limits=limits) as server:
        peer, number = join(server)
        with anyio.fail_after(5):
            while not server.channel.held.family.tail.lines():
                await anyio.lowlevel.checkpoint()
        server.channel.send(number, [b'{"jsonrpc":"2.0","id":"x","method":"initialize"}'])
        await peer.wait_for(lambda: peer.failed != [])
        ((token, error),) = peer.failed
        assert token == b'"x"'
        assert isinstance(error, CallTimedOutError)
        assert (error.setting, error.limit_s) == ("connectionTimeoutMs", QUICK_S)
        assert "npm warn deprecated something@1.2.3" in error.last_stderr
        assert server.asked_to_stop == ["start_failed"]


async def test_requests_that_a_server_does_not_read_fail_at_their_time() -> None:
    """Their client is paused above a mebibyte, and may leave; what was read has no limit here."""
    limits = CallLimits(request_timeout_s=QUICK_S)
    async with lone_server("wayward.py", "--slow", "60", limits=limits) as server:
        small, first = join(server)
        large, second = join(server)
        server.channel.send(first, [call("1", "hello")])  # fits the pipe
        server.channel.send(second, [call("1", "hello", text="x" * 2 * MEBIBYTE)])
        assert large.told == ["pause"]
        server.channel.send(first, [call("2", "hello")])
        await small.wait_for(lambda: small.failed != [])
        await large.wait_for(lambda: large.failed != [])
        assert [token for token, _ in small.failed] == [b"2"]
        assert [token for token, _ in large.failed] == [b"1"]
        errors = [error for _, error in small.failed + large.failed]
        assert all(isinstance(error, NotReadingError) for error in errors)
        assert [request.id_token for request in server.channel.ids.in_flight()] == [b"1"]
        server.channel.detach(second)


async def test_a_client_that_was_paused_goes_on_when_all_is_read() -> None:
    """And nothing is left of the watch over what waited, however often it waits."""
    async with lone_server("wayward.py") as server:
        peer, number = join(server)
        at_rest = len(anyio.get_running_tasks())
        for at in range(CALLS):
            server.channel.send(number, [call(f"{at}", "hello", text="x" * 2 * MEBIBYTE)])
            await peer.wait_for(lambda at=at: len(peer.lines) == at + 1)  # type: ignore[misc] # bound now
        assert peer.told == ["pause", "resume"] * CALLS
        assert peer.failed == []
        # one watch sleeps until the first of its limits, which is a minute away
        assert len(anyio.get_running_tasks()) <= at_rest + 1


async def test_an_endless_line_asks_for_a_stop_once() -> None:
    """It would fill the memory."""
    limits = CallLimits(max_line_bytes=65536)
    async with lone_server("wayward.py", limits=limits) as server:
        _, number = join(server)
        server.channel.send(number, [call("1", "endless")])
        with anyio.fail_after(5):
            while not server.asked_to_stop:
                await anyio.lowlevel.checkpoint()
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert server.asked_to_stop == ["endless_line"]


async def test_what_is_for_nobody_is_counted() -> None:
    """A changed list when all have left, and the answer to one that has left."""
    async with lone_server("wayward.py") as server:
        _, number = join(server)
        announce = call("1", "announce", method="tools/list_changed")
        server.channel.send(number, [announce, call("2", "die")])
        server.channel.detach(number)
        await server.wait_ended()
        assert server.dropped("nobody_attached") == 1
        assert server.dropped("late_answer") == 1


async def test_a_request_that_is_too_long_is_refused_with_its_id() -> None:
    """Its ends were kept, the server does not see it."""
    async with lone_server("wayward.py") as server:
        peer, number = join(server)
        line = call('"long"', "hello")
        server.channel.send(number, [TooLong(line, line, 99)])
        ((token, error),) = peer.failed
        assert (token, error.rpc_code) == (b'"long"', -32005)


async def test_a_question_while_the_daemon_itself_is_calling_is_not_the_clients() -> None:
    """The call that caused it is not theirs; the daemon answers that it does not answer."""
    async with lone_server("wayward.py") as server:
        peer, _ = join(server)
        caller = Caller(server.channel)
        result = await caller.request(
            "tools/call", {"name": "ask", "arguments": {"method": "roots/list"}}, limit_s=5.0
        )
        content = result["content"]
        assert isinstance(content, list)
        assert isinstance(content[0], dict)
        reply = json.loads(str(content[0]["text"]))
        assert reply["error"]["code"] == -32601
        assert peer.lines == []
        caller.close()


async def test_a_caller_that_stops_waiting_has_its_request_cancelled() -> None:
    """By its limit or from outside; the late answers are dropped."""
    async with lone_server("wayward.py") as server:
        caller = Caller(server.channel)
        stubborn: dict[str, JsonValue] = {"name": "stubborn", "arguments": {}}
        with pytest.raises(CallTimedOutError, match="requestTimeoutMs"):
            await caller.request("tools/call", stubborn, limit_s=QUICK_S)
        with anyio.move_on_after(QUICK_S):
            await caller.request("tools/call", stubborn, limit_s=60.0)
        assert await caller.request("ping", limit_s=5.0) == {}
        assert server.dropped("late_answer") == 2
        assert server.channel.ids.in_flight() == ()
        caller.close()
