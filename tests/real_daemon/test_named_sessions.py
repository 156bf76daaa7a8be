"""`mcpctl connect NAME --session KEY`: one server for clients that come, go, and come back."""

import json
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from real_daemon.conversation import (
    Conversation,
    Events,
    conversations,
    greeting,
)
from real_daemon.daemon_fixture import Daemon, running_daemon
from real_daemon.waywards import AT_ONCE_S, only, state_of, stop_all, wayward

SLOW_START_S = 1.0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that the tests share; its servers do not restart by themselves."""
    state = tmp_path_factory.mktemp("state")
    records = {
        "files": wayward(state / "files", restart="temporary"),
        "slow": wayward(state / "slow", "--slow", str(SLOW_START_S), restart="temporary"),
    }
    with running_daemon(records) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_runs(daemon: Daemon) -> Iterator[None]:
    """Sessions outlive their clients, but no test."""
    for name in ("files", "slow"):
        (state_of(daemon, name) / "events").unlink(missing_ok=True)
    yield
    stop_all(daemon)
    assert len(daemon.alive()) == 2, daemon.alive()


@pytest.fixture
def seen(daemon: Daemon) -> Events:
    """What the server `files` has seen in this test."""
    return Events(state_of(daemon, "files"))


def test_a_reconnect_is_answered_from_the_kept_handshake(daemon: Daemon, seen: Events) -> None:
    """The same process, which sees one `initialize` and one `initialized`, ever (design 9)."""
    answers = []
    for _ in range(3):
        with Conversation(daemon, "files", "--session", "a") as client:
            answers.append(client.greet())
            assert client.call("hello") == "hi"
            assert client.leave()[:2] == (0, b"")
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["serverInfo"]["version"] == str(only(daemon, "files")["pid"])
    assert len(seen.lines("start")) == 1
    assert len(seen.lines("initialize")) == len(seen.lines("initialized")) == 1


def test_a_server_that_may_ask_for_roots_hears_that_they_are_others_now(
    daemon: Daemon, seen: Events
) -> None:
    """The next client's roots are not those of the first, which the server has asked for."""
    for _ in range(2):
        with Conversation(daemon, "files", "--session", "a") as client:
            client.greet(capabilities={"roots": {"listChanged": True}})
            client.call("hello")
            client.leave()
    assert len(seen.lines("initialize")) == 1
    assert len(seen.lines("roots/list_changed")) == 1


@pytest.mark.parametrize(
    "other",
    [{"name": "others"}, {"capabilities": {"sampling": {}}}, {"version": "2025-03-26"}],
)
def test_a_client_that_differs_gets_an_instance_of_its_own(
    daemon: Daemon, seen: Events, other: dict[str, Any]
) -> None:
    """A handshake says what the server may ask of its client: unlike ones cannot share it."""
    with conversations(daemon, "files", "--session", "a", count=3) as (first, second, third):
        pids = [
            client.greet(**given)["serverInfo"]["version"]
            for client, given in ((first, {}), (second, other), (third, other))
        ]
        assert pids[0] != pids[1] == pids[2]
        assert {one["session"] for one in daemon.instances()} == {"a"}
        assert [client.call("hello") for client in (first, second, third)] == ["hi"] * 3
        assert len(seen.lines("initialize")) == 2


def test_sessions_do_not_share_a_server(daemon: Daemon) -> None:
    """Two keys, two processes (design section 10)."""
    with (
        Conversation(daemon, "files", "--session", "a") as first,
        Conversation(daemon, "files", "--session", "b") as second,
    ):
        assert first.greet()["serverInfo"] != second.greet()["serverInfo"]


def test_equal_ids_of_two_clients_at_once_are_kept_apart(daemon: Daemon, seen: Events) -> None:
    """Of every JSON type, answered in another order: each client gets its own, with its own id."""
    ids = [1, "1", 0, -1, "", 10**20, "caf\u00e9", 2]
    with conversations(daemon, "files", "--session", "a", count=3) as clients:
        for client in clients:
            client.greet()
        for at, id_ in enumerate(ids):
            for who, client in enumerate(clients):
                delay = 0.01 * ((7 * at + 5 * who) % 11)
                arguments = {"tag": f"{who}/{at}", "delay": delay}
                client.send("tools/call", id=id_, name="echo", arguments=arguments)
        wire_ids = []
        for who, client in enumerate(clients):
            for at, id_ in enumerate(ids):
                told = json.loads(client.answer(id_)["result"]["content"][0]["text"])
                assert told["tag"] == f"{who}/{at}"
                wire_ids.append(told["wire_id"])
            assert client.heard == []
        assert len(set(wire_ids)) == len(wire_ids) == len(seen.lines("request"))


def test_progress_reaches_the_one_that_asked_for_it(daemon: Daemon) -> None:
    """Two clients with the same token."""
    with conversations(daemon, "files", "--session", "a") as clients:
        for client in clients:
            client.greet()
        for steps, client in enumerate(clients, 2):
            client.send(
                "tools/call",
                id="same",
                name="progress",
                arguments={"steps": steps},
                _meta={"progressToken": 7},
            )
        for steps, client in enumerate(clients, 2):
            client.answer("same")
            told = [message["params"] for message in client.heard]
            assert [one["progress"] for one in told] == list(range(1, steps + 1))
            assert {one["progressToken"] for one in told} == {7}


