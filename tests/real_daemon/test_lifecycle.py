"""Starting, stopping and looking, as people and scripts do: words, exit codes, JSON shapes."""

import json
import re
import select
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from real_daemon import shapes
from real_daemon.daemon_fixture import GONE_WITHIN_S, Daemon, record, running_daemon
from real_daemon.daemon_log import Json
from real_daemon.staging import OnStage, staged

FOLLOWER_TRIES = 50
INSTANCE_ID = re.compile(r"[0-9a-f]{16}")


@pytest.fixture(scope="module")
def on_stage() -> Iterator[OnStage]:
    """A server that ignores SIGTERM and EOF, as does its child; and one that crashes in a call."""
    with staged({"deaf": "ign_term", "crash": "crash"}) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(on_stage: OnStage) -> Iterator[Daemon]:
    """A daemon that the tests share; each stops what it has started."""
    records = {**on_stage.records, "cat": record("cat"), "off": {**record("cat"), "enabled": False}}
    records["crash"] = {**records["crash"], "restart": "temporary"}  # one crash is one instance
    with running_daemon(records) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_runs(daemon: Daemon) -> Iterator[None]:
    """Each test ends with no instance."""
    yield
    assert daemon.end_instances() == []


def stop_all(daemon: Daemon, name: str) -> Json:
    """Stop by the command line; its JSON."""
    return daemon.mcpctl_json("stop", name)


def test_a_start_answers_with_the_instance_that_runs(daemon: Daemon) -> None:
    """What it says is what the kernel says: state is observed, not configured."""
    answer = daemon.mcpctl_json("start", "cat")
    instance = answer["instance"]
    assert answer["started"] is True
    assert instance.keys() == shapes.INSTANCE
    assert INSTANCE_ID.fullmatch(instance["id"])
    assert (instance["server"], instance["session"]) == ("cat", "default")
    assert (instance["state"], instance["stop"], instance["quarantined"]) == ("alive", None, False)
    assert Path(f"/proc/{instance['pid']}/comm").read_text("ascii") == "cat\n"
    alive = {process.pid for process in daemon.alive()}
    assert {instance["pid"], instance["pgid"], instance["relay_pid"]} <= alive
    assert stop_all(daemon, "cat")["outcome"] == "confirmed"


def test_a_second_start_finds_the_instance_of_the_first(daemon: Daemon) -> None:
    """`start` ensures one instance in a session; two would be a leak that nobody asked for."""
    first = daemon.mcpctl_json("start", "cat")
    again = daemon.mcpctl_json("start", "cat")
    assert again["started"] is False
    assert again["instance"]["id"] == first["instance"]["id"]
    assert again["instance"]["pid"] == first["instance"]["pid"]
    said = daemon.mcpctl("start", "cat")
    assert said.stdout.startswith(f"cat: already there, instance {first['instance']['id']}")
    stop_all(daemon, "cat")


def test_starts_at_the_same_time_make_one_instance(daemon: Daemon) -> None:
    """Several agents begin to work at once; work on one session and server is serialised."""
    with ExitStack() as requests:
        sent = [
            requests.enter_context(daemon.request("POST", "/v1/servers/cat/start", {}))
            for _ in range(6)
        ]
        answers = [request.answer() for request in sent]
    assert sorted(answer["started"] for answer in answers) == [False] * 5 + [True]
    assert len({answer["instance"]["id"] for answer in answers}) == 1
    assert len(daemon.instances()) == 1
    stop_all(daemon, "cat")


