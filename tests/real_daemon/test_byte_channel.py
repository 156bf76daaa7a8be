"""Lines of one server that behaves as bug reports tell: banners, bad bytes, sizes, ids."""

import json
from collections.abc import Iterator
from time import monotonic

import pytest

from real_daemon.conversation import Conversation, text_of
from real_daemon.daemon_fixture import Daemon, running_daemon
from real_daemon.waywards import AT_ONCE_S, MEBIBYTE, only, wayward

LIMIT_BYTES = 2 * MEBIBYTE
SECRET = "hush-hush-0123"  # noqa: S105 - a made-up one, to see it masked


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that the tests share; no test leaves an instance."""
    state = tmp_path_factory.mktemp("state")
    banner = wayward(state / "banner", "--banner")
    banner["env"] = {"API_TOKEN": SECRET}
    records = {
        "bad": wayward(state / "bad"),
        "good": wayward(state / "good"),
        "banner": banner,
        "small": wayward(state / "small", maxLineBytes=LIMIT_BYTES),
        "tiny": wayward(state / "tiny", maxLineBytes=65536),
    }
    with running_daemon(records) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_runs(daemon: Daemon) -> Iterator[None]:
    """Each test ends with the daemon and its fork server alone."""
    yield
    assert daemon.end_instances() == []
    assert len(daemon.alive()) == 2, daemon.alive()


def test_a_banner_on_stdout_is_counted_and_shown_and_stops_nothing(daemon: Daemon) -> None:
    """The classic fault. JSON that is no JSON-RPC is stray as well; what came early is not lost."""
    with Conversation(daemon, "banner") as client:
        assert client.greet()["serverInfo"]["name"] == "wayward"
        assert client.told("notifications/message")["params"]["data"] == "early"
        assert client.call("hello") == "hi"
        assert client.heard == []
        shown = only(daemon, "banner")
        assert shown["state"] == "ready"
        # seven lines of the banner, and one before each answer
        assert shown["stray_lines"] == 7 + 2
        assert shown["first_stray_lines"] == [
            "\U0001f5a5\ufe0f  transport is stdio, have fun",
            "ready in 12 ms, token ***",
            '{"level":30,"msg":"listening"}',
            "42",
            "null",
        ]
        told = daemon.log.events("stray_output", server="banner", instance=shown["id"])
        assert [line["line"] for line in told] == shown["first_stray_lines"][:1]
        code, out, _ = client.leave()
    assert (code, out) == (0, b"")


def test_doctor_warns_of_a_server_that_writes_to_stdout(daemon: Daemon) -> None:
    """Otherwise nobody looks."""
    with Conversation(daemon, "banner") as client:
        client.greet()
        said = daemon.mcpctl("doctor")
        assert "stdout" in said.stdout, said.stdout
        assert "banner" in said.stdout
        client.leave()


def test_one_bad_byte_costs_one_call(daemon: Daemon) -> None:
    """Neither the connection nor the process: the error says what was wrong with the answer."""
    with Conversation(daemon, "bad") as client:
        client.greet()
        pid = only(daemon, "bad")["pid"]
        spoiled = client.ask("tools/call", name="latin1", arguments={})
        assert spoiled["error"]["code"] == -32006
        assert "invalid UTF-8" in spoiled["error"]["message"]
        assert client.call("split") == "\u2264 \U0001f600 \u6f22\u5b57"
        assert client.call("hello") == "hi"
        assert only(daemon, "bad")["pid"] == pid
        client.leave()


@pytest.mark.parametrize("size", [65535, 65536, 65537, MEBIBYTE, LIMIT_BYTES])
def test_answers_up_to_the_limit_arrive_whole(daemon: Daemon, size: int) -> None:
    """No buffer of ours has an edge: 64 KiB is where others break, the limit where we may."""
    with Conversation(daemon, "small") as client:
        client.greet()
        text = client.call("sized", bytes=size)
        assert size - 100 < len(text) < size
        assert set(text) == {"x"}
        client.leave()


def test_an_answer_over_the_limit_costs_that_call_alone(daemon: Daemon) -> None:
    """By one byte; the message names the limit and what raises it, and the process stays."""
    with Conversation(daemon, "small") as client:
        client.greet()
        pid = only(daemon, "small")["pid"]
        held = client.send("tools/call", name="echo", arguments={"tag": "slow", "delay": 0.3})
        spoiled = client.ask("tools/call", name="sized", arguments={"bytes": LIMIT_BYTES + 1})
        assert spoiled["error"]["code"] == -32005
        assert f"a line of {LIMIT_BYTES + 1} bytes" in spoiled["error"]["message"]
        assert f"the limit is {LIMIT_BYTES}" in spoiled["error"]["message"]
        assert "maxLineBytes" in spoiled["error"]["message"]
        assert json.loads(text_of(client.answer(held)))["tag"] == "slow"
        assert client.call("sized", bytes=LIMIT_BYTES).startswith("x")
        assert only(daemon, "small")["pid"] == pid
        client.leave()


def test_a_request_over_the_limit_is_refused_and_the_next_one_passes(daemon: Daemon) -> None:
    """The server never sees it."""
    with Conversation(daemon, "small") as client:
        client.greet()
        big = "x" * LIMIT_BYTES
        refused = client.ask("tools/call", name="hello", arguments={"text": big})
        assert refused["error"]["code"] == -32005
        assert client.call("hello") == "hi"
        client.leave()


def test_a_large_answer_holds_up_no_other_server(daemon: Daemon) -> None:
    """Twelve megabytes on one channel; calls of another client are answered meanwhile."""
    with Conversation(daemon, "bad") as client, Conversation(daemon, "good") as other:
        client.greet()
        other.greet()
        began_at = monotonic()
        asked = client.send("tools/call", name="sized", arguments={"bytes": 12 * MEBIBYTE})
        for _ in range(20):
            assert other.call("hello") == "hi"
        assert len(text_of(client.answer(asked))) > 11 * MEBIBYTE
        assert monotonic() - began_at < AT_ONCE_S
        client.leave()
        other.leave()


def test_a_line_without_end_ends_the_instance_saying_so(daemon: Daemon) -> None:
    """It would fill the memory; nobody can tell whose answer it is to be."""
    with Conversation(daemon, "tiny") as client:
        client.greet()
        instance = only(daemon, "tiny")["id"]
        failed = client.ask("tools/call", name="endless", arguments={})
        assert failed["error"]["code"] == -32005
        assert "the limit is 65536" in failed["error"]["message"]
        code, _, err = client.shim.finish()
        assert (code, "wrote a line without end" in err) == (1, True)
    report = daemon.wait_judged(instance)
    assert (report["reason"], report["outcome"]) == ("endless_line", "confirmed")
    assert "line without end" in daemon.server("tiny")["error"]


@pytest.mark.parametrize("id_", [0, -7, 10**30, "1", "", "caf\u00e9", "\u2028\x00"])
def test_an_answer_has_the_id_of_its_request(daemon: Daemon, id_: object) -> None:
    """With its JSON type, whatever a client may use."""
    with Conversation(daemon, "good") as client:
        client.greet()
        client.send("tools/call", id=id_, name="hello", arguments={})
        assert text_of(client.answer(id_)) == "hi"
        client.leave()


def test_an_id_in_flight_is_not_taken_twice(daemon: Daemon) -> None:
    """The client itself could not tell the answers apart: the second is refused at once."""
    with Conversation(daemon, "good") as client:
        client.greet()
        client.send("tools/call", id=5, name="echo", arguments={"tag": "first", "delay": 0.2})
        client.send("tools/call", id=5, name="echo", arguments={"tag": "second"})
        refused = client.answer(5)
        assert refused["error"]["code"] == -32600
        assert "still in flight" in refused["error"]["message"]
        assert json.loads(text_of(client.answer(5)))["tag"] == "first"
        client.leave()
