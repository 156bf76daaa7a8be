"""Sessions: opened, reused, changed, reclaimed; what is not touched does not notice.

Source: design section 10.
"""

import threading
from collections.abc import Iterator
from typing import Final

import pytest

from real_daemon.daemon_fixture import Daemon, running_daemon
from real_daemon.diaries import (
    Held,
    Stage,
    call,
    edit,
    open_session,
    processes,
    stage,
    text_of,
    tool_names,
)

SERVERS: Final = ("a", "b", "c")
IDLE_MS: Final = 300
"""Above a call's way through the daemon, so that reclaiming does not race with every call."""

MANY: Final = 50


@pytest.fixture
def on_stage() -> Iterator[Stage]:
    """A folder of diaries."""
    with stage() as made:
        yield made


@pytest.fixture
def daemon(on_stage: Stage) -> Iterator[Daemon]:
    """A daemon of its own for each test: they look at all that runs."""
    records = {name: on_stage.record(name) for name in SERVERS}
    with running_daemon(records) as running:
        yield running


def diaries(on_stage: Stage) -> dict[str, int]:
    """How many lines each server has written."""
    return {name: len(on_stage[name].entries()) for name in SERVERS}


def test_the_same_session_again_is_no_work_at_all(daemon: Daemon, on_stage: Stage) -> None:
    """A client that opens its session before each turn costs nothing: no process, no message."""
    first = open_session(daemon, "s", *SERVERS)
    assert (first["reused"], [one["state"] for one in first["servers"]]) == (False, ["idle"] * 3)
    assert diaries(on_stage) == dict.fromkeys(SERVERS, 0)

    assert "a__echo" in tool_names(daemon, "s")
    before, lines = processes(daemon, "s"), diaries(on_stage)
    assert set(before) == set(SERVERS)
    for name in SERVERS:
        counts = [on_stage[name].count(m) for m in ("initialize", "tools/list", "tools/call")]
        assert (on_stage[name].starts(), *counts) == (1, 1, 1, 0)

    second = open_session(daemon, "s", *SERVERS)
    assert (second["reused"], second["fingerprint"]) == (True, first["fingerprint"])
    assert [one["state"] for one in second["servers"]] == ["ready"] * 3
    assert "a__echo" in tool_names(daemon, "s")
    assert (processes(daemon, "s"), diaries(on_stage)) == (before, lines)


def test_a_server_that_is_dropped_is_stopped_and_the_others_keep_their_processes(
    daemon: Daemon,
) -> None:
    """A changed choice of servers replaces what has changed, and nothing else."""
    open_session(daemon, "s", *SERVERS)
    tool_names(daemon, "s")
    before = processes(daemon, "s")
    (dropped,) = [one["id"] for one in daemon.instances() if one["server"] == "b"]

    answer = open_session(daemon, "s", "a", "c")
    assert answer["reused"] is False
    report = daemon.report(dropped)
    assert (report["reason"], report["outcome"]) == ("reload", "confirmed")
    assert {name.partition("__")[0] for name in tool_names(daemon, "s")} == {"a", "c"}
    del before["b"]
    assert processes(daemon, "s") == before
    assert call(daemon, "s", "b__echo", status=404)["code"] == "unknown_tool"


def test_a_reload_replaces_the_changed_server_only(daemon: Daemon, on_stage: Stage) -> None:
    """And the session finds the new process with its next call."""
    open_session(daemon, "s", *SERVERS)
    tool_names(daemon, "s")
    before = processes(daemon, "s")
    answer = edit(daemon, b=on_stage.record("b", "version=2025-06-18"))
    assert (answer["changed"], answer["unchanged"]) == (["b"], ["a", "c"])
    assert text_of(call(daemon, "s", "b__echo", {"text": "anew"})) == "anew"
    after = processes(daemon, "s")
    assert (after["a"], after["c"]) == (before["a"], before["c"])
    assert after["b"] != before["b"]
    assert open_session(daemon, "s", *SERVERS)["reused"] is True