def test_a_stop_answers_with_every_fact_of_its_report(daemon: Daemon) -> None:
    """The report is the product: all facts, each with its evidence (design section 6)."""
    instance = daemon.mcpctl_json("start", "cat")["instance"]
    answer = stop_all(daemon, "cat")
    assert answer.keys() == {"outcome", "reports"}
    (report,) = answer["reports"]
    assert report.keys() == shapes.REPORT
    assert (answer["outcome"], report["outcome"]) == ("confirmed", "confirmed")
    assert (report["instance"], report["reason"]) == (instance["id"], "stop")
    assert all(fact.keys() == shapes.FACT for fact in report["facts"])
    states = {fact["name"]: fact["state"] for fact in report["facts"]}
    assert states.keys() == shapes.FACTS
    assert set(states.values()) == {"confirmed", "not_applicable"}
    assert (report["missing"], report["survivors"], report["signals"]) == ([], [], [])
    assert report["exit"] == {"code": 0, "signal": None}
    assert report["deadline_s"] == 1.5
    assert daemon.report(instance["id"]) == report
    assert daemon.mcpctl_json("reports")["reports"][-1] == report


def test_a_stop_says_in_words_what_it_did(daemon: Daemon) -> None:
    """The same value as text: name, outcome, time, exit (design section 6)."""
    daemon.start_server("cat")
    done = daemon.mcpctl("stop", "cat")
    assert done.returncode == 0
    assert re.fullmatch(
        r"cat: stopped, cleanup confirmed in 0\.\d{3} s \(exit code 0\)\n", done.stdout
    )


def test_a_stop_of_what_does_not_run_is_no_failure(daemon: Daemon) -> None:
    """A script may stop twice; the answer says that nothing was running (design section 12)."""
    assert stop_all(daemon, "cat") == {"outcome": "nothing_running", "reports": []}
    done = daemon.mcpctl("stop", "cat")
    assert (done.returncode, done.stdout) == (0, "cat: nothing was running\n")


def test_sessions_have_instances_of_their_own(daemon: Daemon) -> None:
    """Two sessions never share one; `stop NAME` ends all that match (design sections 10 and 12)."""
    first = daemon.mcpctl_json("start", "cat", "--session", "one")["instance"]
    other = daemon.mcpctl_json("start", "cat", "--session", "two")["instance"]
    assert first["pid"] != other["pid"]
    sessions = daemon.mcpctl_json("status")["sessions"]
    assert [(session["key"], session["instances"]) for session in sessions] == [
        ("one", [first["id"]]),
        ("two", [other["id"]]),
    ]
    one = daemon.mcpctl_json("stop", "cat", "--session", "one")
    assert [report["instance"] for report in one["reports"]] == [first["id"]]
    assert [instance["id"] for instance in daemon.instances()] == [other["id"]]
    rest = stop_all(daemon, "cat")
    assert [report["instance"] for report in rest["reports"]] == [other["id"]]


def test_one_instance_can_be_stopped_by_its_id(daemon: Daemon) -> None:
    """The other instance of the server is not touched."""
    first = daemon.start_server("cat", "one")
    other = daemon.start_server("cat", "two")
    answer = daemon.mcpctl_json("stop", "--instance", first["id"])
    assert [report["instance"] for report in answer["reports"]] == [first["id"]]
    assert [instance["pid"] for instance in daemon.instances()] == [other["pid"]]
    stop_all(daemon, "cat")


def test_a_restart_starts_only_after_the_old_one_is_confirmed_gone(daemon: Daemon) -> None:
    """A restart never leaves the previous family behind (design section 8)."""
    old = daemon.start_server("cat")
    after = daemon.log.place()
    answer = daemon.mcpctl_json("restart", "cat")
    assert answer.keys() == {"outcome", "reports", "instance"}
    assert answer["outcome"] == "confirmed"
    assert [report["instance"] for report in answer["reports"]] == [old["id"]]
    assert answer["reports"][0]["reason"] == "restart"
    new = answer["instance"]
    assert new["id"] != old["id"]
    assert {old["pid"], old["relay_pid"], old["anchor_pid"]}.isdisjoint(
        process.pid for process in daemon.alive()
    )
    confirmed = daemon.log.wait_for("cleanup_confirmed", after=after, instance=old["id"])
    started = daemon.log.wait_for("instance_started", after=after, instance=new["id"])
    assert sequence(confirmed["event_id"]) < sequence(started["event_id"])
    stop_all(daemon, "cat")


