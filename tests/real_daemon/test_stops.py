"""Stops of families that make it hard: what they report, how long they take, whom they touch.

Each test is a kind of public bug report about MCP servers, with servers of our own.
"""

import json
import os
import time
from collections.abc import Iterator

import pytest

from process_table import identity_of, row_of, still_runs
from real_daemon import shapes
from real_daemon.daemon_fixture import GONE_WITHIN_S, SOON, Daemon, record, running_daemon
from real_daemon.daemon_log import Json
from real_daemon.staging import Gate, OnStage, staged

DEADLINE_S = SOON["deadlineMs"] / 1000
TERM_S = SOON["termAfterMs"] / 1000
KILL_S = SOON["killAfterMs"] / 1000

# a server that does not leave on EOF but dies of SIGTERM, behind two kinds of wrappers
SHELL = """sleep 600 & echo $$ $! >"$GATE"; wait; exit $?"""
NPX = """trap 'exit 143' TERM; sleep 600 & echo $$ $! >"$GATE"; wait"""

ESCAPES = (
    "setsid",
    "setpgid",
    "daemonize",
    "daemonize_closeall",
    "daemonize_cleanenv",
    "py_subprocess_session",
    "nested_subreaper",
)


@pytest.fixture(scope="module")
def on_stage() -> Iterator[OnStage]:
    """Families of all kinds."""
    names = {scenario: scenario for scenario in (*ESCAPES, "plain", "leader_exit", "ign_term")}
    slow = {f"slow{n}": "ign_term" for n in range(2)}
    with staged(names | slow) as made:
        yield made


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """Where the wrapped servers say that they are in place."""
    with Gate(tmp_path_factory.mktemp("gate") / "gate") as made:
        yield made


@pytest.fixture(scope="module")
def daemon(on_stage: OnStage, gate: Gate) -> Iterator[Daemon]:
    """A daemon that the tests share; each stops what it has started."""
    wrapped = {
        name: record("sh", "-c", script, env={"GATE": str(gate.path)})
        for name, script in (("shell", SHELL), ("npx", NPX))
    }
    with running_daemon({**on_stage.records, **wrapped, "quick": record("cat")}) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_runs(daemon: Daemon) -> Iterator[None]:
    """Each test ends with the daemon and its fork server alone."""
    yield
    assert daemon.end_instances() == []
    names = {process.comm for process in daemon.alive()}
    assert len(daemon.alive()) == 2, names


def test_what_a_polite_server_leaves_in_its_group_is_ended_and_named(
    daemon: Daemon, on_stage: OnStage
) -> None:
    """A clean exit of the leader says nothing about the child that it leaves behind."""
    instance = daemon.start_server("plain")
    assert on_stage["plain"].wait_ready() == 2
    root, child = on_stage["plain"].pids()
    (report,) = daemon.mcpctl_json("stop", "plain")["reports"]
    assert report["outcome"] == "confirmed"
    assert report["exit"] == {"code": 0, "signal": None}
    assert [leftover["pid"] for leftover in report["leftovers_ended"]] == [child]
    assert on_stage["plain"].events()[-2:] == [f"start {root}", "eof"]
    assert row_of(child) is None
    assert all(sent["signal"] != "SIGKILL" for sent in report["signals"])
    # the rest does not have to wait for a grace that its leader did not need
    assert report["elapsed_s"] < TERM_S
    assert instance["pgid"] not in {row.pgid for p in daemon.alive() if (row := row_of(p.pid))}


def test_a_leftover_is_shown_to_people(daemon: Daemon, on_stage: OnStage) -> None:
    """README says that everything a server starts ends with it; the stop says what that was."""
    daemon.start_server("plain")
    on_stage["plain"].wait_ready()
    child = on_stage["plain"].pids()[-1]
    done = daemon.mcpctl("stop", "plain")
    assert done.returncode == 0
    assert f"  ended with it: pid {child} " in done.stdout


