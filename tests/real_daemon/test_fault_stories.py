"""Three faults as people live through them: a crash loop, a killed server, a broken file."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from process_table import row_of
from real_daemon.conversation import Conversation, Events, conversations, text_of
from real_daemon.daemon_fixture import Daemon, record, running_daemon
from real_daemon.staging import OnStage, staged
from real_daemon.waywards import AT_ONCE_S, only, state_of, wayward

BACKOFF_MS = 150
STARTS_IN_30_S = 8

LOOP = {"policy": "permanent", "intensity": 3, "periodMs": 60000, "backoffMs": 20}

CALLS = 40
"""How many calls each client has in flight when the file is saved."""


@pytest.fixture(scope="module")
def on_stage() -> Iterator[OnStage]:
    """A polite server with an escaped child."""
    with staged({"tree": "daemonize"}) as made:
        made.records["tree"]["restart"] = "temporary"
        yield made


@pytest.fixture
def daemon(on_stage: OnStage, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon for each test: they all leave it with a history."""
    records = {
        **on_stage.records,
        "leaves": wayward(tmp_path / "leaves", "--leaves", restart={"backoffMs": BACKOFF_MS}),
        "loop": wayward(tmp_path / "loop", "--crash-after", "0.05", restart=LOOP),
        "default": wayward(tmp_path / "default", "--crash-after", "0.01"),
        "loud": wayward(tmp_path / "loud", "--slow", "0.1", restart="temporary"),
        "alpha": wayward(tmp_path / "alpha"),
        "beta": wayward(tmp_path / "beta"),
    }
    with running_daemon(records) as running:
        yield running


def edit(daemon: Daemon, **servers: dict[str, Any] | None) -> None:
    """Change the configuration file: None removes a server."""
    content = json.loads(daemon.config_file.read_text("utf-8"))
    content["mcpServers"] |= {name: given for name, given in servers.items() if given is not None}
    for name in [name for name, given in servers.items() if given is None]:
        del content["mcpServers"][name]
    daemon.config_file.write_text(json.dumps(content, indent=2), "utf-8")


# A crash loop


def test_a_server_that_exits_after_each_handshake_is_started_ever_more_slowly(
    daemon: Daemon,
) -> None:
    """A good handshake does not reset the wait: only uptime does (66 487 starts in 7 minutes)."""
    began_at = []
    with Conversation(daemon, "leaves", "--session", "a") as client:
        client.greet()
        for _ in range(4):
            instance = only(daemon, "leaves")["id"]
            client.ask("tools/list")
            daemon.wait_judged(instance)
            ended_at = monotonic()
            told = client.ask("tools/call", name="hello", arguments={})
            assert "exited with code 0" in told["error"]["message"]
            assert client.call("hello") == "hi"
            began_at.append(monotonic() - ended_at)
    shown = daemon.server("leaves")
    assert (shown["exits"], shown["last_exit"]["code"]) == (4, 0)
    least_s = [0.75 * BACKOFF_MS / 1000 * 2**times for times in range(4)]
    # the wait runs from the verdict, which came a little before the test heard of it
    assert all(took > least - 0.1 for took, least in zip(began_at, least_s, strict=True)), began_at


def test_a_crash_loop_ends_as_failed_and_a_start_by_hand_tries_at_once(daemon: Daemon) -> None:
    """Status says how often, how last, and that nothing more comes by itself."""
    daemon.start_server("loop", "a")
    given_up = daemon.log.wait_for("restarts_given_up", server="loop")
    assert (given_up["session"], given_up["restarts"]) == ("a", 3)
    waits = [line["in_s"] for line in daemon.log.events("restart_scheduled", server="loop")]
    assert waits == sorted(waits)
    shown = daemon.server("loop")
    assert (shown["state"], shown["exits"], shown["next_start_in_s"]) == ("failed", 4, None)
    assert "exited with code 1" in shown["error"]
    seen = Events(state_of(daemon, "loop"))
    assert len(seen.lines("start")) == 4

    began_at = monotonic()
    assert daemon.mcpctl("start", "loop", "--session", "a").returncode == 0
    assert monotonic() - began_at < AT_ONCE_S
    assert daemon.server("loop")["state"] != "failed"
    seen.wait_for("start", 5)


def test_the_default_policy_starts_a_crashing_server_at_most_eight_times(daemon: Daemon) -> None:
    """In half a minute; here to the end, which comes after some 15 s."""
    daemon.start_server("default")
    daemon.log.wait_for("restarts_given_up", server="default", within_s=30.0)
    seen = Events(state_of(daemon, "default"))
    assert 3 <= len(seen.lines("start")) <= STARTS_IN_30_S
    assert daemon.server("default")["state"] == "failed"


# A server that is killed between two calls