def test_the_status_shows_daemon_servers_and_instances(daemon: Daemon) -> None:
    """Exit code 0 whenever the daemon answers (design section 13)."""
    instance = daemon.start_server("cat")
    status = daemon.mcpctl_json("status")
    assert status.keys() == shapes.STATUS
    assert status["daemon"]["pid"] == daemon.pid
    assert status["daemon"]["config_file"] == str(daemon.config_file)
    assert status["daemon"]["runtime_dir"] == str(daemon.runtime_dir)
    assert status["limits"]["instances"] == 1
    assert [server["name"] for server in status["servers"]] == ["cat", "crash", "deaf", "off"]
    assert all(server.keys() == shapes.SERVER for server in status["servers"])
    states = {server["name"]: server["state"] for server in status["servers"]}
    assert states == {"cat": "alive", "crash": "idle", "deaf": "idle", "off": "disabled"}
    assert [found["id"] for found in status["instances"]] == [instance["id"]]
    said = daemon.mcpctl("status")
    assert said.returncode == 0
    assert f"pid {daemon.pid}, up " in said.stdout
    assert re.search(rf"{instance['id']}\s+cat\s+default\s+alive\s+{instance['pid']}", said.stdout)
    stop_all(daemon, "cat")


def test_a_death_shows_at_once_and_with_its_reason(daemon: Daemon, on_stage: OnStage) -> None:
    """State is what was observed: after the death nobody is told that it still runs."""
    instance = daemon.start_server("crash")
    on_stage["crash"].wait_ready()
    (pid,) = on_stage["crash"].pids()[-1:]
    after = daemon.log.place()
    daemon.kill_process(pid)
    report = daemon.log.wait_for("cleanup_confirmed", after=after, instance=instance["id"])
    assert report["report"]["reason"] == "crash"
    assert report["report"]["exit"] == {"code": None, "signal": 9}
    server = daemon.server("crash")
    assert server["instances"] == []
    assert server["state"] != "alive"
    assert "signal 9" in server["error"]


def test_release_is_refused_for_what_is_not_quarantined(daemon: Daemon) -> None:
    """It gives up custody, so a slip of the fingers must not do it to a healthy server."""
    instance = daemon.start_server("cat")
    done = daemon.mcpctl("release", instance["id"])
    assert done.returncode == 1
    assert "is not quarantined" in done.stderr
    unknown = daemon.mcpctl_json("release", "0123456789abcdef", code=1)
    assert unknown["code"] == "unknown_instance"
    assert daemon.mcpctl("release", "no-id").returncode == 2
    assert [found["id"] for found in daemon.instances()] == [instance["id"]]
    stop_all(daemon, "cat")


def test_an_unknown_server_is_named_with_those_that_there_are(daemon: Daemon) -> None:
    """A typo is the commonest mistake; the sentence shows the way out."""
    for command in ("start", "stop", "restart"):
        done = daemon.mcpctl(command, "kat")
        assert done.returncode == 1
        assert done.stdout == ""
        assert "No server is called 'kat'; configured: cat, crash, deaf, off." in done.stderr
    problem = daemon.mcpctl_json("start", "kat", code=1)
    assert problem.keys() >= shapes.PROBLEM
    assert (problem["code"], problem["status"]) == ("unknown_server", 404)
    assert problem["known"] == ["cat", "crash", "deaf", "off"]


