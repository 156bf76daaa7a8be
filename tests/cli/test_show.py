"""Commands that look: the text of tables to the letter, and `--json` unchanged."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.fake_daemon import INSTANCE, INSTANCE_VIEW, REPORT, STATUS, FakeDaemon, as_json, running
from cli.running_mcpctl import mcpctl
from supervisor.core.report import ExitStatus
from supervisor.core.views import QueueView, ServerView, StopView

EVENT = {
    "id": "deadbeef-1",
    "name": "instance_started",
    "at_utc": "2026-02-03T04:05:06.789Z",
    "server": "git",
    "instance": INSTANCE,
    "session": None,
    "data": {"pid": 4712, "command": "uvx mcp-server-git", "bad": "\x1b[2J"},
}


@pytest.fixture
def daemon(tmp_runtime: Path) -> Iterator[FakeDaemon]:
    """A fake daemon in the place that the commands are told of."""
    with running(tmp_runtime) as fake:
        yield fake


def test_status_shows_daemon_servers_and_instances(daemon: FakeDaemon) -> None:
    """What a stranger sees first."""
    daemon.answer("GET", "/v1/status", STATUS)
    assert mcpctl(daemon.runtime_dir, "status") == (
        0,
        """\
mcp-supervisord 0.1.0, pid 4700, up 2 h 5 min; 1 of 256 instances
configuration: /home/ada/.config/mcp-supervisor/config.json

SERVER  STATE  INSTANCES  COMMAND
docs    idle   0          npx docs-server
git     alive  1          uvx mcp-server-git

INSTANCE          SERVER  SESSION  STATE  PID   UP         CLIENTS  CALLS  STOP
0123456789abcdef  git     default  alive  4712  3 min 2 s  1        0      -
""",
        "",
    )


def test_status_shows_stops_with_deadline_and_why_servers_failed(daemon: FakeDaemon) -> None:
    """A slow stop is seen while it lasts, and a failed start says what was searched where."""
    stopping = replace(
        INSTANCE_VIEW,
        state="stopping",
        session=None,
        pid=None,
        stop=StopView(stage="terminating", deadline_in_s=2.54),
    )
    lost = replace(INSTANCE_VIEW, id="f" * 16, state="unconfirmed", quarantined=True)
    missing = ServerView(
        name="missing",
        state="failed",
        transport="stdio",
        command="mcp-no-such-command",
        instances=(),
        error="Server 'missing' cannot be started: command not found in PATH /usr/bin:/bin.",
    )
    status = replace(
        STATUS,
        daemon=replace(STATUS.daemon, stopping=True, config_file=None),
        servers=(missing,),
        instances=(stopping, lost),
        queue=QueueView(starting=2, waiting=3),
    )
    daemon.answer("GET", "/v1/status", status)
    assert (
        mcpctl(daemon.runtime_dir, "status").out
        == """\
mcp-supervisord 0.1.0, pid 4700, up 2 h 5 min; 1 of 256 instances
configuration: none
starts: 2 under way, 3 waiting
The daemon is shutting down.

SERVER   STATE   INSTANCES  COMMAND
missing  failed  0          mcp-no-such-command

missing: Server 'missing' cannot be started: command not found in PATH /usr/bin:/bin.

INSTANCE          SERVER  SESSION  STATE        PID   UP         CLIENTS  CALLS  STOP
0123456789abcdef  git     -        stopping     -     3 min 2 s  1        0      \
terminating, deadline in 2.5 s
ffffffffffffffff  git     default  unconfirmed  4712  3 min 2 s  1        0      quarantined