def test_a_killed_server_is_named_with_its_signal_and_its_last_words(daemon: Daemon) -> None:
    """The first call says so, the next one is answered by another process."""
    with Conversation(daemon, "loud", "--session", "a") as client:
        client.greet()
        first = only(daemon, "loud")
        daemon.kill_process(first["pid"])
        daemon.wait_judged(first["id"])
        failed = client.ask("tools/call", name="hello", arguments={})["error"]
        assert failed["code"] == -32002
        assert failed["message"].startswith("Server 'loud' was ended by signal 9")
        assert "npm warn deprecated something@1.2.3" in failed["message"]
        assert daemon.server("loud")["state"] == "idle"
        assert client.call("hello") == "hi"
        assert only(daemon, "loud")["pid"] != first["pid"]
    with Conversation(daemon, "loud") as private:
        private.greet()
        held = private.send("tools/call", name="hold", arguments={})
        (pid,) = [one["pid"] for one in daemon.instances() if one["session"] is None]
        daemon.kill_process(pid)
        assert "was ended by signal 9" in private.answer(held)["error"]["message"]
        assert private.shim.finish()[0] == 1


def test_the_children_of_a_killed_server_are_gone_before_its_successor_runs(
    daemon: Daemon, on_stage: OnStage
) -> None:
    """A restart never stands beside the descendants of the one before (design section 8)."""
    with Conversation(daemon, "tree", "--session", "a") as client:
        client.greet()
        on_stage["tree"].wait_ready()
        before = on_stage["tree"].pids()
        first = only(daemon, "tree")
        daemon.kill_process(first["pid"])
        report = daemon.wait_judged(first["id"])
        assert (report["reason"], report["outcome"]) == ("crash", "confirmed")
        client.ask("tools/call", name="echo", arguments={"text": "told"})
        answer = client.ask("tools/call", name="echo", arguments={"text": "again"})
        assert text_of(answer) == "again"
        assert [pid for pid in before if row_of(pid) is not None] == []
        place = [line["event"] for line in events_of(daemon, "tree")]
        assert place.index("cleanup_confirmed") < place.index("instance_started", 1)


def events_of(daemon: Daemon, name: str) -> list[dict[str, Any]]:
    """The starts and verdicts of one server, in order."""
    found = [
        *daemon.log.events("instance_started", server=name),
        *daemon.log.events("cleanup_confirmed", server=name),
    ]
    return sorted(found, key=lambda line: str(line["timestamp"]))


# A broken file that is saved while there is work


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ('{\n  "mcpServers": {\n    "alpha": {"command": "x",}\n', 3),
        ('{\n  "mcpServers": {\n    "alpha": {\n      "command": 7}}}', 4),
        ("", 1),
    ],
)
def test_a_broken_file_saved_under_load_stops_nothing(
    daemon: Daemon, broken: str, line: int
) -> None:
    """Every call is answered by the process that took it; the error names file and line."""
    good = daemon.config_file.read_text("utf-8")
    with (
        conversations(daemon, "alpha", "--session", "a") as shared,
        Conversation(daemon, "beta") as private,
    ):
        clients = [*shared, private]
        for client in clients:
            client.greet()
        before = {one["id"]: one["pid"] for one in daemon.instances()}
        for client in clients:
            for at in range(CALLS):
                arguments = {"tag": at, "delay": 0.005 * at}
                client.send("tools/call", id=f"c{at}", name="echo", arguments=arguments)
        daemon.config_file.write_text(broken, "utf-8")
        refused = daemon.api("POST", "/v1/reload", status=409)
        assert refused["code"] == "config_invalid"
        assert f"{daemon.config_file}, line {line}" in refused["detail"]
        place = daemon.log.place()
        daemon.signal(signal.SIGHUP)
        told = daemon.log.wait_for("reload_refused", after=place)
        assert f"line {line}" in told["problems"][0]
        pids = set()
        for client in clients:
            for at in range(CALLS):
                answer = json.loads(text_of(client.answer(f"c{at}")))
                assert answer["tag"] == at
                pids.add(answer["pid"])
        assert pids == set(before.values())
        assert {one["id"]: one["pid"] for one in daemon.instances()} == before
        daemon.config_file.write_text(good, "utf-8")
        assert daemon.api("POST", "/v1/reload")["changed"] == []
        assert [client.call("hello") for client in clients] == ["hi"] * 3


def test_a_reload_moves_what_changed_and_lets_a_call_elsewhere_end(daemon: Daemon) -> None:
    """A client of the changed one goes on over the same connection, with the new process."""
    with (
        Conversation(daemon, "alpha", "--session", "a") as alpha,
        Conversation(daemon, "beta", "--session", "a") as beta,
    ):
        pids = [client.greet()["serverInfo"]["version"] for client in (alpha, beta)]
        held = alpha.send("tools/call", name="echo", arguments={"tag": "held", "delay": 1.0})
        given = json.loads(daemon.config_file.read_text("utf-8"))["mcpServers"]["beta"]
        edit(daemon, beta={**given, "args": [*given["args"], "--banner"]}, gamma=record("cat"))
        answer = daemon.api("POST", "/v1/reload")
        assert (answer["changed"], answer["added"]) == (["beta"], ["gamma"])
        assert [report["reason"] for report in answer["reports"]] == ["reload"]
        told = json.loads(text_of(alpha.answer(held)))
        assert (told["tag"], str(told["pid"])) == ("held", pids[0])
        assert json.loads(beta.call("echo"))["pid"] != int(pids[1])
        assert str(only(daemon, "alpha")["pid"]) == pids[0]