def test_a_disabled_server_is_not_started(daemon: Daemon) -> None:
    """`enabled: false` in a pasted client file means what it says."""
    done = daemon.mcpctl("start", "off")
    assert done.returncode == 1
    assert "'off' is disabled" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("stop",),
        ("start",),
        ("begin", "cat"),
        ("start", "cat", "--session", "no spaces"),
        ("stop", "cat", "--instance", "0123456789abcdef"),
        ("status", "--jsn"),
    ],
)
def test_a_command_line_that_cannot_be_understood_is_exit_code_2(
    daemon: Daemon, words: tuple[str, ...]
) -> None:
    """Scripts tell their own mistakes from failures by it (design section 13)."""
    done = daemon.mcpctl(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_events_are_numbered_and_can_be_followed_from_a_place(daemon: Daemon) -> None:
    """A follower that was cut off misses nothing, or is told that it did (design section 12)."""
    daemon.start_server("cat")
    listed = daemon.mcpctl_json("events")["events"]
    assert all(event.keys() == shapes.EVENT for event in listed)
    run = daemon.mcpctl_json("status")["daemon"]["run"]
    assert [event["id"] for event in listed] == [f"{run}-{n + 1}" for n in range(len(listed))]
    place = listed[-1]["id"]
    stop_all(daemon, "cat")
    behind = daemon.api("GET", f"/v1/events?after={place}")["events"]
    assert [event["name"] for event in behind] == ["stop_requested", "cleanup_confirmed"]
    lost = daemon.api("GET", "/v1/events?after=00000000-7")["events"]
    assert lost[0]["name"] == "gap"
    assert lost[1]["id"] == f"{run}-1"


def test_a_follower_sees_events_as_they_happen(daemon: Daemon) -> None:
    """`mcpctl events -f --json` is for scripts: one object a line, at once."""
    with daemon.request("GET", "/v1/events?follow=true") as stream:
        answer = stream.getresponse()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        instance = daemon.start_server("cat")
        lines = [answer.readline().decode() for _ in range(4)]
    assert lines[1] == "event: instance_started\n"
    assert json.loads(lines[2].removeprefix("data: "))["instance"] == instance["id"]
    with daemon.mcpctl_running("events", "-f", "--json") as follower:
        assert follower.stdout is not None
        # nothing tells that a follower has come: something happens until it sees it
        for _ in range(FOLLOWER_TRIES):
            stop_all(daemon, "cat")
            daemon.start_server("cat")
            if select.select([follower.stdout], [], [], 0.1)[0]:
                break
        assert json.loads(follower.stdout.readline()).keys() == shapes.EVENT
    stop_all(daemon, "cat")


def test_a_forced_stop_kills_early_within_the_same_deadline(
    daemon: Daemon, on_stage: OnStage
) -> None:
    """`--force` moves the stages forward and never the deadline (design section 5)."""
    daemon.start_server("deaf")
    on_stage["deaf"].wait_ready()
    (report,) = daemon.mcpctl_json("stop", "deaf", "--force")["reports"]
    assert report["outcome"] == "confirmed"
    assert report["deadline_s"] == 1.5
    killed = [sent for sent in report["signals"] if sent["signal"] == "SIGKILL"]
    assert killed
    assert killed[0]["at_s"] < 0.25
    assert report["exit"] == {"code": None, "signal": 9}


def test_who_interrupts_a_stop_does_not_end_it(daemon: Daemon, on_stage: OnStage) -> None:
    """Ctrl-C leaves with 130 and a sentence; the daemon goes on (design section 13)."""
    instance = daemon.start_server("deaf")
    on_stage["deaf"].wait_ready()
    after = daemon.log.place()
    with daemon.mcpctl_running("stop", "deaf") as stop:
        daemon.log.wait_for("stop_requested", after=after, instance=instance["id"])
        stop.send_signal(signal.SIGINT)
        _, said = stop.communicate(timeout=GONE_WITHIN_S)
        assert stop.returncode == 130
    assert said.startswith("mcpctl: Interrupted; the stop of 'deaf' goes on")
    assert "Traceback" not in said
    assert daemon.wait_judged(instance["id"])["outcome"] == "confirmed"


def sequence(event_id: str) -> int:
    """The number in an event's id."""
    return int(event_id.partition("-")[2])
