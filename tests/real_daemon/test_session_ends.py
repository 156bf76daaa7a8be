"""How named sessions end: a server dies, is stopped, is reclaimed; a client does not read."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from real_daemon.conftest import StartDaemon
from real_daemon.conversation import Conversation, Events, conversations
from real_daemon.daemon_fixture import Daemon, running_daemon
from real_daemon.waywards import MEBIBYTE, only, state_of, stop_all, wayward

QUEUE_BYTES = 65536
IDLE_MS = 300


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon for each test: ends leave a history."""
    records = {
        "files": wayward(tmp_path / "files", restart="temporary"),
        "brief": wayward(tmp_path / "brief", idleTimeoutMs=IDLE_MS),
        "again": wayward(tmp_path / "again", restart={"policy": "transient", "backoffMs": 50}),
    }
    with running_daemon(records) as running:
        yield running
        stop_all(running)
        assert len(running.alive()) == 2, running.alive()


def test_a_death_between_two_calls_is_told_once_and_mended(daemon: Daemon) -> None:
    """What the server knew is lost, so the first call says so; the next one starts it again."""
    seen = Events(state_of(daemon, "files"))
    with Conversation(daemon, "files", "--session", "a") as client:
        client.greet()
        assert client.call("hello") == "hi"
        first = only(daemon, "files")
        daemon.kill_process(first["pid"])
        daemon.wait_judged(first["id"])
        failed = client.ask("tools/call", name="hello", arguments={})
        assert failed["error"]["code"] == -32002
        assert "was ended by signal 9" in failed["error"]["message"]
        assert client.call("hello") == "hi"
        assert only(daemon, "files")["pid"] != first["pid"]
        assert len(seen.lines("initialize")) == len(seen.lines("initialized")) == 2
        assert client.heard == []


def test_stderr_follows_the_client_from_server_to_server(daemon: Daemon) -> None:
    """The shim has one stderr, whichever process answers its client."""
    with Conversation(daemon, "files", "--session", "a") as client:
        client.greet()
        for _ in range(3):
            failed = client.ask("tools/call", name="die", arguments={})
            assert "panic: out of cheese" in failed["error"]["message"]
        code, _, err = client.leave()
    assert code == 0
    assert err.count("panic: out of cheese") == 3


def test_a_restart_by_policy_serves_the_clients_that_wait(daemon: Daemon, tmp_path: Path) -> None:
    """The instance that was started again is theirs: not one more beside it."""
    with Conversation(daemon, "again", "--session", "a", cwd=tmp_path) as client:
        client.greet()
        client.ask("tools/call", name="die", arguments={})
        place = daemon.log.place()
        daemon.log.wait_for("restart_scheduled", server="again")
        daemon.log.wait_for("instance_started", server="again", after=place)
        assert client.call("hello") == "hi"
        assert len(daemon.instances()) == 1


def test_a_stop_by_somebody_else_ends_the_connection(daemon: Daemon) -> None:
    """Somebody wants the server not to run: the client is told, and does not start it again."""
    with Conversation(daemon, "files", "--session", "a") as client:
        client.greet()
        held = client.send("tools/call", name="hold", arguments={})
        assert daemon.mcpctl("stop", "files").returncode == 0
        assert "was stopped on request" in client.answer(held)["error"]["message"]
        code, out, err = client.shim.finish()
    assert (code, out) == (1, b"")
    assert "was stopped by `mcpctl stop`" in err


def test_what_nobody_uses_is_reclaimed_with_a_report(daemon: Daemon) -> None:
    """After the idle time of the server; one that has a client is not idle."""
    with Conversation(daemon, "brief", "--session", "kept") as client:
        pid = client.greet()["serverInfo"]["version"]
        with Conversation(daemon, "brief", "--session", "left") as other:
            other.greet()
            (left,) = [one["id"] for one in daemon.instances() if one["session"] == "left"]
            other.leave()
        report = daemon.wait_judged(left)
        assert (report["reason"], report["outcome"]) == ("idle", "confirmed")
        assert report["exit"] == {"code": 0, "signal": None}
        assert str(only(daemon, "brief")["pid"]) == pid
        assert client.call("hello") == "hi"


def test_a_client_that_does_not_read_is_let_go_and_the_other_goes_on(
    stopped_daemon: StartDaemon, tmp_path: Path
) -> None:
    """Nobody's silence may fill the memory, or hold up who shares the server (design 9)."""
    daemon = stopped_daemon({"files": wayward(tmp_path / "files")})
    content = json.loads(daemon.config_file.read_text("utf-8"))
    content["supervisor"] = {"maxClientQueueBytes": QUEUE_BYTES}
    daemon.config_file.write_text(json.dumps(content), "utf-8")
    daemon.start()
    with conversations(daemon, "files", "--session", "a") as (silent, reader):
        for client in (silent, reader):
            client.greet()
        asked = [
            silent.send("tools/call", name="sized", arguments={"bytes": MEBIBYTE}) for _ in range(4)
        ]
        slow = daemon.log.wait_for("client_too_slow", server="files")
        assert slow["session"] == "a"
        assert slow["waiting_bytes"] > QUEUE_BYTES
        for _ in range(3):
            assert len(reader.call("sized", bytes=MEBIBYTE)) > MEBIBYTE - 200
        code, out, err = silent.shim.finish()
        assert out.count(b"\n") < len(asked)
        assert only(daemon, "files")["clients"] == 1
        assert code != 0, err
