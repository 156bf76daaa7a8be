"""`scope: shared`: one process for all sessions, and nobody notices the others.

Source: design sections 8, 9 and 10.
"""

import json
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest

from real_daemon.clients import Shim
from real_daemon.daemon_fixture import Daemon, running_daemon
from real_daemon.daemon_log import Json
from real_daemon.diaries import Held, Stage, call, open_session, stage, text_of, tool_names

HELLO: Final = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture
def on_stage() -> Iterator[Stage]:
    """A folder of diaries."""
    with stage() as made:
        yield made


@pytest.fixture
def daemon(on_stage: Stage) -> Iterator[Daemon]:
    """A daemon with one server for all, and one for each session."""
    records = {
        "shared": on_stage.record(
            "shared", scope="shared", supportsParallelToolCalls=True, requestTimeoutMs=5000
        ),
        "own": on_stage.record("own"),
    }
    with running_daemon(records) as running:
        yield running


class OfSession(Shim):
    """A `mcpctl connect shared --session KEY` that has greeted."""

    def __init__(self, daemon: Daemon, key: str) -> None:
        super().__init__(daemon, "shared", "--session", key)
        self.ask("initialize", **HELLO)
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def call(self, ident: object, tool: str, *, meta: Json | None = None, **given: Any) -> None:  # noqa: ANN401 - JSON
        """Send a call."""
        params = {"name": tool, "arguments": given, **({} if meta is None else {"_meta": meta})}
        message = {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}
        self.send(json.dumps(message).encode() + b"\n")

    def next(self, **wanted: object) -> Json:
        """The next message that has these members; others are passed over."""
        while True:
            message: Json = json.loads(self.read_line())
            if wanted.items() <= message.items():
                return message


def instances_of(daemon: Daemon, name: str) -> list[Json]:
    """The instances of one server."""
    return [one for one in daemon.instances() if one["server"] == name]


def text(answer: Json) -> str:
    """The text of a result."""
    return text_of(answer["result"])


def pids_of(daemon: Daemon, name: str) -> set[int]:
    """The processes of one server."""
    return {one["pid"] for one in instances_of(daemon, name)}


def test_all_sessions_share_one_process(daemon: Daemon, on_stage: Stage) -> None:
    """Over the API and as one MCP server; the server that is not shared has one for each."""
    for key in ("one", "two"):
        open_session(daemon, key)
        assert "shared__echo" in tool_names(daemon, key)
    with Shim(daemon, "--session", "three", command="serve") as shim:
        shim.ask("initialize", **HELLO)
        assert "shared__echo" in json.dumps(shim.ask("tools/list"))
    assert len(pids_of(daemon, "own")) == 3
    assert len(pids_of(daemon, "shared")) == on_stage["shared"].starts() == 1
    assert on_stage["shared"].count("initialize") == 1
    assert on_stage["shared"].count("tools/list") == 3


def test_clients_of_one_kind_share_one_process_whatever_their_session(
    daemon: Daemon, on_stage: Stage
) -> None:
    """The second handshake is answered from the first."""
    with OfSession(daemon, "one") as first, OfSession(daemon, "two") as second:
        for shim in (first, second):
            shim.call(1, "echo", text="mine")
            assert text(shim.next(id=1)) == "mine"
    assert on_stage["shared"].starts() == on_stage["shared"].count("initialize") == 1


def test_sessions_and_clients_of_every_kind_share_one_process(
    daemon: Daemon, on_stage: Stage
) -> None:
    """A server is shared because there may be only one of it: a lock, a port, a database."""
    open_session(daemon, "one")
    tool_names(daemon, "one")
    with OfSession(daemon, "one") as first, Shim(daemon, "shared") as plain:
        first.call(1, "echo", text="mine")
        assert text(first.next(id=1)) == "mine"
        plain.ask("initialize", **HELLO)
        assert on_stage["shared"].starts() == 1


def test_ids_of_those_who_share_never_cross(daemon: Daemon) -> None:
    """All use the same ids at the same time; each gets its own answers."""
    wrong: list[str] = []

    def over_api(key: str) -> None:
        for number in range(20):
            said = f"{key} {number}"
            if text_of(call(daemon, key, "shared__echo", {"text": said})) != said:
                wrong.append(said)

    def connected(key: str) -> None:
        with OfSession(daemon, key) as shim:
            for number in range(40):
                shim.call(number, "echo", text=f"{key} {number}")
            answers = [shim.next(jsonrpc="2.0") for _ in range(40)]
        wrong.extend(
            f"{key}: {answer}" for answer in answers if text(answer) != f"{key} {answer['id']}"
        )

    works = [(over_api, "one"), (over_api, "two"), (connected, "three"), (connected, "four")]
    threads = [threading.Thread(target=work, args=(key,)) for work, key in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert {one["session"] for one in instances_of(daemon, "shared")} == {"*"}


def test_progress_goes_to_the_one_who_asked(daemon: Daemon) -> None:
    """Both gave the token `1`; the server must not see it twice, nor they each other's notes."""
    with OfSession(daemon, "one") as slow, OfSession(daemon, "two") as idle:
        slow.call(1, "steps", n=3, gap_s=0.05, meta={"progressToken": 1})
        idle.call(1, "steps", n=1, gap_s=0.3, meta={"progressToken": 1})
        notes = []
        while True:
            message = slow.next(jsonrpc="2.0")
            if "id" in message:
                break
            notes.append(message["params"])
        assert [note["progress"] for note in notes] == [1, 2, 3]
        assert {note["progressToken"] for note in notes} == {1}
        assert idle.next(jsonrpc="2.0")["params"]["progress"] == 1
        assert text(idle.next(id=1)) == "done"


def test_a_cancellation_meets_the_call_of_the_one_who_cancels(
    daemon: Daemon, on_stage: Stage
) -> None:
    """The neighbour's call has the same id; it goes on."""
    with (
        Held(on_stage.folder, "mine") as mine,
        Held(on_stage.folder, "theirs") as theirs,
        OfSession(daemon, "one") as me,
        OfSession(daemon, "two") as them,
    ):
        me.call(5, "hold", **mine.arguments)
        mine.wait_entered()
        them.call(5, "hold", **theirs.arguments)
        theirs.wait_entered()
        me.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}\n')
        me.call(6, "echo", text="after")
        assert text(me.next(id=6)) == "after"
        first, _second = on_stage["shared"].calls("hold")
        (cancelled,) = on_stage["shared"].heard("notifications/cancelled")
        assert cancelled["params"]["requestId"] == first["id"]
        theirs.release()
        assert text(them.next(id=5)) == "released"
        mine.release()


