"""One handshake of a server for all of its clients, whoever of them leaves meanwhile."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from supervisor.core.call_errors import ServerGoneError
from supervisor.transport.shared_handshake import (
    Hello,
    SharedHandshake,
    read_hello,
    with_id,
)
from transport.lone_server import LoneServer, lone_server

pytestmark = pytest.mark.anyio


def initialize(**params: object) -> bytes:
    """A client's request."""
    given = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": given | params}
    return json.dumps(body).encode()


def hello(**params: object) -> Hello:
    """What it says of itself."""
    found = read_hello(initialize(**params))
    assert found is not None
    return found


def seen(state: Path) -> list[str]:
    """What the server has seen of handshakes."""
    lines = (state / "events").read_text("utf-8").splitlines()
    return [line for line in lines if line.startswith("initialize")]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LoneServer]:
    """One that reads nothing for a moment, as those that are installed first."""
    async with lone_server("wayward.py", "--slow", "0.3", "--state", str(tmp_path)) as started:
        yield started


async def test_who_comes_during_a_handshake_gets_its_answer(
    server: LoneServer, tmp_path: Path
) -> None:
    """A second `initialize` would be refused by most servers."""
    handshake = SharedHandshake(server.channel, anyio.Lock())
    made: list[tuple[bytes, bool]] = []

    async def make() -> None:
        made.append(await handshake.make(hello()))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(make)
    made.append(await handshake.make(hello()))
    assert len({answer for answer, _ in made}) == 1
    assert sorted(kept for _, kept in made) == [False, True, True, True]
    with anyio.fail_after(5):
        while len(seen(tmp_path)) < 2:
            await anyio.lowlevel.checkpoint()
    assert seen(tmp_path) == ["initialize", "initialized"]


async def test_a_client_that_gives_up_leaves_the_handshake_to_the_others(
    server: LoneServer, tmp_path: Path
) -> None:
    """It has been asked of the server, which must not be asked again."""
    handshake = SharedHandshake(server.channel, anyio.Lock())
    with anyio.move_on_after(0.05) as gave_up:
        await handshake.make(hello())
    assert gave_up.cancelled_caught
    answer, kept = await handshake.make(hello())
    assert kept
    assert json.loads(answer)["result"]["serverInfo"]["name"] == "wayward"
    assert seen(tmp_path).count("initialize") == 1
    assert server.channel.handshake.ready


async def test_an_error_of_the_server_is_an_answer_that_is_not_kept(tmp_path: Path) -> None:
    """The client may have said something wrong; the next one may not."""
    async with lone_server("wayward.py", "--refuses", "--state", str(tmp_path)) as server:
        handshake = SharedHandshake(server.channel, anyio.Lock())
        assert handshake.claim("mine")
        answer, kept = await handshake.make(hello())
        assert (json.loads(answer)["error"]["message"], kept) == ("not like this", False)
        assert handshake.claim("another's")
        answer, kept = await handshake.make(hello())
        assert ("result" in json.loads(answer), kept) == (True, False)


async def test_all_that_wait_are_told_when_the_server_dies(server: LoneServer) -> None:
    """And whoever comes later, as well."""
    handshake = SharedHandshake(server.channel, anyio.Lock())
    failed: list[str] = []

    async def make() -> None:
        with pytest.raises(ServerGoneError) as error:
            await handshake.make(hello())
        failed.append(error.value.why)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(make)
        await anyio.lowlevel.checkpoint()
        server.process.kill()
    await server.wait_ended()
    await make()
    assert failed == ["was ended by signal 9"] * 3
    assert handshake.identity is None


async def test_the_first_client_decides_whose_a_channel_is(server: LoneServer) -> None:
    """A handshake says what the server may ask of its client: unlike ones cannot share it."""
    handshake = SharedHandshake(server.channel, anyio.Lock())
    assert handshake.claim(hello().identity)
    assert handshake.claim(hello().identity)
    assert not handshake.claim(hello(capabilities={"roots": {}}).identity)


@pytest.mark.parametrize(
    "params",
    [
        {"protocolVersion": "2025-03-26"},
        {"capabilities": {"sampling": {}}},
        {"clientInfo": {"name": "others", "version": "1"}},
    ],
)
def test_a_client_that_a_server_can_tell_apart_is_another_one(params: dict[str, object]) -> None:
    """By protocol version, capabilities and name (design section 9)."""
    assert hello(**params).identity != hello().identity


def test_what_a_server_does_not_act_on_makes_no_difference() -> None:
    """Order and spelling of JSON, and the version of the client's program."""
    line = (
        b'{"method":"initialize","id":"x","jsonrpc":"2.0","params":{"clientInfo":'
        b'{"version":"2","name":"tests"},"capabilities":{ },"protocolVersion":"2025-06-\\u00318"}}'
    )
    found = read_hello(line)
    assert found is not None
    assert found.identity == hello().identity
    assert found.params in line


@pytest.mark.parametrize(
    ("capabilities", "roots"),
    [({}, False), ({"roots": {}}, True), ({"roots": {"listChanged": True}}, True)],
)
def test_a_client_with_roots_is_known(capabilities: dict[str, object], roots: bool) -> None:
    """The server is told that they may be others, when another client takes over."""
    assert hello(capabilities=capabilities).roots is roots


@pytest.mark.parametrize("params", ["", ',"params":[]', ',"params":7', ',"params":{"a":}'])
def test_an_initialize_that_says_nothing_is_the_servers_to_refuse(params: str) -> None:
    """It is passed on as it is."""
    line = f'{{"jsonrpc":"2.0","id":1,"method":"initialize"{params}}}'
    assert read_hello(line.encode()) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":77,"result":{"id":77}}',
        b'{"result":{"id":77} , "jsonrpc":"2.0", "id" : 77 }',
    ],
)
def test_a_kept_answer_gets_the_id_of_whoever_asks(line: bytes) -> None:
    """And stays as it is otherwise."""
    answer = with_id(line, b'"mine"')
    assert json.loads(answer) == {"jsonrpc": "2.0", "id": "mine", "result": {"id": 77}}
    assert answer.replace(b'"mine"', b"77") == line