@pytest.mark.parametrize("name", ESCAPES)
def test_what_escaped_from_the_group_is_found_and_ended(
    daemon: Daemon, on_stage: OnStage, name: str
) -> None:
    """A browser in its own session must not outlive the server for days, nor be passed over."""
    bystander = identity_of(os.getpid())
    daemon.start_server(name)
    on_stage[name].wait_ready()
    pids = on_stage[name].pids()
    (report,) = daemon.mcpctl_json("stop", name)["reports"]
    assert report["outcome"] == "confirmed"
    assert report["survivors"] == []
    assert [pid for pid in pids if row_of(pid) is not None] == []
    assert report["elapsed_s"] < DEADLINE_S
    assert {leftover["pid"] for leftover in report["leftovers_ended"]} == set(pids[1:])
    assert bystander is not None
    assert still_runs(bystander)


def test_a_leader_that_left_by_itself_takes_its_family_along(
    daemon: Daemon, on_stage: OnStage
) -> None:
    """Nobody asked for a stop, and the child in the group is ended all the same."""
    instance = daemon.start_server("leader_exit")
    report = daemon.wait_judged(instance["id"])
    child = on_stage["leader_exit"].pids()[-1]
    assert (report["reason"], report["outcome"]) == ("crash", "confirmed")
    assert row_of(child) is None


@pytest.mark.parametrize("name", ["shell", "npx"])
def test_the_server_behind_a_wrapper_gets_its_sigterm(
    daemon: Daemon, gate: Gate, name: str
) -> None:
    """`sh -c` and npx do not pass signals on; SIGTERM to the group reaches what they started."""
    instance = daemon.start_server(name)
    wrapper, server = (int(pid) for pid in gate.line().split())
    assert instance["pid"] == wrapper
    (report,) = daemon.mcpctl_json("stop", name)["reports"]
    assert report["outcome"] == "confirmed"
    assert row_of(wrapper) is None
    assert row_of(server) is None
    assert {sent["signal"] for sent in report["signals"]} == {"SIGTERM", "SIGCONT"}
    assert TERM_S <= report["elapsed_s"] < KILL_S


def test_a_deaf_server_is_killed_within_the_deadline(daemon: Daemon, on_stage: OnStage) -> None:
    """EOF, SIGTERM, SIGKILL, each at its time; the exit is waited for before the answer."""
    daemon.start_server("ign_term")
    on_stage["ign_term"].wait_ready()
    pids = on_stage["ign_term"].pids()
    (report,) = daemon.mcpctl_json("stop", "ign_term")["reports"]
    assert report["outcome"] == "confirmed"
    assert report["exit"] == {"code": None, "signal": 9}
    assert all(sent.keys() == shapes.SIGNAL for sent in report["signals"])
    to_group = {s["signal"]: s["at_s"] for s in report["signals"] if s["target"] == "group"}
    assert TERM_S <= to_group["SIGTERM"] < KILL_S
    assert KILL_S <= to_group["SIGKILL"] < DEADLINE_S
    assert report["elapsed_s"] < DEADLINE_S
    assert on_stage["ign_term"].events()[-2:] == ["eof", "SIGTERM"]
    assert [pid for pid in pids if row_of(pid) is not None] == []


def test_a_slow_stop_holds_up_nobody_else(daemon: Daemon, on_stage: OnStage) -> None:
    """While one stubborn server is stopped, all others start, stop and answer as ever."""
    slow = daemon.start_server("slow0")
    on_stage["slow0"].wait_ready()
    daemon.start_server("quick")
    with daemon.request("POST", "/v1/servers/slow0/stop") as stop:
        begun_at = wait_stopping(daemon, slow["id"])
        shown = daemon.api("GET", f"/v1/instances/{slow['id']}")
        answer = daemon.api("POST", "/v1/servers/quick/restart")
        assert answer["outcome"] == "confirmed"
        assert daemon.server("quick")["state"] == "alive"
        daemon.stop_server("quick")
        took_s = time.monotonic() - begun_at
        assert daemon.server("slow0")["state"] == "stopping"
        (report,) = stop.answer()["reports"]
    assert took_s < 0.5
    assert shown["state"] == "stopping"
    assert shown["stop"]["stage"] == "closing"
    assert 0 < shown["stop"]["deadline_in_s"] <= DEADLINE_S
    assert report["outcome"] == "confirmed"


