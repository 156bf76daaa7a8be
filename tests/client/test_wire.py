"""HTTP by hand: what servers may legally send, and what a broken one does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.fake_daemon import FakeDaemon, listening, running
from client.answering import OK, answering
from supervisor.client.client import Client, quote
from supervisor.client.errors import GarbledAnswerError, ProblemError, SocketRefusedError
from supervisor.client.wire import ask
from supervisor.core.errors import DaemonUnreachableError
from supervisor.core.ids import InstanceId


@pytest.mark.parametrize(
    "pieces",
    [
        (OK + b"Content-Length: 5\r\n\r\nhello",),
        (OK + b"content-length:5\r\n", b"\r\nhe", b"llo and more than it said"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;ext=1\r\nllo\r\n0\r\nT: x\r\n\r\n",),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\n", b"5", b"\r\nhel", b"lo\r", b"\n0\r\n\r\n"),
        (OK + b"\r\nhel", b"lo"),
        (b"HTTP/1.0 200\n\nhello",),
    ],
)
def test_a_body_is_framed_in_three_ways(tmp_runtime: Path, pieces: tuple[bytes, ...]) -> None:
    """By length, in chunks or by the end of the connection, in whatever pieces it arrives."""
    with answering(tmp_runtime, *pieces) as path, ask(path, "GET", "/") as answer:
        assert (answer.status, answer.read()) == (200, b"hello")


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"HTTP/1.1 200 OK\r\nContent-Le",),
        (OK + b"Content-Length: 5\r\n\r\nhell",),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",),
    ],
)
def test_an_answer_cut_short_is_no_answer(tmp_runtime: Path, pieces: tuple[bytes, ...]) -> None:
    """Half a report must never look like a whole one."""
    with answering(tmp_runtime, *pieces) as path, pytest.raises(DaemonUnreachableError):
        read_whole(path)


def read_whole(path: str) -> bytes:
    """Ask, and read all."""
    with ask(path, "GET", "/") as answer:
        return answer.read()


@pytest.mark.parametrize(
    "pieces",
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n",),
        (b"HTTP/1.1 fine\r\n\r\n",),
        (OK + b"Content-Length: many\r\n\r\n",),
        (b"x" * 70000,),
    ],
)
def test_what_is_not_http_is_said_to_be_not_http(
    tmp_runtime: Path, pieces: tuple[bytes, ...]
) -> None:
    """Something else may listen where the daemon should."""
    with answering(tmp_runtime, *pieces) as path, pytest.raises(GarbledAnswerError):
        read_whole(path)


def test_a_silent_daemon_is_given_up(tmp_runtime: Path) -> None:
    """A stopped process accepts connections for ever and answers none."""
    path = str(tmp_runtime / "mcp.sock")
    with (
        listening(tmp_runtime),
        pytest.raises(DaemonUnreachableError, match="does not answer"),
    ):
        ask(path, "GET", "/", patience_s=0.0)


def test_a_wait_may_be_ended_by_who_watches_it(tmp_runtime: Path) -> None:
    """What the watcher raises reaches the caller, and the connection is closed."""

    class Enough(Exception):  # noqa: N818 - not an error
        """The watcher has seen enough."""

    def watch(waited_s: float) -> None:
        assert waited_s > 0.9
        raise Enough

    with listening(tmp_runtime) as listener:
        with pytest.raises(Enough):
            ask(str(tmp_runtime / "mcp.sock"), "GET", "/", patience_s=None, on_wait=watch)
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            assert connection.recv(1) == b""


def test_a_socket_that_is_not_ours_is_not_a_missing_daemon(tmp_runtime: Path) -> None:
    """EACCES means: it is there, and you may not. A plain file there refuses as well."""
    (tmp_runtime / "control.sock").touch()
    with pytest.raises(DaemonUnreachableError):
        Client(str(tmp_runtime / "control.sock")).status()
    loop = tmp_runtime / "loop"
    loop.symlink_to(loop)
    with pytest.raises(SocketRefusedError) as refused:
        Client(str(loop / "control.sock")).status()
    assert refused.value.code == "kernel_refused"


def test_a_deep_folder_is_reached_through_its_descriptor(tmp_path: Path) -> None:
    """Paths over 107 bytes do not fit into a socket address."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    with running(deep) as fake:
        fake.answer("GET", "/v1/reports", {"reports": []})
        assert Client(str(deep / "control.sock")).reports().value == {"reports": []}


@pytest.fixture
def daemon(tmp_runtime: Path) -> Iterator[FakeDaemon]:
    """A fake daemon."""
    with running(tmp_runtime) as fake:
        yield fake


def test_a_problem_carries_code_and_fields(daemon: FakeDaemon) -> None:
    """Callers read fields, never text; `instance` is one of ours."""
    body = daemon.problem(
        "POST",
        "/v1/instances/0123456789abcdef/release",
        409,
        "not_quarantined",
        detail="It is not.",
        instance="0123456789abcdef",
    )
    with pytest.raises(ProblemError) as raised:
        Client(str(daemon.runtime_dir / "control.sock")).release(InstanceId("0123456789abcdef"))
    problem = raised.value
    assert (problem.status, problem.problem, str(problem)) == (409, "not_quarantined", "It is not.")
    assert problem.fields == {"instance": "0123456789abcdef"}
    assert problem.document == body


def test_an_error_without_a_problem_document_is_garbled(daemon: FakeDaemon) -> None:
    """A proxy's or a stranger's error page has no code to act on."""
    daemon.answer("GET", "/v1/status", "[]", status=502)
    with pytest.raises(GarbledAnswerError, match="502"):
        Client(str(daemon.runtime_dir / "control.sock")).status()


def test_followed_events_start_behind_the_last_one_seen(daemon: FakeDaemon) -> None:
    """A follower that reconnects misses nothing and sees nothing twice."""
    recorded = daemon.answer("GET", "/v1/events?follow=true", "")
    recorded.chunks = (b"id: r-2\r\nevent: gap\r\ndata: {\r\ndata: }\r\n\r\ndata: cut",)
    client = Client(str(daemon.runtime_dir / "control.sock"))
    seen = [(event.id, event.name, event.data) for event in client.follow("r-1")]
    assert seen == [("r-2", "gap", "{\n}")]
    assert daemon.asked[0].headers["Last-Event-ID"] == "r-1"


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("git-1.x_~", "git-1.x_~"),
        ("a/b", "a%2Fb"),
        ("é ?#%", "%C3%A9%20%3F%23%25"),
        ("\udcff", "%FF"),
    ],
)
def test_a_name_is_one_segment_of_the_path(text: str, quoted: str) -> None:
    """A name from a file must not reach another path, whatever it holds."""
    assert quote(text) == quoted