def test_new_limits_and_filters_apply_to_running_servers(daemon: Daemon, on_stage: Stage) -> None:
    """Neither is seen by the process, so neither may cost it."""
    first = open_session(daemon, "s", *SERVERS)
    tool_names(daemon, "s")
    before = processes(daemon, "s")

    answer = edit(daemon, a={"requestTimeoutMs": 200, "toolFilter": {"exclude": ["d*"]}})
    assert (answer["retuned"], answer["reports"]) == (["a"], [])
    offered = tool_names(daemon, "s")
    assert "a__die" not in offered
    assert "b__die" in offered
    assert call(daemon, "s", "a__die", status=404)["code"] == "unknown_tool"
    late = call(daemon, "s", "a__silent", status=504)
    assert (late["limit_s"], late["setting"]) == (0.2, "requestTimeoutMs")

    narrow = open_session(daemon, "s", *SERVERS, toolFilter={"include": ["e*"]})
    assert narrow["reused"] is False
    assert narrow["fingerprint"] != first["fingerprint"]
    assert tool_names(daemon, "s") == ["a__echo", "b__echo", "c__echo"]
    assert processes(daemon, "s") == before
    assert [on_stage[name].starts() for name in SERVERS] == [1, 1, 1]


def test_a_filter_applies_to_tools_that_were_used_before(daemon: Daemon) -> None:
    """What was looked up once is not a way around the filter."""
    open_session(daemon, "s", "a")
    assert text_of(call(daemon, "s", "a__odd"))
    edit(daemon, a={"toolFilter": {"exclude": ["odd"]}})
    assert call(daemon, "s", "a__odd", status=404)["code"] == "unknown_tool"
    open_session(daemon, "s", "a", toolFilter={"include": ["odd"]})
    assert call(daemon, "s", "a__echo", status=404)["code"] == "unknown_tool"


def test_a_call_starts_the_server_that_it_needs_and_no_other(
    daemon: Daemon, on_stage: Stage
) -> None:
    """A person with thirty servers who calls one tool does not wait for thirty starts."""
    open_session(daemon, "s", *SERVERS)
    assert text_of(call(daemon, "s", "b__echo", {"text": "alone"})) == "alone"
    assert call(daemon, "s", "nobody__echo", status=404)["code"] == "unknown_tool"
    assert [on_stage[name].starts() for name in SERVERS] == [0, 1, 0]


def test_a_call_of_a_server_that_cannot_be_started_says_why(daemon: Daemon) -> None:
    """A word of no such tool would send its user to look in the wrong place."""
    edit(daemon, lost={"command": "mcp-no-such-command", "args": []})
    problem = call(daemon, "s", "lost__anything", status=502)
    assert problem["code"] == "launch_failed"
    assert "mcp-no-such-command" in problem["detail"]
    done = daemon.mcpctl("call", "lost__anything", "--session", "s")
    assert done.returncode == 1
    assert "mcp-no-such-command" in done.stderr


def test_two_sessions_never_share_a_process(daemon: Daemon, on_stage: Stage) -> None:
    """What one of them does to its server, the other one does not notice."""
    for key in ("one", "two"):
        open_session(daemon, key, "a", "b")
        tool_names(daemon, key)
    one, two = processes(daemon, "one"), processes(daemon, "two")
    pids = {pid for held in (one, two) for pid, _ in held.values()}
    assert len(pids) == 4
    assert call(daemon, "one", "a__die", status=502)["code"] == "server_gone"
    assert text_of(call(daemon, "two", "a__echo", {"text": "still here"})) == "still here"
    assert processes(daemon, "two") == two
    # whoever heard the call of `two` is its own process
    last = on_stage["a"].entries()[-1]
    assert last["pid"] == two["a"][0]


def test_deleting_a_session_ends_all_that_it_holds(daemon: Daemon) -> None:
    """Answered when all is decided; another session does not notice."""
    for key in ("goes", "stays"):
        open_session(daemon, key, *SERVERS)
        tool_names(daemon, key)
    stays = processes(daemon, "stays")
    answer = daemon.api("DELETE", "/v1/sessions/goes")
    found = {report["server"]: report["outcome"] for report in answer["reports"]}
    assert (answer["outcome"], found) == ("confirmed", dict.fromkeys(SERVERS, "confirmed"))
    assert (processes(daemon, "goes"), processes(daemon, "stays")) == ({}, stays)
    assert [one["key"] for one in daemon.api("GET", "/v1/sessions")["sessions"]] == ["stays"]
    gone = daemon.api("DELETE", "/v1/sessions/goes", status=404)
    assert gone["code"] == "unknown_session"


