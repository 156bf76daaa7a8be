"""The daemon's own end: killed, asked once, asked twice. Nothing of its families is left."""

import signal
import time
from collections.abc import Iterator

import pytest

from process_table import pinned, row_of, wait_gone
from real_daemon.clients import Shim
from real_daemon.conftest import StartDaemon
from real_daemon.daemon_fixture import BEYOND_BUDGET_S, GONE_WITHIN_S, SOON, Daemon
from real_daemon.staging import OnStage, staged

POLITE_WITHIN_S = 1.0
"""They leave on EOF within milliseconds; the rest is for a loaded machine."""

DEADLINE_S = SOON["deadlineMs"] / 1000
LOADED_S = 1.0
"""How late helpers may be on two busy cores."""

POLITE = {"polite": "polite", "tree": "plain", "escaped": "daemonize_cleanenv"}
STUBBORN = {"deaf": "ign_term", "zombies": "zombies_ign"}


@pytest.fixture
def mixed() -> Iterator[OnStage]:
    """Servers of all kinds."""
    with staged(POLITE | STUBBORN) as made:
        yield made


def start_all(daemon: Daemon, on_stage: OnStage) -> dict[str, list[int]]:
    """Start every server in four sessions; the pids of their processes by server."""
    for name in (*POLITE, *STUBBORN):
        for session in ("a", "b", "c", "d"):
            daemon.start_server(name, session)
            on_stage[name].wait_ready()
    return {
        name: [pid for pid in on_stage[name].pids() if living(pid)] for name in (*POLITE, *STUBBORN)
    }


def living(pid: int) -> bool:
    """Whether there is such a process and it is no zombie."""
    row = row_of(pid)
    return row is not None and row.alive


def test_all_families_end_when_the_daemon_is_killed(
    mixed: OnStage, stopped_daemon: StartDaemon
) -> None:
    """Each relay runs the same stop by itself, and no helper lingers (design section 7)."""
    daemon = stopped_daemon(mixed.records)
    daemon.start()
    pids = start_all(daemon, mixed)
    assert len(daemon.instances()) == 20
    run = daemon.api("GET", "/v1/status")["daemon"]["run"]
    instances = {instance["id"]: instance["server"] for instance in daemon.instances()}
    polite = [pid for name in POLITE for pid in pids[name]]
    everything = [process.pid for process in daemon.alive()]
    # a relay, an anchor and what the servers noted; the daemon and its fork server
    assert len(everything) == 2 + 2 * 20 + sum(map(len, pids.values()))
    with pinned(polite) as polite_fds, pinned(everything) as all_fds:
        killed_at = time.monotonic()
        daemon.kill()
        assert wait_gone(polite_fds.values(), POLITE_WITHIN_S) == ()
        left_s = killed_at + DEADLINE_S + LOADED_S - time.monotonic()
        assert wait_gone(all_fds.values(), left_s) == ()
    assert daemon.alive() == []

    daemon.start()
    assert daemon.api("GET", "/v1/status")["daemon"]["run"] != run
    for instance, server in instances.items():
        swept = daemon.log.wait_for("instance_swept", instance=instance)
        assert (swept["server"], swept["outcome"]) == (server, "confirmed")
    reports = daemon.mcpctl_json("reports")["reports"]
    assert {report["instance"] for report in reports} == instances.keys()
    assert {report["reason"] for report in reports} == {"daemon_lost"}
    names = [event["name"] for event in daemon.mcpctl_json("events")["events"]]
    assert names.count("instance_swept") == 20
    assert daemon.instances() == []
    assert list((daemon.runtime_dir / "instances").iterdir()) == []


