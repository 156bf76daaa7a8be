"""The async client when the other end is absent, silent, broken or something else."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from cli.fake_daemon import INSTANCE, STATUS, FakeDaemon, Recorded, listening, running
from client.answering import OK, answering
from supervisor.client import bodies
from supervisor.client.aio import (
    AsyncClient,
    DaemonUnreachableError,
    GarbledAnswerError,
    ProblemError,
    SessionHandle,
)
from supervisor.client.errors import SocketRefusedError
from supervisor.client.exchange import Exchange

pytestmark = pytest.mark.anyio

FOLLOW = "/v1/events?follow=true"
WITHIN_S = 10.0
OPENED = bodies.OpenedSession(key="k", fingerprint="f", reused=False, servers=[], diagnostics=[])


@pytest.fixture(params=["asyncio", "trio"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Their errors differ underneath."""
    return str(request.param)


@pytest.fixture
def daemon(tmp_runtime: Path) -> Iterator[FakeDaemon]:
    """A fake daemon."""
    with running(tmp_runtime) as fake:
        yield fake


@pytest.fixture
async def client(daemon: FakeDaemon) -> AsyncIterator[AsyncClient]:
    """A client of it."""
    async with AsyncClient(str(daemon.runtime_dir / "control.sock")) as opened:
        yield opened


def stream(*events: bytes, hold_end: threading.Event | None = None) -> Recorded:
    """An answer that is a stream of events."""
    return Recorded(content_type="text/event-stream", chunks=events, hold_end=hold_end)


async def status_at(path: str, patience_s: float = WITHIN_S) -> bodies.Status:
    """Ask whoever is there."""
    async with AsyncClient(path, patience_s=patience_s) as client:
        return await client.status()


# Nobody, or somebody else


async def test_an_absent_daemon_is_unreachable(tmp_runtime: Path) -> None:
    """Also for who would follow: nothing is waited for that was never there."""
    path = str(tmp_runtime / "control.sock")
    with pytest.raises(DaemonUnreachableError, match="No daemon answers on"):
        await status_at(path)
    async with AsyncClient(path) as client:
        with pytest.raises(DaemonUnreachableError):
            async with client.events():
                pytest.fail("there is nothing to follow")


async def test_a_socket_that_is_not_ours_is_not_a_missing_daemon(tmp_runtime: Path) -> None:
    """The kernel's reason reaches the caller through all layers of the library."""
    loop = tmp_runtime / "loop"
    loop.symlink_to(loop)
    with pytest.raises(SocketRefusedError, match="symbolic links"):
        await status_at(str(loop / "control.sock"))
    with pytest.raises(SocketRefusedError, match="symbolic links"):
        await status_at(str(loop / ("d" * 120) / "control.sock"))


async def test_a_silent_daemon_is_given_up(tmp_runtime: Path) -> None:
    """A stopped process accepts connections for ever and answers none."""
    with listening(tmp_runtime), pytest.raises(DaemonUnreachableError, match="does not answer"):
        await status_at(str(tmp_runtime / "mcp.sock"), patience_s=0.05)


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"HTTP/1.1 200 OK\r\nContent-Le",),
        (OK + b"Content-Length: 5\r\n\r\nhell",),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",),
    ],
)
async def test_an_answer_cut_short_is_no_answer(
    tmp_runtime: Path, pieces: tuple[bytes, ...]
) -> None:
    """Half a report must never look like a whole one."""
    with (
        answering(tmp_runtime, *pieces) as path,
        pytest.raises(DaemonUnreachableError, match="before it had answered"),
    ):
        await status_at(path)


@pytest.mark.parametrize(
    "pieces",
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n",),
        (b"HTTP/1.1 fine\r\n\r\n",),
        (OK + b"Content-Length: many\r\n\r\n",),
        (OK + b"Content-Length: 5\r\n\r\nhello",),
        (OK + b"Content-Length: 2\r\n\r\n[]",),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",),
    ],
)
async def test_what_is_no_answer_of_ours_is_said_to_be_none(
    tmp_runtime: Path, pieces: tuple[bytes, ...]
) -> None:
    """Something else may listen where the daemon should."""
    with answering(tmp_runtime, *pieces) as path, pytest.raises(GarbledAnswerError):
        await status_at(path)


async def test_a_client_is_used_inside_its_block() -> None:
    """Outside there is no connection that anybody would close."""
    with pytest.raises(RuntimeError, match="inside `async with`"):
        await AsyncClient("/nowhere").status()