def test_a_question_of_the_server_goes_to_the_one_that_is_calling(daemon: Daemon) -> None:
    """It caused it; the answer of another would cross."""
    with conversations(daemon, "files", "--session", "a") as (calling, idle):
        for client in (calling, idle):
            client.greet(capabilities={"sampling": {}})
        method = "sampling/createMessage"
        asked = calling.send("tools/call", name="ask", arguments={"method": method, "id": 1})
        calling.reply(calling.told(method), {"said": "mine"})
        reply = json.loads(calling.answer(asked)["result"]["content"][0]["text"])
        assert reply == {"jsonrpc": "2.0", "id": 1, "result": {"said": "mine"}}
        idle.call("hello")
        assert idle.heard == []


def test_a_question_that_is_nobodys_is_refused_at_once(daemon: Daemon, seen: Events) -> None:
    """None of the two is calling, or both are: the server is told, and does not wait."""
    with conversations(daemon, "files", "--session", "a") as (first, second):
        for client in (first, second):
            client.greet(capabilities={"roots": {}})
        first.call("ask", method="roots/list", detached=True)
        (line,) = seen.wait_for("reply")
        refused = json.loads(line.partition(" ")[2])["error"]
        assert refused["code"] == -32603
        assert "'roots/list' is refused: several clients are attached" in refused["message"]
        second.send("tools/call", name="hold", arguments={})
        seen.wait_for("request")
        reply = json.loads(first.call("ask", method="roots/list"))
        assert reply["error"]["code"] == -32603
        assert first.heard == second.heard == []


def test_a_question_to_a_client_that_leaves_is_refused(daemon: Daemon, seen: Events) -> None:
    """The server would wait for ever; its calls are cancelled as well."""
    with Conversation(daemon, "files", "--session", "a") as client:
        client.greet(capabilities={"roots": {}})
        client.send("tools/call", name="hold", arguments={"tag": "left behind"})
        client.call("ask", method="roots/list", detached=True)
        client.told("roots/list")
        left_at = monotonic()
        client.shim.process.kill()
        (line,) = seen.wait_for("reply")
        assert monotonic() - left_at < AT_ONCE_S
        assert json.loads(line.partition(" ")[2])["error"]["code"] == -32603
        request = seen.lines("request")[0].split()[1]
        assert seen.wait_for("cancelled") == [f"cancelled {request}"]


def test_changed_lists_reach_all_that_are_attached(daemon: Daemon) -> None:
    """Nobody asked for them in particular."""
    with conversations(daemon, "files", "--session", "a", count=3) as clients:
        for client in clients:
            client.greet()
        clients[0].call("announce", method="tools/list_changed")
        for client in clients:
            client.told("notifications/tools/list_changed")


def test_updates_reach_those_that_watch_until_the_last_of_them_leaves(
    daemon: Daemon, seen: Events
) -> None:
    """One who stops to watch does not end it for the others; the server hears of the last one."""
    with conversations(daemon, "files", "--session", "a", count=3) as (first, second, third):
        for client in (first, second, third):
            client.greet()
        for client in (first, second):
            assert client.ask("resources/subscribe", uri="file:///a")["result"] == {}

        def update() -> None:
            third.call("announce", method="resources/updated", params={"uri": "file:///a"})

        update()
        for client in (first, second):
            client.told("notifications/resources/updated")
        assert third.heard == []
        assert first.ask("resources/unsubscribe", uri="file:///a")["result"] == {}
        assert seen.lines("resources/unsubscribe") == []
        update()
        second.told("notifications/resources/updated")
        first.call("hello")
        assert first.heard == []
        second.leave()
        assert seen.wait_for("resources/unsubscribe") == ["resources/unsubscribe file:///a"]


def test_a_log_level_does_not_outlive_the_client_that_set_it(daemon: Daemon, seen: Events) -> None:
    """The next client did not ask for it."""
    with Conversation(daemon, "files", "--session", "a") as client:
        client.greet()
        client.ask("logging/setLevel", level="debug")
        client.leave()
    seen.wait_for("logging/setLevel", 2)
    assert seen.lines("logging/setLevel") == ["logging/setLevel debug", "logging/setLevel info"]


def test_a_client_that_says_no_more_gets_what_it_asked_for(daemon: Daemon) -> None:
    """As `mcpctl connect < file` does: the server starts, answers, and stays."""
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": greeting()},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"delay": 0.3}}},
        {"id": 3, "method": "ping"},
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0"} | message) + "\n" for message in messages)
    with Conversation(daemon, "slow", "--session", "a") as client:
        client.shim.send(text.encode().rstrip(b"\n"))  # and no newline at the end
        code, out, err = client.leave()
    assert code == 0, err
    answers = [json.loads(line) for line in out.splitlines()]
    assert {answer["id"] for answer in answers} == {1, 2, 3}
    assert all("result" in answer for answer in answers)
    assert only(daemon, "slow")["clients"] == 0


def test_a_client_that_leaves_during_the_handshake_does_not_spoil_it(daemon: Daemon) -> None:
    """A slow start outlasts the patience of a client; the server still sees one `initialize`."""
    seen = Events(state_of(daemon, "slow"))
    with Conversation(daemon, "slow", "--session", "a") as client:
        client.send("initialize", **greeting())
        seen.wait_for("start")
        daemon.log.wait_for("client_connected", server="slow", session="a")
        client.shim.process.kill()
        daemon.log.wait_for("client_disconnected", server="slow", session="a")
    with Conversation(daemon, "slow", "--session", "a") as client:
        client.greet()
        assert client.call("hello") == "hi"
    assert len(seen.lines("start")) == 1
    assert len(seen.lines("initialize")) == 1
