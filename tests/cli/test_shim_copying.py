"""What passes through the shim: every byte, both ways, whatever the other side does."""

import fcntl
import os
import select
import signal
import socket
import subprocess  # noqa: TID251 - the program is run as a client runs it
import threading
from pathlib import Path
from typing import Final

import pytest

from cli.fake_daemon import INSTANCE, WITHIN_S, listening, running
from cli.shim_driver import (
    GONE,
    MCPCTL,
    Connected,
    accept,
    connected,
    finish,
    read_all,
    read_line,
)
from leftovers import Groups
from supervisor.cli.copying import Sink

BIG: Final = bytes(range(256)) * 8192
"""2 MiB: more than all buffers on the way hold."""


def test_it_asks_for_a_private_instance_in_its_own_folder(
    groups: Groups, tmp_runtime: Path
) -> None:
    """The two lines of the socket's framing, and nothing else before them."""
    with connected(groups, tmp_runtime) as both:
        assert both.asked == {
            "connect": {"version": 1, "server": "git", "session": None, "cwd": str(Path.cwd())}
        }
        assert both.errors_asked == {"stderr": {"version": 1, "instance": INSTANCE}}
        both.leave()
        assert both.end() == (0, "")


def test_every_byte_passes_unchanged_both_ways(groups: Groups, tmp_runtime: Path) -> None:
    """It is no reader of messages: neither line ends nor encodings mean anything to it."""
    with connected(groups, tmp_runtime) as both:
        for size in (1, 4096, 65536):
            both.write(BIG[:size])
            assert read_all(both.connection, size) == BIG[:size]
            both.connection.sendall(BIG[:size])
            assert both.read(size) == BIG[:size]
        both.leave()
        assert both.end() == (0, "")


def test_what_comes_right_behind_the_answer_line_is_not_lost(
    groups: Groups, tmp_runtime: Path
) -> None:
    """The daemon may send the answer and the server's first bytes in one write."""
    with running(tmp_runtime) as fake, listening(tmp_runtime) as listener:
        fake.answer("GET", f"/v1/instances/{INSTANCE}/report", GONE)
        shim = groups.start([*MCPCTL, "connect", "git", "--runtime-dir", str(tmp_runtime)])
        with accept(listener) as connection:
            read_line(connection)
            connection.sendall(b'{"connected": {"instance": "%s"}}\nhello' % INSTANCE.encode())
            with accept(listener):
                assert shim.stdout is not None
                assert shim.stdout.read(5) == b"hello"
        assert finish(shim)[0] == 0


def test_a_client_that_leaves_still_gets_what_the_server_says(
    groups: Groups, tmp_runtime: Path
) -> None:
    """Closed stdin is a half-close: the answer to the last request may be on its way."""
    with connected(groups, tmp_runtime) as both:
        both.write(b"last request")
        both.leave()
        assert read_all(both.connection) == b"last request"
        both.connection.sendall(b"last answer")
        both.connection.close()
        assert both.read(100) == b"last answer"
        assert both.end() == (0, "")


def test_a_client_that_does_not_read_can_still_write(groups: Groups, tmp_runtime: Path) -> None:
    """Each direction goes on by itself; else both sides would wait for the other for ever."""
    with connected(groups, tmp_runtime) as both:
        both.connection.setblocking(False)
        sent = fill(both.connection)
        both.connection.settimeout(WITHIN_S)
        both.write(BIG[:50000])
        assert read_all(both.connection, 50000) == BIG[:50000]
        assert len(both.read(sent)) == sent
        both.leave()
        assert both.end() == (0, "")


def fill(connection: socket.socket) -> int:
    """Send until nothing more has been taken for a while; how much was taken."""
    sent = 0
    while sent < len(BIG):
        try:
            sent += connection.send(BIG[sent:])
        except BlockingIOError:
            connection.settimeout(0.3)
            try:
                sent += connection.send(BIG[sent:])
            except TimeoutError:
                return sent
            connection.setblocking(False)
    pytest.fail("the shim has taken 2 MiB that nobody reads")