def test_a_daemon_that_starts_at_once_again_lets_the_relays_finish(
    stopped_daemon: StartDaemon,
) -> None:
    """It is ready at once, and starts nothing before what it found is gone (design section 7)."""
    with staged({"deaf": "ign_term"}) as on_stage:
        daemon = stopped_daemon(on_stage.records)
        daemon.start()
        old = daemon.start_server("deaf")
        on_stage["deaf"].wait_ready()
        daemon.kill()
        daemon.start()
        new = daemon.start_server("deaf")
        swept = daemon.log.wait_for("instance_swept", instance=old["id"])
        started = daemon.log.wait_for("instance_started", instance=new["id"])
        assert swept["outcome"] == "confirmed"
        assert swept["timestamp"] <= started["timestamp"]
        assert not living(old["pid"])
        assert not living(old["relay_pid"])
        on_stage["deaf"].wait_ready()
        assert daemon.stop_server("deaf", force=True)["outcome"] == "confirmed"


def test_the_helpers_of_a_killed_daemon_may_be_killed_as_well(stopped_daemon: StartDaemon) -> None:
    """The next start ends what it finds by the mark, and does not claim to know the rest.

    Without a relay's receipt nobody can say that no descendant had cleared its environment.
    """
    with staged({"tree": "setsid"}) as on_stage:
        daemon = stopped_daemon(on_stage.records)
        daemon.start()
        instance = daemon.start_server("tree")
        on_stage["tree"].wait_ready()
        pids = on_stage["tree"].pids()
        helpers = [instance["anchor_pid"], instance["relay_pid"], daemon.pid]
        with pinned(helpers) as pidfds:
            for pidfd in pidfds.values():
                signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
            for pidfd in pidfds.values():
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            assert wait_gone(pidfds.values(), GONE_WITHIN_S) == ()
        daemon.wait(GONE_WITHIN_S)
        daemon.start()
        swept = daemon.log.wait_for("instance_swept", instance=instance["id"])
        assert swept["outcome"] == "unconfirmed"
        assert set(swept["missing"]) == {"descendants_gone", "closing_receipt"}
        assert swept["ended"] == pids[1:]
        assert [pid for pid in pids if living(pid)] == []
        (report,) = daemon.mcpctl_json("reports", "--unconfirmed")["reports"]
        assert (report["reason"], report["survivors"]) == ("daemon_lost", [])
        daemon.start_server("tree")
        on_stage["tree"].wait_ready()
        assert daemon.stop_server("tree")["outcome"] == "confirmed"


def test_a_shim_ends_with_its_daemon(stopped_daemon: StartDaemon) -> None:
    """Exit code 4 and a sentence: how the instance ended cannot be learnt any more."""
    with staged({"polite": "polite"}) as on_stage:
        daemon = stopped_daemon(on_stage.records)
        daemon.start()
        with Shim(daemon, "polite") as shim:
            assert shim.ask("ping")["result"] == {}
            daemon.kill()
            code, out, err = shim.finish()
        assert (code, out) == (4, b"")
        assert "the daemon is gone" in err
        daemon.wait_all_gone(GONE_WITHIN_S)


def test_a_stop_of_the_daemon_takes_one_deadline_for_all(start_daemon: StartDaemon) -> None:
    """Four stubborn servers are stopped side by side, within one budget (design section 5)."""
    with staged({f"slow{n}": "ign_term" for n in range(4)}) as on_stage:
        daemon = start_daemon(on_stage.records)
        for n in range(4):
            daemon.start_server(f"slow{n}")
            on_stage[f"slow{n}"].wait_ready()
        slow = daemon.instances()[0]
        with daemon.request("POST", f"/v1/servers/{slow['server']}/stop") as stop:
            daemon.log.wait_for("stop_requested", instance=slow["id"])
            begun_at = time.monotonic()
            assert daemon.stop() == 0
            took_s = time.monotonic() - begun_at
            # who had asked for one stop gets its answer, though the daemon leaves
            (report,) = stop.answer()["reports"]
        assert took_s < DEADLINE_S + LOADED_S
        assert (report["reason"], report["outcome"]) == ("stop", "confirmed")
        reports = [line["report"] for line in daemon.log.events("cleanup_confirmed")]
        assert {r["exit"]["signal"] for r in reports} == {9}
        # the budget is their own deadline, so nothing was shortened
        assert {(r["deadline_s"], r["deadline_shortened_by"]) for r in reports} == {
            (DEADLINE_S, None)
        }
        (stopped,) = daemon.log.events("daemon_stopped")
        assert (stopped["confirmed"], stopped["unconfirmed"]) == (4, 0)
        assert daemon.alive() == []


