"""Requests that wait: for a server that reads nothing, dies, starts slowly, or asks itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from real_daemon.conversation import Conversation, Events, text_of
from real_daemon.daemon_fixture import Daemon, running_daemon
from real_daemon.waywards import AT_ONCE_S, MEBIBYTE, dropped, only, state_of, wayward

QUICK_MS = 700
"""A time limit that a test waits for; far above what an answer takes."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that the tests share; no test leaves an instance."""
    state = tmp_path_factory.mktemp("state")
    records = {
        "bad": wayward(state / "bad"),
        "good": wayward(state / "good"),
        "impatient": wayward(state / "impatient", requestTimeoutMs=QUICK_MS),
        "patient": wayward(state / "patient", "--slow", "1.5", connectionTimeoutMs=20000),
        "hasty": wayward(
            state / "hasty", "--slow", "60", connectionTimeoutMs=QUICK_MS, restart="temporary"
        ),
        "leaves": wayward(state / "leaves", "--leaves"),
    }
    with running_daemon(records) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_runs(daemon: Daemon) -> Iterator[None]:
    """Each test ends with the daemon and its fork server alone."""
    yield
    assert daemon.end_instances() == []
    assert len(daemon.alive()) == 2, daemon.alive()


def test_a_server_that_stops_reading_fails_the_one_call_at_its_limit(daemon: Daemon) -> None:
    """The time begins with the call, not when its last byte is written; nobody else waits."""
    with Conversation(daemon, "impatient") as client, Conversation(daemon, "good") as other:
        client.greet()
        other.greet()
        assert client.call("freeze") == "frozen"
        began_at = monotonic()
        big = "x" * MEBIBYTE
        asked = client.send("tools/call", name="hello", arguments={"text": big})
        assert other.call("hello") == "hi"
        assert daemon.server("impatient")["state"] == "ready"
        failed = client.answer(asked)
        assert QUICK_MS / 1000 <= monotonic() - began_at < QUICK_MS / 1000 + AT_ONCE_S
        assert failed["error"]["code"] == -32004
        assert "is not reading its input" in failed["error"]["message"]
        assert "requestTimeoutMs" in failed["error"]["message"]
        (report,) = daemon.mcpctl_json("stop", "impatient")["reports"]
        assert report["outcome"] == "confirmed"
        # closing stdin does not wait for what was not read: the stages are those of the record
        assert report["elapsed_s"] < 1.5
        other.leave()