def test_a_client_that_dies_is_told_to_a_daemon_that_does_not_read(
    groups: Groups, tmp_runtime: Path
) -> None:
    """What cannot be delivered any more must not hide that the client is gone."""
    with connected(groups, tmp_runtime) as both:
        assert both.shim.stdin is not None
        assert both.shim.stdout is not None
        fd = both.shim.stdin.fileno()
        fill_pipe(fd)
        both.shim.stdout.close()
        both.leave()
        poll = select.poll()
        poll.register(both.connection, select.POLLRDHUP)
        assert poll.poll(WITHIN_S * 1000), "the daemon is not told"
        left = read_all(both.connection)
        assert left == (BIG * 2)[: len(left)]
        assert both.end() == (0, "")


def fill_pipe(fd: int) -> None:
    """Write until the shim has taken nothing more for a while."""
    os.set_blocking(fd, False)
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    while poll.poll(300):
        os.write(fd, BIG)


def test_a_client_that_closes_its_stdout_has_left(groups: Groups, tmp_runtime: Path) -> None:
    """Nobody would ever hear an answer, even if stdin stays open."""
    with connected(groups, tmp_runtime) as both:
        assert both.shim.stdout is not None
        both.shim.stdout.close()
        assert read_all(both.connection) == b""
        assert both.end() == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_the_client_leaving(groups: Groups, tmp_runtime: Path, number: int) -> None:
    """Clients end their servers with SIGTERM; a terminal does it with ^C."""
    with connected(groups, tmp_runtime) as both:
        both.shim.send_signal(number)
        assert read_all(both.connection) == b""
        assert both.end() == (0, "")


def test_a_second_signal_ends_the_waiting(groups: Groups, tmp_runtime: Path) -> None:
    """Somebody who presses ^C twice wants the prompt back, and is told what goes on."""
    with connected(groups, tmp_runtime) as both:
        both.shim.send_signal(signal.SIGINT)
        assert read_all(both.connection) == b""
        both.shim.send_signal(signal.SIGINT)
        code, said = finish(both.shim)
    assert code == 130
    assert said == "mcpctl: Interrupted; the stop of 'git' goes on in the daemon.\n"


def test_the_servers_stderr_comes_out_on_its_own_stderr(groups: Groups, tmp_runtime: Path) -> None:
    """Beside the MCP stream, to the last line, and never into it."""
    with connected(groups, tmp_runtime) as both:
        both.errors.sendall(b"listening\n")
        assert both.shim.stderr is not None
        assert both.shim.stderr.read(10) == b"listening\n"
        both.leave()
        assert read_all(both.connection) == b""
        both.connection.close()
        both.errors.sendall(b"goodbye\n")
        assert both.end() == (0, "goodbye\n")
        assert both.read(1) == b""


def test_a_long_last_word_on_stderr_is_not_cut_off(groups: Groups, tmp_runtime: Path) -> None:
    """A traceback is longest when a server dies, and the report is there before all is read."""
    target = f"/v1/instances/{INSTANCE}/report"
    words = b"x" * 150_000
    with running(tmp_runtime) as fake, listening(tmp_runtime) as listener:
        hold = fake.answer("GET", target, GONE).hold = threading.Event()
        both = Connected(groups, listener, tmp_runtime)
        both.connection.close()
        fake.wait_asked("GET", target)
        both.shim.send_signal(signal.SIGSTOP)
        both.errors.sendall(words)
        hold.set()
        fake.wait_answered(target)
        both.shim.send_signal(signal.SIGCONT)
        assert both.end() == (0, words.decode())


def test_a_pipe_of_somebody_else_is_written_page_by_page() -> None:
    """Where it cannot be opened anew, only one page is sure not to block."""
    reading, writing = os.pipe()
    try:
        sink = Sink(writing, reopen=False)
        size = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
        os.write(writing, BIG[: size - 4096])
        assert sink.write(memoryview(BIG)) == 4096
        assert sink.write(memoryview(BIG)) == 0
        assert os.get_blocking(writing)
    finally:
        os.close(reading)
        os.close(writing)