def test_a_second_sigterm_forces(start_daemon: StartDaemon) -> None:
    """SIGKILL is due at once; nothing is skipped (design section 18)."""
    slow = {"deadlineMs": 20000, "termAfterMs": 10000, "killAfterMs": 15000}
    with staged({"deaf": "ign_term"}, stop=slow) as on_stage:
        daemon = start_daemon(on_stage.records)
        instance = daemon.start_server("deaf")
        on_stage["deaf"].wait_ready()
        daemon.signal(signal.SIGTERM)
        daemon.log.wait_for("shutdown_requested", force=False)
        daemon.signal(signal.SIGTERM)
        assert daemon.wait(BEYOND_BUDGET_S + GONE_WITHIN_S) == 0
        (line,) = daemon.log.events("cleanup_confirmed", instance=instance["id"])
        assert line["report"]["elapsed_s"] < 5
        assert line["report"]["exit"] == {"code": None, "signal": 9}


def test_shutdown_by_command_waits_until_the_daemon_has_gone(start_daemon: StartDaemon) -> None:
    """Exit code 0 means gone, and the sockets are removed (design section 13)."""
    with staged({"polite": "polite"}) as on_stage:
        daemon = start_daemon(on_stage.records)
        daemon.start_server("polite")
        with pinned([daemon.pid]) as pidfds:
            done = daemon.mcpctl("shutdown")
            assert wait_gone(pidfds.values(), 0) == ()
        assert done.returncode == 0
        assert done.stdout.startswith(f"mcp-supervisord (pid {daemon.pid}) has stopped in ")
        assert daemon.wait(GONE_WITHIN_S) == 0
        assert not (daemon.runtime_dir / "control.sock").exists()
        assert not (daemon.runtime_dir / "mcp.sock").exists()


def test_a_follower_does_not_hold_the_stop_of_the_daemon(start_daemon: StartDaemon) -> None:
    """Its stream is ended first, with the closing summary in it (design section 20)."""
    daemon = start_daemon({})
    with daemon.request("GET", "/v1/events?follow=true") as stream:
        answer = stream.getresponse()
        assert daemon.stop() == 0
        text = answer.read().decode()
    names = [
        line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")
    ]
    assert names == ["shutdown_requested", "daemon_stopped"]


@pytest.mark.parametrize("command", ["start", "stop", "status", "reports", "events", "shutdown"])
def test_without_a_daemon_every_command_says_how_to_start_one(
    stopped_daemon: StartDaemon, command: str
) -> None:
    """Exit code 4 and the command to type (design section 13)."""
    daemon = stopped_daemon({})
    words = [command, "cat"] if command in {"start", "stop"} else [command]
    done = daemon.mcpctl(*words)
    assert (done.returncode, done.stdout) == (4, "")
    assert "mcp-supervisord start" in done.stderr
    assert "Traceback" not in done.stderr
    if command != "shutdown":
        assert daemon.mcpctl_json(*words, code=4)["code"] == "daemon_unreachable"


def test_without_a_daemon_a_client_learns_it_from_its_first_request(
    stopped_daemon: StartDaemon,
) -> None:
    """Few clients show stderr, all show this error (design section 9)."""
    daemon = stopped_daemon({})
    with Shim(daemon, "git") as shim:
        answer = shim.ask("initialize", protocolVersion="2025-06-18")
        code, out, err = shim.finish()
    assert answer["id"] == 1
    assert answer["error"]["data"] == {"code": "daemon_unreachable"}
    assert "mcp-supervisord start" in answer["error"]["message"]
    assert (code, out) == (4, b"")
    assert "mcp-supervisord start" in err