def test_who_leaves_takes_nothing_from_the_others(daemon: Daemon, on_stage: Stage) -> None:
    """A client, or a whole session that is deleted."""
    for key in ("goes", "stays"):
        open_session(daemon, key)
        call(daemon, key, "shared__echo")
    answer = daemon.api("DELETE", "/v1/sessions/goes")
    assert (answer["outcome"], answer["reports"]) == ("nothing_running", [])
    assert text_of(call(daemon, "stays", "shared__echo", {"text": "here"})) == "here"
    assert on_stage["shared"].starts() == 1
    with OfSession(daemon, "one") as stays:
        with OfSession(daemon, "two") as leaves:
            leaves.leave()
            assert leaves.finish()[0] == 0
        stays.call(1, "echo", text="here")
        assert text(stays.next(id=1)) == "here"
    assert on_stage["shared"].starts() == on_stage["shared"].count("initialize") == 1


def test_a_changed_list_reaches_all_who_share_it(daemon: Daemon) -> None:
    """Who grew it, and who did not."""
    changed = "notifications/tools/list_changed"
    open_session(daemon, "one")
    tool_names(daemon, "one")
    with Shim(daemon, "--session", "two", command="serve") as serve:
        serve.ask("initialize", **HELLO)
        serve.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        assert "extra1" not in json.dumps(serve.ask("tools/list"))
        call(daemon, "one", "shared__grow")
        assert json.loads(serve.read_line())["method"] == changed
        assert "shared__extra1" in tool_names(daemon, "one")
        assert text_of(call(daemon, "two", "shared__extra1")) == "extra1"
    with OfSession(daemon, "one") as grows, OfSession(daemon, "two") as hears:
        grows.call(1, "grow")
        assert hears.next(method=changed)
        assert text(grows.next(id=1)) == "grown"


def test_a_death_is_told_to_each_who_had_something_in_flight(
    daemon: Daemon, on_stage: Stage
) -> None:
    """And the next call of each finds the one new process; nothing is repeated."""
    open_session(daemon, "one")
    open_session(daemon, "two")
    with Held(on_stage.folder, "held") as held:
        path = "/v1/sessions/one/tools/shared__hold"
        with daemon.request("POST", path, {"arguments": held.arguments}) as waiting:
            held.wait_entered()
            assert call(daemon, "two", "shared__die", status=502)["code"] == "server_gone"
            assert waiting.answer(502)["code"] == "server_gone"
        for key in ("one", "two"):
            assert text_of(call(daemon, key, "shared__echo", {"text": "new"})) == "new"
    assert on_stage["shared"].starts() == 2
    assert len(on_stage["shared"].calls("hold")) == 1
    with (
        Held(on_stage.folder, "mine") as mine,
        OfSession(daemon, "three") as three,
        OfSession(daemon, "four") as four,
    ):
        three.call(1, "hold", **mine.arguments)
        mine.wait_entered()
        four.call(1, "die")
        for shim in (three, four):
            assert shim.next(id=1)["error"]["code"] == -32002
            shim.call(2, "echo", text="new")
            assert text(shim.next(id=2)) == "new"
    assert on_stage["shared"].starts() == 3


def test_autostart_starts_it_with_the_daemon_and_sessions_use_that_one(on_stage: Stage) -> None:
    """It is there before anybody asks, and idle time does not end it."""
    record = on_stage.record("early", scope="shared", autostart=True)
    with running_daemon({"early": record}) as daemon:
        daemon.log.wait_for("instance_started", server="early")
        (instance,) = daemon.instances()
        open_session(daemon, "s", idleTimeoutMs=1)
        assert text_of(call(daemon, "s", "early__echo", {"text": "hi"})) == "hi"
        daemon.log.wait_for("session_forgotten", session="s")
        (same,) = daemon.instances()
        assert (same["id"], same["state"]) == (instance["id"], "ready")
    assert on_stage["early"].starts() == 1
