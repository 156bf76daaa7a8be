"""Long waits: the countdown on a terminal, silence elsewhere, ^C, and a daemon that hangs."""

import os
import pty
import signal
import subprocess  # noqa: TID251 - the program is run as a user runs it
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from cli.fake_daemon import INSTANCE_VIEW, REPORT, FakeDaemon, running
from cli.running_mcpctl import MCPCTL, WITHIN_S
from leftovers import Groups
from supervisor.cli.waiting import Countdown
from supervisor.client.client import Client
from supervisor.core.errors import DaemonUnreachableError
from supervisor.core.ids import ServerName
from supervisor.core.views import StopAnswer, StopView

STOP: Final = "/v1/servers/git/stop"
STOPPING: Final = replace(
    INSTANCE_VIEW, state="stopping", stop=StopView(stage="terminating", deadline_in_s=3.21)
)


@pytest.fixture
def daemon(tmp_runtime: Path) -> Iterator[FakeDaemon]:
    """A fake daemon that holds its answer to a stop until the test lets it go."""
    with running(tmp_runtime) as fake:
        stop = fake.answer("POST", STOP, StopAnswer(outcome="confirmed", reports=(REPORT,)))
        stop.hold = Event()
        other = replace(
            STOPPING, id="f" * 16, server="other", stop=StopView(stage="x", deadline_in_s=9)
        )
        fake.answer("GET", "/v1/instances", {"instances": [STOPPING, other]})
        yield fake


def let_go(daemon: FakeDaemon) -> None:
    """Answer the stop."""
    hold = daemon.answers["POST", STOP].hold
    assert hold is not None
    hold.set()


def test_a_long_stop_counts_down_on_a_terminal(daemon: FakeDaemon, groups: Groups) -> None:
    """What is waited for, its stage, and the deadline of just the instances that match."""
    with on_terminal(daemon.runtime_dir, groups, "stop", "git") as (process, screen):
        shown = read_until(screen, b"deadline in 3.2 s")
        assert shown == b"\r\x1b[Kwaiting for git to stop: terminating, deadline in 3.2 s"
        let_go(daemon)
        assert process.stdout is not None
        assert process.stdout.read() == (
            b"git: stopped, cleanup confirmed in 0.012 s (exit code 0)\n"
        )
        assert process.wait(WITHIN_S) == 0
        assert drain(screen).endswith(b"\r\x1b[K")


@contextmanager
def on_terminal(
    runtime_dir: Path, groups: Groups, *words: str
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A command whose stderr is a terminal, and that terminal's screen."""
    screen, terminal = pty.openpty()
    try:
        with subprocess.Popen(  # noqa: S603 - the command is the test's own
            [*MCPCTL, *words, "--runtime-dir", str(runtime_dir)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=terminal,
            start_new_session=True,
        ) as process:
            groups.watch(process.pid)
            yield process, screen
    finally:
        os.close(screen)
        os.close(terminal)


def read_until(screen: int, wanted: bytes) -> bytes:
    """All that has been shown once `wanted` is among it."""
    shown = b""
    while wanted not in shown:
        shown += os.read(screen, 4096)
    return shown


def drain(screen: int) -> bytes:
    """What else is on the screen."""
    os.set_blocking(screen, False)
    shown = b""
    try:
        while more := os.read(screen, 4096):
            shown += more
    except BlockingIOError:
        pass
    return shown


def test_elsewhere_a_long_stop_is_silent_and_still_watches_the_daemon(
    daemon: FakeDaemon, groups: Groups
) -> None:
    """A log file wants no countdown; the question shows that the daemon lives."""
    process = start(daemon.runtime_dir, groups, "stop", "git")
    daemon.wait_asked("GET", "/v1/instances")
    let_go(daemon)
    assert process.communicate() == (
        b"git: stopped, cleanup confirmed in 0.012 s (exit code 0)\n",
        b"",
    )
    assert process.returncode == 0


def test_a_daemon_that_hangs_is_found_out_while_waiting(daemon: FakeDaemon) -> None:
    """A stop has no limit of its own; the look at the instances has one."""
    daemon.answers["GET", "/v1/instances"].hold = Event()
    client = Client(str(daemon.runtime_dir / "control.sock"), patience_s=0.0)
    countdown = Countdown(client, "git to stop", lambda _: True, goes_on="")
    with countdown as tick, pytest.raises(DaemonUnreachableError, match="does not answer"):
        client.stop(ServerName("git"), None, tick)


@pytest.mark.parametrize(
    ("words", "target", "said"),
    [
        (
            ("stop", "git"),
            STOP,
            "Interrupted; the stop of 'git' goes on in the daemon (`mcpctl status`).",
        ),
        (
            ("start", "git"),
            "/v1/servers/git/start",
            "Interrupted; the start of 'git' goes on in the daemon (`mcpctl status`).",
        ),
        (("shutdown",), "/v1/shutdown", "Interrupted; the daemon goes on stopping."),
        (
            ("reload",),
            "/v1/reload",
            "Interrupted; the reload goes on in the daemon (`mcpctl events`).",
        ),
        (("events", "-f"), "/v1/events?follow=true", None),
    ],
)
def test_an_interrupted_wait_says_what_goes_on(
    daemon: FakeDaemon, groups: Groups, words: tuple[str, ...], target: str, said: str | None
) -> None:
    """Exit 130 without a traceback; ^C ends the waiting and nothing else."""
    if target == "/v1/shutdown":
        answer = {"stopping": True, "pid": os.getpid(), "deadline_s": 60.0}
        daemon.answer("POST", target, answer)
    else:
        method = "GET" if "events" in target else "POST"
        daemon.answer(method, target, "{}").hold = Event()
    process = start(daemon.runtime_dir, groups, *words)
    daemon.wait_asked("GET" if "events" in target else "POST", target)
    if target == "/v1/shutdown":
        wait_for_pidfd(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert err.decode().strip() == ("" if said is None else f"mcpctl: {said}")


def start(runtime_dir: Path, groups: Groups, *words: str) -> "subprocess.Popen[bytes]":
    """A command that is still running."""
    return groups.start([*MCPCTL, *words, "--runtime-dir", str(runtime_dir)])


def wait_for_pidfd(pid: int) -> None:
    """Until the process watches another one; it has no socket open then."""
    end_at = time.monotonic() + WITHIN_S
    while time.monotonic() < end_at:
        links = []
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                links.append(str(entry.readlink()))
            except FileNotFoundError:
                continue
        if any("pidfd" in link for link in links):
            return
        os.sched_yield()
    pytest.fail("it does not watch the daemon's process")
