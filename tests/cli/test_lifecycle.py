"""Commands that act: what is asked of the daemon, what is said, and the exit code."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cli.fake_daemon import INSTANCE, INSTANCE_VIEW, REPORT, FakeDaemon, running
from cli.running_mcpctl import mcpctl
from leftovers import Groups
from supervisor.core.report import ExitStatus, Leftover, SignalRecord, Survivor
from supervisor.core.views import RestartAnswer, StartAnswer, StopAnswer

STOP: Final = "/v1/servers/git/stop"
SURVIVOR: Final = Survivor(
    pid=815,
    ppid=1,
    pgid=815,
    sid=815,
    started_at_utc="2026-02-03T04:05:06.789Z",
    command="sleep 1000",
    why="mark",
)
REFUSED: Final = SignalRecord(
    target="descendant", pid=815, signal="SIGKILL", at_s=4.0, result="refused", errno=1
)
UNCONFIRMED: Final = replace(
    REPORT,
    outcome="unconfirmed",
    elapsed_s=5.0,
    missing=("descendants_gone", "stdout_eof"),
    failed_signals=(REFUSED,),
    survivors=(SURVIVOR,),
)


@pytest.fixture
def daemon(tmp_runtime: Path) -> Iterator[FakeDaemon]:
    """A fake daemon in the place that the commands are told of."""
    with running(tmp_runtime) as fake:
        yield fake


def test_a_confirmed_stop_is_one_line_and_exit_0(daemon: FakeDaemon) -> None:
    """How fast, how it left, and what had to be ended along with it."""
    report = replace(REPORT, leftovers_ended=(Leftover(pid=77, command="chrome --headless"),))
    daemon.answer("POST", STOP, StopAnswer(outcome="confirmed", reports=(report,)))
    assert mcpctl(daemon.runtime_dir, "stop", "git") == (
        0,
        (
            "git: stopped, cleanup confirmed in 0.012 s (exit code 0)\n"
            "  ended with it: pid 77 chrome --headless\n"
        ),
        "",
    )
    assert json.loads(daemon.asked[0].body) == {}


def test_several_instances_are_told_apart(daemon: FakeDaemon) -> None:
    """Two lines that both say `git` would help nobody."""
    other = replace(REPORT, instance="f" * 16, exit=ExitStatus(code=None, signal=15))
    daemon.answer("POST", STOP, StopAnswer(outcome="confirmed", reports=(REPORT, other)))
    assert mcpctl(daemon.runtime_dir, "stop", "git").out == (
        "git (instance 0123456789abcdef): stopped, cleanup confirmed in 0.012 s (exit code 0)\n"
        "git (instance ffffffffffffffff): stopped, cleanup confirmed in 0.012 s "
        "(killed by SIGTERM)\n"
    )


def test_an_unconfirmed_stop_names_what_is_left_and_the_way_out(daemon: FakeDaemon) -> None:
    """Exit 3: what is missing, what was refused, who lives, and what can be typed."""
    daemon.answer("POST", STOP, StopAnswer(outcome="unconfirmed", reports=(UNCONFIRMED,)))
    assert mcpctl(daemon.runtime_dir, "stop", "git") == (
        3,
        """\
git: stopped, but cleanup is UNCONFIRMED after 5.000 s; missing: descendants_gone, stdout_eof
  SIGKILL to descendant 815 was refused: EPERM, Operation not permitted
  still alive: pid 815 sleep 1000 (known by its mark)
  the daemon keeps instance 0123456789abcdef in quarantine and goes on trying
  to give it up, once you have ended what is left: `mcpctl release 0123456789abcdef`