def test_a_second_stop_joins_the_first_and_gets_its_report(
    daemon: Daemon, on_stage: OnStage
) -> None:
    """One deadline, fixed by the first request; whoever asks later learns the same."""
    slow = daemon.start_server("slow0")
    on_stage["slow0"].wait_ready()
    with daemon.mcpctl_running("stop", "slow0", "--json") as first:
        wait_stopping(daemon, slow["id"])
        second = daemon.mcpctl_json("stop", "slow0")
        out, _ = first.communicate(timeout=GONE_WITHIN_S)
        assert first.returncode == 0
    assert json.loads(out) == second
    assert second["reports"][0]["deadline_s"] == DEADLINE_S
    assert second["reports"][0]["elapsed_s"] < DEADLINE_S


def test_a_start_during_a_stop_waits_for_its_verdict(daemon: Daemon, on_stage: OnStage) -> None:
    """The old family is confirmed gone before the new one starts (design section 8)."""
    old = daemon.start_server("slow1")
    on_stage["slow1"].wait_ready()
    with daemon.request("POST", "/v1/servers/slow1/stop") as stop:
        wait_stopping(daemon, old["id"])
        new = daemon.start_server("slow1")
        (report,) = stop.answer()["reports"]
    assert (report["instance"], report["outcome"]) == (old["id"], "confirmed")
    assert new["id"] != old["id"]
    on_stage["slow1"].wait_ready()
    daemon.stop_server("slow1", force=True)


def test_a_stop_goes_on_without_the_client_that_asked_for_it(
    daemon: Daemon, on_stage: OnStage
) -> None:
    """A client that gives up must not leave a half-stopped family behind."""
    slow = daemon.start_server("slow0")
    on_stage["slow0"].wait_ready()
    with daemon.request("POST", "/v1/servers/slow0/stop"):
        wait_stopping(daemon, slow["id"])
    report = daemon.report(slow["id"])
    assert (report["reason"], report["outcome"]) == ("stop", "confirmed")


def test_stops_of_many_take_one_deadline(daemon: Daemon, on_stage: OnStage) -> None:
    """Sessions of one stubborn server are stopped side by side, not one after the other."""
    for session in ("a", "b", "c"):
        daemon.start_server("slow0", session)
        on_stage["slow0"].wait_ready()
    answer = daemon.mcpctl_json("stop", "slow0")
    assert answer["outcome"] == "confirmed"
    assert len(answer["reports"]) == 3
    assert max(report["elapsed_s"] for report in answer["reports"]) < DEADLINE_S
    requested = sorted(report["requested_at_utc"] for report in answer["reports"])
    assert requested[0][:19] <= requested[-1][:19]


def test_a_verified_stop_looks_through_all_processes(daemon: Daemon) -> None:
    """`--verify` asks psutil as well, though the receipt is complete (design section 6)."""
    daemon.start_server("quick")
    (report,) = daemon.mcpctl_json("stop", "quick", "--verify")["reports"]
    assert fact(report, "scan_clean")["state"] == "confirmed"
    daemon.start_server("quick")
    (report,) = daemon.mcpctl_json("stop", "quick")["reports"]
    assert fact(report, "scan_clean")["state"] == "not_applicable"


def wait_stopping(daemon: Daemon, instance: str) -> float:
    """Wait until the stop of an instance has begun; the monotonic time after that."""
    daemon.log.wait_for("stop_requested", instance=instance)
    return time.monotonic()


def fact(report: Json, name: str) -> Json:
    """One fact of a report."""
    (found,) = (fact for fact in report["facts"] if fact["name"] == name)
    return dict(found)
