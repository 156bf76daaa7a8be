"""What callers, operators and servers do at the wrong moment must not reach anybody else.

Each of these was a way to cross answers, to leave something behind or to undo a stop.
"""

import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

import pytest

from real_daemon.clients import READ_WITHIN_S, Shim
from real_daemon.daemon_fixture import Daemon, record, running_daemon
from real_daemon.diaries import Held, Stage, call, open_session, stage, text_of

FORGED: Final = (
    b'{"arguments": {\n "text": "mine",\r\n "x": [\n'
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}\n]}}'
)
"""Laid out over several lines, one of which would be a request of its own."""

HURRIED_CALLERS: Final = 40
UNREAD_BYTES: Final = 65536

RESTARTED: Final = {"restart": {"policy": "permanent", "backoffMs": 200}}


@pytest.fixture(scope="module")
def on_stage() -> Iterator[Stage]:
    """A folder of diaries."""
    with stage() as made:
        yield made


@pytest.fixture(scope="module")
def daemon(on_stage: Stage) -> Iterator[Daemon]:
    """A daemon that the tests share; each uses a session of its own."""
    records = {
        "calm": on_stage.record("calm"),
        "fragile": on_stage.record("fragile", **RESTARTED),
        "slow": on_stage.record("slow", "slow=0.5", idleTimeoutMs=100),
        "refuses": record("sh", "-c", "read line; exit 7"),
    }
    with running_daemon(records, settings={"maxClientQueueBytes": UNREAD_BYTES}) as running:
        yield running


def test_a_body_of_several_lines_is_one_message(daemon: Daemon, on_stage: Stage) -> None:
    """A line break would end the message, and the rest could speak for another session."""
    open_session(daemon, "lines", "calm")
    with closing(daemon.connection()) as connection:
        connection.request("POST", "/v1/sessions/lines/tools/calm__echo", FORGED)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["content"][0]["text"]) == (200, "mine")
    assert len(on_stage["calm"].calls("echo")) == 1
    daemon.api("DELETE", "/v1/sessions/lines")


def test_a_call_in_a_session_that_is_deleted_fails_at_once(daemon: Daemon, on_stage: Stage) -> None:
    """It would else wait for an answer that can reach nobody, until its time limit."""
    open_session(daemon, "deleted", "calm")
    with Held(on_stage.folder, "deleted") as held:
        path = "/v1/sessions/deleted/tools/calm__hold"
        with daemon.request("POST", path, {"arguments": held.arguments}) as waiting:
            held.wait_entered()
            answer = daemon.api("DELETE", "/v1/sessions/deleted")
            assert waiting.answer(409)["code"] == "channel_closed"
    assert answer["outcome"] == "confirmed"


def test_a_deleted_session_is_not_brought_back_by_a_restart(daemon: Daemon) -> None:
    """Its server died a moment before, and was to be started again."""
    open_session(daemon, "again", "fragile")
    call(daemon, "again", "fragile__die", status=502)
    daemon.log.wait_for("restart_scheduled", server="fragile")
    daemon.api("DELETE", "/v1/sessions/again")
    # a start that comes later than the one that was due, so that it would have been seen
    open_session(daemon, "marker", "fragile")
    assert call(daemon, "marker", "fragile__echo", {"text": "up"})
    assert {one["session"] for one in daemon.instances()} == {"marker"}
    daemon.api("DELETE", "/v1/sessions/marker")


def test_callers_that_leave_while_a_server_is_started_leave_nothing(daemon: Daemon) -> None:
    """Each start is known and ended, whoever gave up waiting for it."""
    for number in range(HURRIED_CALLERS):
        with closing(socket.socket(socket.AF_UNIX)) as caller:
            caller.connect(str(daemon.runtime_dir / "control.sock"))
            caller.sendall(
                b"POST /v1/sessions/hurry-%d/tools/calm__echo HTTP/1.1\r\nHost: x\r\n"
                b"Content-Length: 2\r\n\r\n{}" % number
            )
            caller.settimeout(number * 0.0005)
            with suppress(TimeoutError, BlockingIOError):  # a caller that does not wait
                caller.recv(1)
    for session in [one["key"] for one in daemon.api("GET", "/v1/sessions")["sessions"]]:
        daemon.api("DELETE", f"/v1/sessions/{session}")
    daemon.end_instances()
    assert daemon.api("GET", "/v1/instances?quarantined=true")["instances"] == []
    assert {report["outcome"] for report in daemon.api("GET", "/v1/reports")["reports"]} == {
        "confirmed"
    }


def test_a_server_slower_than_its_idle_time_can_be_opened(daemon: Daemon) -> None:
    """While it is being greeted somebody uses it."""
    open_session(daemon, "slow", "slow")
    assert text_of(call(daemon, "slow", "slow__echo", {"text": "at last"})) == "at last"
    daemon.api("DELETE", "/v1/sessions/slow")


def test_a_client_of_a_session_that_does_not_read_is_let_go(daemon: Daemon) -> None:
    """What it leaves unread must not fill the daemon's memory."""
    with Shim(daemon, "--session", "unread", command="serve") as shim:
        request = {
            "jsonrpc": "2.0",
            "method": "tools/call",
            "params": {"name": "calm__echo", "arguments": {"text": "x" * 20000}},
        }
        lines = b"".join(
            json.dumps({**request, "id": number}).encode() + b"\n" for number in range(100)
        )
        shim.exchange(lines, 0)
        daemon.log.wait_for("client_too_slow", session="unread")
        code, _, _ = shim.finish(READ_WITHIN_S)
    assert code == 1
    daemon.api("DELETE", "/v1/sessions/unread")