""",
        "",
    )


def test_a_deadline_that_the_shutdown_shortened_is_named(daemon: FakeDaemon) -> None:
    """Else the report would look like a stop that gave up too early."""
    report = replace(REPORT, deadline_s=1.5, deadline_shortened_by="shutdown")
    daemon.answer("POST", STOP, StopAnswer(outcome="confirmed", reports=(report,)))
    out = mcpctl(daemon.runtime_dir, "stop", "git").out
    assert out.endswith("  its deadline was shortened to 1.500 s by shutdown\n")


def test_stopping_what_does_not_run_is_done(daemon: FakeDaemon) -> None:
    """Scripts stop things twice."""
    daemon.answer("POST", STOP, StopAnswer(outcome="nothing_running", reports=()))
    assert mcpctl(daemon.runtime_dir, "stop", "git") == (0, "git: nothing was running\n", "")


def test_stop_options_reach_the_daemon_and_names_are_quoted(daemon: FakeDaemon) -> None:
    """A server may be called anything; the path must name it and nothing else."""
    target = "/v1/servers/a%20b%2F..%3F%C3%A9/stop"
    daemon.answer("POST", target, StopAnswer(outcome="nothing_running", reports=()))
    words = ("stop", "a b/..?é", "--session", "work", "--force", "--verify")
    assert mcpctl(daemon.runtime_dir, *words).code == 0
    assert json.loads(daemon.asked[0].body) == {"session": "work", "force": True, "verify": True}


def test_one_instance_is_stopped_by_its_id(daemon: FakeDaemon) -> None:
    """The others of the same server go on."""
    target = f"/v1/instances/{INSTANCE}/stop"
    daemon.answer("POST", target, StopAnswer(outcome="confirmed", reports=(REPORT,)))
    ended = mcpctl(daemon.runtime_dir, "stop", "--instance", INSTANCE, "--json")
    assert (ended.code, json.loads(ended.out)["outcome"]) == (0, "confirmed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stop",), "Give either the NAME of a server or --instance ID."),
        (("stop", "git", "--instance", INSTANCE), "Give either the NAME"),
        (("stop", "--instance", INSTANCE, "--session", "a"), "leave --session out"),
        (("stop", "--instance", "../x"), "'../x' is no instance id"),
        (("start", "git", "--session", "a b"), "'a b' is no session key"),
        (("connect", "git", "docs"), "unexpected extra argument (docs)"),
        (("frobnicate",), "No such command 'frobnicate'"),
    ],
)
def test_a_wrong_command_line_is_explained(
    tmp_runtime: Path, words: tuple[str, ...], said: str
) -> None:
    """Exit 2, and no daemon is asked."""
    ended = mcpctl(tmp_runtime, *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_start_says_what_runs_now(daemon: FakeDaemon) -> None:
    """Starting twice is no failure, and the text tells the difference."""
    target = "/v1/servers/git/start"
    daemon.answer("POST", target, StartAnswer(instance=INSTANCE_VIEW, started=True))
    first = mcpctl(daemon.runtime_dir, "start", "git")
    daemon.answer("POST", target, StartAnswer(instance=INSTANCE_VIEW, started=False))
    second = mcpctl(daemon.runtime_dir, "start", "git", "--session", "default")
    tail = "instance 0123456789abcdef, session default, pid 4712\n"
    assert first == (0, f"git: started, {tail}", "")
    assert second == (0, f"git: already there, {tail}", "")


def test_restart_tells_the_stop_and_the_start(daemon: FakeDaemon) -> None:
    """Both halves, and whether there was a first one."""
    target = "/v1/servers/git/restart"
    answer = RestartAnswer(outcome="confirmed", reports=(REPORT,), instance=INSTANCE_VIEW)
    daemon.answer("POST", target, answer)
    started = "git: started, instance 0123456789abcdef, session default, pid 4712\n"
    assert mcpctl(daemon.runtime_dir, "restart", "git") == (
        0,
        f"git: stopped, cleanup confirmed in 0.012 s (exit code 0)\n{started}",
        "",
    )
    daemon.answer("POST", target, replace(answer, outcome="nothing_running", reports=()))
    ended = mcpctl(daemon.runtime_dir, "restart", "git")
    assert ended == (0, f"git: nothing was running\n{started}", "")


def test_a_restart_over_an_unconfirmed_stop_exits_3(daemon: FakeDaemon) -> None:
    """The old family is not confirmed gone, so there is no new one."""
    answer = RestartAnswer(outcome="unconfirmed", reports=(UNCONFIRMED,), instance=None)
    daemon.answer("POST", "/v1/servers/git/restart", answer)
    ended = mcpctl(daemon.runtime_dir, "restart", "git")
    assert ended.code == 3
    assert ended.out.endswith("git: not started again, because its cleanup is unconfirmed\n")


def test_release_says_what_was_given_up(daemon: FakeDaemon) -> None:
    """The operation succeeded, so exit 0; the report itself stays unconfirmed."""
    released = replace(UNCONFIRMED, released=True)
    daemon.answer("POST", f"/v1/instances/{INSTANCE}/release", released)
    assert mcpctl(daemon.runtime_dir, "release", INSTANCE) == (
        0,
        (
            "git: instance 0123456789abcdef is given up; git can be started again.\n"
            "  given up, was still alive: pid 815 sleep 1000 (known by its mark)\n"
        ),
        "",
    )


LISTEN: Final = (
    "import socket, sys\n"
    "socket.socket(fileno=int(sys.argv[1])).listen()\n"
    "print('listens', flush=True)\n"
    "sys.stdin.read()\n"
)
"""Takes the fake's socket over, as far as the kernel is concerned: it names who has listened."""


def test_shutdown_waits_until_the_daemon_has_gone(daemon: FakeDaemon, groups: Groups) -> None:
    """By the process behind the socket: what a daemon in a container calls its pid is another's."""
    fd = daemon.listening_fd
    process = groups.start([sys.executable, "-c", LISTEN, str(fd)], pass_fds=[fd])
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"listens\n"
    answer = {"stopping": True, "pid": 1, "deadline_s": 5.0}
    daemon.answer("POST", "/v1/shutdown", answer, status=202)
    agreed = mcpctl(daemon.runtime_dir, "shutdown", "--force", "--no-wait")
    assert agreed == (0, "mcp-supervisord (pid 1) is stopping, within 5.0 s\n", "")
    assert json.loads(daemon.asked[0].body) == {"force": True}
    daemon.on_answer = process.stdin.close
    ended = mcpctl(daemon.runtime_dir, "shutdown", "--json")
    assert ended == (0, json.dumps(answer) + "\n", "")
    assert process.wait() == 0