def test_an_idle_session_is_reclaimed_with_a_report_and_never_under_a_call(
    daemon: Daemon, on_stage: Stage
) -> None:
    """Idle time runs from the release of a call, not from its beginning."""
    open_session(daemon, "s", "a", "b")
    tool_names(daemon, "s")
    with Held(on_stage.folder, "long") as held:
        given = {"arguments": held.arguments}
        with daemon.request("POST", "/v1/sessions/s/tools/a__hold", given) as request:
            held.wait_entered()
            by_server = {one["server"]: one["id"] for one in daemon.instances()}
            # the same session: its idle time is no matter of what it offers
            assert open_session(daemon, "s", "a", "b", idleTimeoutMs=IDLE_MS)["reused"] is True
            # the neighbour has nothing to do, so its time passes while the call runs
            idle = daemon.wait_judged(by_server["b"])
            assert (idle["reason"], idle["outcome"]) == ("idle", "confirmed")
            assert [one["id"] for one in daemon.instances()] == [by_server["a"]]
            held.release()
            assert text_of(request.answer()) == "released"
    report = daemon.wait_judged(by_server["a"])
    assert (report["reason"], report["outcome"]) == ("idle", "confirmed")
    daemon.log.wait_for("session_forgotten", session="s")
    assert daemon.api("GET", "/v1/sessions/s", status=404)["code"] == "unknown_session"


def test_a_reclaimed_server_is_there_again_for_the_next_call(
    daemon: Daemon, on_stage: Stage
) -> None:
    """Reclaiming is no failure of anything: nobody is told of a death."""
    open_session(daemon, "s", "a")
    tool_names(daemon, "s")
    (instance,) = daemon.instances()
    open_session(daemon, "s", "a", idleTimeoutMs=IDLE_MS)
    daemon.wait_judged(instance["id"])
    # nor is the new one taken away while it starts, which lasts longer than its idle time
    edit(daemon, a=on_stage.record("a", "slow=0.6"))
    assert text_of(call(daemon, "s", "a__echo", {"text": "back"})) == "back"
    assert on_stage["a"].starts() == 2


def test_mcpctl_lists_and_ends_sessions(daemon: Daemon) -> None:
    """The words that people type."""
    assert daemon.mcpctl("sessions").stdout == "There is no session.\n"
    done = daemon.mcpctl("call", "a__echo", "text=hello", "--session", "work")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
    listed = daemon.mcpctl("tools", "--session", "work")
    assert listed.returncode == 0
    assert "a__echo" in listed.stdout
    assert "Says its text." in listed.stdout
    assert "And no more." not in listed.stdout
    (session,) = daemon.mcpctl_json("sessions")["sessions"]
    assert (session["key"], len(session["instances"])) == ("work", 3)  # `tools` started them
    ended = daemon.mcpctl("sessions", "--end", "work")
    assert ended.returncode == 0
    assert ended.stdout.count("confirmed") == 3
    assert daemon.instances() == []


@pytest.mark.timeout(240)
def test_fifty_sessions_opened_at_once_all_get_their_tools_and_all_are_reclaimed(
    daemon: Daemon, on_stage: Stage
) -> None:
    """Starts wait for one another; waiting for a turn is nobody's time-out."""
    problems: list[str] = []

    def use(key: str) -> None:
        try:
            open_session(daemon, key, "a", "b")
            found = tool_names(daemon, key)
            assert {"a__echo", "b__echo"} <= set(found)
        except Exception as error:  # noqa: BLE001 - told by the test's own thread
            problems.append(f"{key}: {error!r}")

    keys = [f"s{number}" for number in range(MANY)]
    threads = [threading.Thread(target=use, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    instances = {one["id"] for one in daemon.instances()}
    assert len(instances) == 2 * MANY
    assert on_stage["a"].starts() == on_stage["b"].starts() == MANY
    for key in keys:
        open_session(daemon, key, "a", "b", idleTimeoutMs=1)
    for instance in instances:
        report = daemon.wait_judged(instance, within_s=60)
        assert (report["reason"], report["outcome"]) == ("idle", "confirmed"), report