async def test_a_deep_folder_is_reached_through_its_descriptor(tmp_path: Path) -> None:
    """Paths over 107 bytes do not fit into a socket address."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with running(deep) as fake:
        fake.answer("GET", "/v1/status", STATUS)
        found = await status_at(str(deep / "control.sock"))
    assert found["instances"][0]["id"] == INSTANCE


# What is sent and said


async def test_a_problem_carries_code_and_fields(daemon: FakeDaemon, client: AsyncClient) -> None:
    """As for the synchronous client: one class, whoever asked."""
    body = daemon.problem(
        "POST", "/v1/servers/git/stop", 409, "not_quarantined", detail="No.", instance=INSTANCE
    )
    with pytest.raises(ProblemError, match="No") as refused:
        await client.stop("git")
    problem = refused.value
    assert (problem.status, problem.problem) == (409, "not_quarantined")
    assert (problem.fields, problem.document) == ({"instance": INSTANCE}, body)


async def test_a_name_is_sent_as_it_is(daemon: FakeDaemon, client: AsyncClient) -> None:
    """`..` may name a session, and a URL would drop it."""
    daemon.answer("POST", "/v1/servers/io.github.ada%2Fgit/probe", {"ok": True})
    daemon.answer("GET", "/v1/sessions/../tools", {"tools": [], "diagnostics": []})
    assert (await client.probe("io.github.ada/git"))["ok"]
    async with Exchange(client.path) as exchange:
        opened = bodies.OpenedSession(
            key="..", fingerprint="", reused=False, servers=[], diagnostics=[]
        )
        assert (await SessionHandle(exchange, opened).tools())["tools"] == []


async def test_a_call_is_never_sent_twice(daemon: FakeDaemon, client: AsyncClient) -> None:
    """The server may have done it already."""
    target = "/v1/sessions/k/tools/git__push"
    daemon.answer("POST", target, {}).cut_off = True
    async with Exchange(client.path) as exchange:
        with pytest.raises(DaemonUnreachableError):
            await SessionHandle(exchange, OPENED).call("git__push")
    assert [(asked.target, asked.body) for asked in daemon.asked] == [(target, '{"arguments":{}}')]


async def test_arguments_that_json_cannot_spell_are_not_sent(
    daemon: FakeDaemon, client: AsyncClient
) -> None:
    """NaN would be refused by the daemon, with a worse sentence."""
    async with Exchange(client.path) as exchange:
        with pytest.raises(ValueError, match="JSON"):
            await SessionHandle(exchange, OPENED).call("git__push", {"x": float("nan")})
    assert daemon.asked == []


# Streams


EVENT = b'id: run-%d\nevent: x\ndata: {"id": "run-%d", "name": "x"}\n\n'


async def test_a_broken_stream_goes_on_behind_its_last_event(
    daemon: FakeDaemon, client: AsyncClient
) -> None:
    """And what had come is not asked for again."""
    daemon.answers["GET", FOLLOW] = stream(EVENT % (7, 7))
    async with client.events("run-6") as events:
        assert (await anext(events))["id"] == "run-7"
        daemon.answers["GET", FOLLOW] = stream(EVENT % (8, 8), hold_end=threading.Event())
        assert (await anext(events))["id"] == "run-8"
    assert [asked.headers["Last-Event-ID"] for asked in daemon.asked] == ["run-6", "run-7"]


async def test_who_has_seen_nothing_asks_for_all_after_a_break(
    daemon: FakeDaemon, client: AsyncClient
) -> None:
    """Another daemon may be there, whose first events would be missed."""
    daemon.answers["GET", FOLLOW] = stream()
    async with client.events() as events:
        daemon.answers["GET", FOLLOW] = stream(EVENT % (1, 1), hold_end=threading.Event())
        assert (await anext(events))["id"] == "run-1"
    assert "Last-Event-ID" not in daemon.asked[0].headers
    assert daemon.asked[-1].headers["Last-Event-ID"] == "-"


async def test_a_daemon_that_stays_away_ends_the_stream(tmp_runtime: Path) -> None:
    """For ever is too long to wait for a daemon that was stopped for good."""
    path = tmp_runtime / "control.sock"
    with ExitStack() as stack, anyio.fail_after(WITHIN_S):
        stack.enter_context(running(tmp_runtime)).answers["GET", FOLLOW] = stream()
        async with AsyncClient(str(path)) as client, client.events(away_s=0.1) as events:
            stack.close()
            path.unlink()
            with pytest.raises(DaemonUnreachableError):
                await anext(events)


async def test_what_is_no_stream_is_not_followed(daemon: FakeDaemon, client: AsyncClient) -> None:
    """An answer of another kind would look like a daemon where nothing happens."""
    daemon.answer("GET", FOLLOW, {"events": []})
    async with client.events() as events:
        with pytest.raises(GarbledAnswerError, match="no stream of events"):
            await anext(events)
