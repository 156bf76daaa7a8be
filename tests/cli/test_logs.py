"""`logs`: what a server writes to stderr, byte for byte as the daemon hands it on."""

import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from cli.fake_daemon import FakeDaemon, Recorded, running
from cli.running_mcpctl import MCPCTL, WITHIN_S, mcpctl
from leftovers import Groups

LINE: Final = "2026-02-03T04:05:06.789Z 0123456789abcdef listening on größe\n"


@pytest.fixture
def daemon(tmp_runtime: Path) -> Iterator[FakeDaemon]:
    """A fake daemon in the place that the commands are told of."""
    with running(tmp_runtime) as fake:
        yield fake


def record(daemon: FakeDaemon, target: str, *chunks: bytes) -> Recorded:
    """A log as the daemon streams it."""
    recorded = Recorded(content_type="text/plain; charset=utf-8", chunks=chunks)
    daemon.answers["GET", target] = recorded
    return recorded


def test_the_last_lines_are_printed_as_they_come(daemon: FakeDaemon) -> None:
    """Also where a piece ends in the middle of a character, and under any locale."""
    raw = LINE.encode()
    cut = raw.index("ö".encode()) + 1
    record(daemon, "/v1/servers/git%2Fmain/logs?lines=100", raw[:cut], raw[cut:])
    words = ("logs", "git/main")
    latin = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert mcpctl(daemon.runtime_dir, *words) == (0, LINE, "")
    assert mcpctl(daemon.runtime_dir, *words, environ=latin) == (0, LINE, "")


def test_a_server_that_has_written_nothing_is_told_on_stderr(daemon: FakeDaemon) -> None:
    """An empty output looks like a fault; but what is piped on stays empty."""
    record(daemon, "/v1/servers/git/logs?lines=5")
    ended = mcpctl(daemon.runtime_dir, "logs", "git", "--lines", "5")
    assert ended == (0, "", "mcpctl: git has written nothing to stderr yet.\n")


def test_an_unknown_server_is_refused_in_the_daemons_words(daemon: FakeDaemon) -> None:
    """The daemon knows the names; and no log of that name may look merely empty."""
    detail = "No server is called 'gti'; configured: git."
    target = "/v1/servers/gti/logs?lines=100"
    daemon.problem("GET", target, 404, "unknown_server", detail=detail)
    assert mcpctl(daemon.runtime_dir, "logs", "gti") == (1, "", f"mcpctl: {detail}\n")


@pytest.mark.parametrize("lines", ["-1", "10001", "many"])
def test_a_number_of_lines_that_the_daemon_would_refuse_is_usage(
    tmp_runtime: Path, lines: str
) -> None:
    """Exit 2 before anybody is asked."""
    ended = mcpctl(tmp_runtime, "logs", "git", "--lines", lines)
    assert (ended.code, ended.out) == (2, "")


def test_a_followed_log_ends_with_the_daemon(daemon: FakeDaemon) -> None:
    """Whoever watches has to know that nothing more can come."""
    record(daemon, "/v1/servers/git/logs?lines=0&follow=true", LINE.encode(), LINE.encode())
    ended = mcpctl(daemon.runtime_dir, "logs", "git", "-f", "--lines", "0")
    assert ended == (0, LINE * 2, "mcpctl: The daemon has ended the stream.\n")


def test_a_followed_log_shows_each_line_at_once_and_ends_quietly_with_ctrl_c(
    daemon: FakeDaemon, groups: Groups
) -> None:
    """A buffered line would be seen after the trouble; 130 without a word is what ^C means."""
    target = "/v1/servers/git/logs?lines=1&follow=true"
    record(daemon, target, LINE.encode()).hold_end = Event()
    words = ("logs", "git", "--follow", "--lines", "1")
    process = groups.start([*MCPCTL, *words, "--runtime-dir", str(daemon.runtime_dir)])
    assert process.stdout is not None
    assert process.stdout.readline() == LINE.encode()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=WITHIN_S) == (b"", b"")
    assert process.returncode == 130