def test_stdout_ends_as_soon_as_the_connection_does(groups: Groups, tmp_runtime: Path) -> None:
    """The client learns of a death at once, not after the daemon's report of it."""
    with running(tmp_runtime) as fake, listening(tmp_runtime) as listener:
        recorded = fake.answer("GET", f"/v1/instances/{INSTANCE}/report", GONE)
        recorded.hold = threading.Event()
        both = Connected(groups, listener, tmp_runtime)
        both.connection.close()
        fake.wait_asked("GET", f"/v1/instances/{INSTANCE}/report")
        assert both.read(1) == b""
        assert both.shim.poll() is None
        recorded.hold.set()
        assert both.end() == (0, "")


def test_a_folder_too_deep_for_a_socket_path_is_reached(groups: Groups, tmp_path: Path) -> None:
    """Paths over 107 bytes go through the opened folder, on both sockets."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    assert len(bytes(deep)) > 107
    with connected(groups, deep) as both:
        both.leave()
        assert both.end() == (0, "")


def test_stdio_may_be_sockets_and_stay_blocking_for_the_client(
    tmp_runtime: Path, groups: Groups
) -> None:
    """Node gives its children socket pairs; O_NONBLOCK on them would hit the client as well."""
    ours, theirs = socket.socketpair()
    with (
        running(tmp_runtime) as fake,
        listening(tmp_runtime) as listener,
        ours,
        theirs,
    ):
        fake.answer("GET", f"/v1/instances/{INSTANCE}/report", GONE)
        with start_on(theirs, tmp_runtime) as shim, accept(listener) as connection:
            groups.watch(shim.pid)
            read_line(connection)
            connection.sendall(b'{"connected": {"instance": "%s"}}\n' % INSTANCE.encode())
            with accept(listener):
                connection.setblocking(False)
                sent = fill(connection)
                connection.settimeout(WITHIN_S)
                ours.sendall(b"up")
                assert read_all(connection, 2) == b"up"
                assert os.get_blocking(theirs.fileno())
                ours.settimeout(WITHIN_S)
                assert len(read_all(ours, sent)) == sent
                ours.shutdown(socket.SHUT_WR)
                assert read_all(connection) == b""
            connection.close()
            assert shim.wait(WITHIN_S) == 0


def start_on(stdio: socket.socket, runtime_dir: Path) -> "subprocess.Popen[bytes]":
    """A shim whose standard input and output are one socket."""
    return subprocess.Popen(  # noqa: S603 - the command is the test's own
        [*MCPCTL, "connect", "git", "--runtime-dir", str(runtime_dir)],
        stdin=stdio.fileno(),
        stdout=stdio.fileno(),
        start_new_session=True,
    )


def test_closed_standard_descriptors_do_no_harm(groups: Groups, tmp_runtime: Path) -> None:
    """No socket may get the number of a standard stream; a missing stdin is one at its end."""
    command = 'exec "$@" <&- 2>&-'
    with running(tmp_runtime) as fake, listening(tmp_runtime) as listener:
        fake.answer("GET", f"/v1/instances/{INSTANCE}/report", GONE)
        argv = [*MCPCTL, "connect", "git", "--runtime-dir", str(tmp_runtime)]
        shim = groups.start(["/bin/sh", "-c", command, "sh", *argv])
        with accept(listener) as connection:
            read_line(connection)
            connection.sendall(b'{"connected": {"instance": "%s"}}\n' % INSTANCE.encode())
            with accept(listener) as errors:
                read_line(errors)
                errors.sendall(b"noise")
                assert read_all(connection) == b""
                connection.sendall(b"still here")
        assert shim.stdout is not None
        assert shim.stdout.read() == b"still here"
        assert finish(shim)[0] == 0