def test_a_call_that_waits_behind_unread_bytes_can_be_cancelled(daemon: Daemon) -> None:
    """Its cancellation is not sent behind the blocked write and waited for."""
    with Conversation(daemon, "bad") as client:
        client.greet()
        assert client.call("freeze") == "frozen"
        big = "x" * (MEBIBYTE // 2)
        asked = client.send("tools/call", name="hello", arguments={"text": big})
        client.notify("notifications/cancelled", requestId=asked)
        instance = only(daemon, "bad")["id"]
        client.shim.leave()
        code, out, _ = client.shim.finish()
        assert daemon.wait_judged(instance)["outcome"] == "confirmed"
    assert (code, out) == (0, b"")


def test_all_calls_in_flight_fail_when_the_server_dies(daemon: Daemon) -> None:
    """At once, naming server, exit code and last words; none is replayed (design section 7)."""
    with Conversation(daemon, "bad") as client:
        client.greet()
        seen = Events(Path(str(state_of(daemon, "bad"))))
        before = len(seen.lines("request"))
        asked = [
            client.send("tools/call", name="hold", arguments={"tag": tag})
            for tag in ("a", "b", "c")
        ]
        asked.append(client.send("tools/call", name="die", arguments={}))
        errors = [client.answer(one, within_s=AT_ONCE_S)["error"] for one in asked]
        assert {error["code"] for error in errors} == {-32002}
        said = (
            "Server 'bad' exited with code 7 before it answered; the request was not repeated. "
            "Its last lines on stderr: panic: out of cheese"
        )
        assert {error["message"] for error in errors} == {said}
        code, out, err = client.shim.finish()
    assert (code, out) == (1, b"")
    assert err.startswith("panic: out of cheese\n")
    assert len(seen.lines("request")) == before + 3


def test_answers_after_a_cancellation_reach_nobody(daemon: Daemon) -> None:
    """An error and a result as well, both late: dropped and counted, and the process stays."""
    with Conversation(daemon, "good") as client:
        client.greet()
        pid = only(daemon, "good")["pid"]
        before = dropped(daemon, "good")
        asked = client.send("tools/call", id="to cancel", name="stubborn", arguments={})
        client.notify("notifications/cancelled", requestId=asked, reason="enough")
        # the second answer comes 0.1 s after the first
        assert json.loads(client.call("echo", tag="later", delay=0.3))["tag"] == "later"
        assert client.heard == []
        after = dropped(daemon, "good")
        assert after["late_answer"] == before.get("late_answer", 0) + 1
        assert after["unasked_answer"] == before.get("unasked_answer", 0) + 1
        assert only(daemon, "good")["pid"] == pid
        client.leave()


def test_a_slow_start_with_chatter_is_waited_for(daemon: Daemon) -> None:
    """As a first run of `npx` is; what was asked meanwhile is answered, stderr is shown."""
    with Conversation(daemon, "patient") as client:
        began_at = monotonic()
        assert client.greet()["serverInfo"]["name"] == "wayward"
        assert monotonic() - began_at > 1.0
        assert client.call("hello") == "hi"
        code, _, err = client.leave()
    assert code == 0
    assert "npm warn deprecated" in err


def test_a_start_that_takes_too_long_fails_with_its_last_words(daemon: Daemon) -> None:
    """The message names the limit and its setting; the process was asked to leave, and is gone."""
    with Conversation(daemon, "hasty") as client:
        began_at = monotonic()
        failed = client.ask("initialize", protocolVersion="2025-06-18", capabilities={})
        assert monotonic() - began_at < QUICK_MS / 1000 + AT_ONCE_S
        assert failed["error"]["code"] == -32003
        message = failed["error"]["message"]
        assert "did not answer within 0.7 s; connectionTimeoutMs sets this limit" in message
        assert "npm warn deprecated something@1.2.3" in message
        code, out, err = client.shim.finish()
    assert (code, out) == (1, b"")
    assert "Server 'hasty'" in err.splitlines()[-1]
    (report,) = [r for r in daemon.api("GET", "/v1/reports")["reports"] if r["server"] == "hasty"]
    assert (report["reason"], report["outcome"]) == ("start_failed", "confirmed")
    # it does not read its stdin yet, so that SIGTERM ended it; SIGKILL was not needed
    assert report["exit"] == {"code": None, "signal": 15}


def test_the_question_of_a_server_reaches_its_only_client_and_ping_does_not(
    daemon: Daemon,
) -> None:
    """Sampling and roots are the client's; a ping is answered by whoever holds the connection."""
    with Conversation(daemon, "good") as client:
        client.greet(capabilities={"sampling": {}, "roots": {}})
        for method in ("sampling/createMessage", "roots/list"):
            asked = client.send("tools/call", name="ask", arguments={"method": method})
            client.reply(client.told(method), {"said": method})
            reply = json.loads(text_of(client.answer(asked)))
            assert reply["result"] == {"said": method}
        assert json.loads(client.call("ask", method="ping"))["result"] == {}
        assert client.heard == []
        client.leave()


def test_progress_and_changed_lists_arrive_in_order(daemon: Daemon) -> None:
    """With the client's own token, before the answer that they belong to."""
    with Conversation(daemon, "good") as client:
        client.greet()
        asked = client.send(
            "tools/call",
            name="progress",
            arguments={"steps": 3},
            _meta={"progressToken": "of mine"},
        )
        assert text_of(client.answer(asked)) == "done"
        assert [message["params"] for message in client.heard] == [
            {"progressToken": "of mine", "progress": step, "total": 3} for step in (1, 2, 3)
        ]
        client.heard.clear()
        client.call("announce", method="tools/list_changed")
        assert [message["method"] for message in client.heard] == [
            "notifications/tools/list_changed"
        ]
        client.leave()


def test_a_server_that_exits_after_the_handshake_is_not_shown_as_there(daemon: Daemon) -> None:
    """State is what was observed; a client gets the sentence, and the next start is paced."""
    with Conversation(daemon, "leaves") as client:
        client.greet()
        instance = only(daemon, "leaves")["id"]
        client.ask("tools/list")
        code, _, err = client.shim.finish()
    assert code == 1
    assert "exit code 0" in err
    daemon.wait_judged(instance)
    shown = daemon.server("leaves")
    assert (shown["state"], shown["exits"], shown["last_exit"]["code"]) == ("idle", 1, 0)