ffffffffffffffff (git) is quarantined; `mcpctl reports --unconfirmed --json` says what is left, \
`mcpctl release ffffffffffffffff` gives it up.
"""
    )


def test_status_shows_what_a_server_writes_to_stdout_that_does_not_belong_there(
    daemon: FakeDaemon,
) -> None:
    """The classic fault of a server, told with its first line."""
    noisy = replace(INSTANCE_VIEW, stray_lines=3, first_stray_lines=("Server ready!", "b", "c"))
    daemon.answer("GET", "/v1/status", replace(STATUS, instances=(noisy,)))
    assert mcpctl(daemon.runtime_dir, "status").out.endswith(
        "\n\n0123456789abcdef (git) wrote 3 lines to stdout that are no JSON-RPC; "
        "the first: Server ready!\n"
    )


def test_status_with_nothing_configured_says_so(daemon: FakeDaemon) -> None:
    """An empty table would look like a failure."""
    daemon.answer("GET", "/v1/status", replace(STATUS, servers=(), instances=()))
    assert mcpctl(daemon.runtime_dir, "status").out.endswith("\n\nNo server is configured.\n")


def test_status_says_when_a_server_that_ended_is_started_again(daemon: FakeDaemon) -> None:
    """`backoff` alone would leave open whether to wait or to act."""
    down = replace(STATUS.servers[0], state="backoff", exits=3, next_start_in_s=2.04)
    daemon.answer("GET", "/v1/status", replace(STATUS, servers=(down,), instances=()))
    lines = mcpctl(daemon.runtime_dir, "status").out.splitlines()
    assert lines[-1] == "docs: has ended by itself 3 times, starts again in 2.0 s"


def test_json_is_the_answer_unchanged(daemon: FakeDaemon) -> None:
    """Spelling, order and unknown keys of a later daemon survive; one document, one line end."""
    body = '{"later": 1.50,\n "daemon": null}'
    daemon.answer("GET", "/v1/status", body)
    assert mcpctl(daemon.runtime_dir, "status", "--json") == (0, body + "\n", "")


def test_names_cannot_play_with_the_terminal_and_wide_ones_align(daemon: FakeDaemon) -> None:
    """Commands and names come from files that others wrote."""
    wide = replace(STATUS.servers[0], name="日本", command="x\x1b]0;owned\x07\ny")
    daemon.answer("GET", "/v1/status", replace(STATUS, servers=(wide,), instances=()))
    lines = mcpctl(daemon.runtime_dir, "status").out.splitlines()
    assert lines[-2:] == [
        "SERVER  STATE  INSTANCES  COMMAND",
        "日本    idle   0          x\\x1b]0;owned\\x07\\x0ay",
    ]


def test_instances_lists_all_or_the_quarantined(daemon: FakeDaemon) -> None:
    """The filter is the daemon's; an empty answer is a sentence."""
    daemon.answer("GET", "/v1/instances", {"instances": [INSTANCE_VIEW]})
    daemon.answer("GET", "/v1/instances?quarantined=true", {"instances": []})
    assert mcpctl(daemon.runtime_dir, "instances").out.splitlines()[1].startswith(INSTANCE)
    quarantined = mcpctl(daemon.runtime_dir, "instances", "--quarantined")
    assert quarantined == (0, "No instance is quarantined.\n", "")


def test_reports_lists_what_was_proven(daemon: FakeDaemon) -> None:
    """Looking at unconfirmed ones is no failure: exit 0."""
    bad = replace(
        REPORT,
        outcome="unconfirmed",
        elapsed_s=5.0,
        missing=("group_gone",),
        exit=ExitStatus(code=None, signal=None),
        released=True,
    )
    never = replace(REPORT, reason="start_failed", exit=ExitStatus(code=None, signal=None))
    daemon.answer("GET", "/v1/reports", {"reports": [REPORT, bad, never]})
    daemon.answer("GET", "/v1/reports?outcome=unconfirmed", {"reports": []})
    ended = mcpctl(daemon.runtime_dir, "reports")
    assert ended.code == 0
    when = "2026-02-03T04:05:06.789Z  0123456789abcdef  git   "
    assert ended.out.splitlines() == [
        (
            "REQUESTED                 INSTANCE          SERVER  REASON        OUTCOME"
            "                 TOOK     EXIT                 MISSING"
        ),
        f"{when}  stop          confirmed               0.012 s  exit code 0          -",
        f"{when}  stop          unconfirmed (released)  5.000 s  exit status unknown  group_gone",
        f"{when}  start_failed  confirmed               0.012 s  -                    -",
    ]
    none = mcpctl(daemon.runtime_dir, "reports", "--unconfirmed")
    assert none == (0, "No cleanup is unconfirmed.\n", "")


LINE = (
    "2026-02-03T04:05:06.789Z instance_started server=git instance=0123456789abcdef pid=4712 "
    'command="uvx mcp-server-git" bad="\\u001b[2J"\n'
)


def test_events_are_one_line_each(daemon: FakeDaemon) -> None:
    """Readable, and safe on a terminal."""
    daemon.answer("GET", "/v1/events", {"events": [EVENT]})
    assert mcpctl(daemon.runtime_dir, "events") == (0, LINE, "")


def test_an_event_with_a_whole_report_shows_its_outcome(daemon: FakeDaemon) -> None:
    """A line of 2 KB would hide the others; `--json` has all of it."""
    report = as_json(replace(REPORT, outcome="unconfirmed", missing=("group_gone",)))
    event = {**EVENT, "name": "cleanup_unconfirmed", "data": {"report": report}}
    daemon.answer("GET", "/v1/events", {"events": [event]})
    assert mcpctl(daemon.runtime_dir, "events").out == (
        "2026-02-03T04:05:06.789Z cleanup_unconfirmed server=git instance=0123456789abcdef "
        'reason=stop outcome=unconfirmed elapsed_s=0.0123 missing=["group_gone"]\n'
    )


def test_followed_events_come_until_the_daemon_ends_the_stream(daemon: FakeDaemon) -> None:
    """Split anywhere, with comments between: it is a byte stream, not a list of messages."""
    data = json.dumps(EVENT)
    stream = f": hello\n\nid: deadbeef-1\nevent: instance_started\ndata: {data}\n\n".encode()
    recorded = daemon.answer("GET", "/v1/events?follow=true", "")
    recorded.chunks = (stream[:20], stream[20:50], stream[50:] + stream)
    ended = mcpctl(daemon.runtime_dir, "events", "-f")
    assert ended == (0, LINE * 2, "mcpctl: The daemon has ended the stream.\n")
    as_json = mcpctl(daemon.runtime_dir, "events", "-f", "--json")
    assert as_json.out == f"{data}\n{data}\n"
    assert daemon.asked[-1].headers["Accept"] == "text/event-stream"
