"""What moves by itself: restarts after a crash, and a reload after an edit."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from real_daemon.daemon_fixture import Daemon, record, running_daemon

LOOP = {"policy": "transient", "intensity": 3, "periodMs": 60000, "backoffMs": 50}


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon of its own for each test: they all change what it is configured to do."""
    loop = record("sh", "-c", "echo dying >&2; exit 3")
    with running_daemon(
        {
            "cat": record("cat"),
            "other": record("cat"),
            "loop": {**loop, "restart": LOOP},
            "once": {**loop, "restart": "temporary"},
            "clean": record("true"),
        }
    ) as running:
        yield running


def edit(daemon: Daemon, **servers: dict[str, Any] | None) -> None:
    """Change the configuration file: None removes a server."""
    content = json.loads(daemon.config_file.read_text("utf-8"))
    for name, given in servers.items():
        if given is None:
            del content["mcpServers"][name]
        else:
            content["mcpServers"][name] = given
    daemon.config_file.write_text(json.dumps(content), "utf-8")


def pids(daemon: Daemon) -> dict[str, int]:
    """Server to pid of its one instance."""
    return {view["server"]: view["pid"] for view in daemon.instances()}


def test_a_crash_loop_is_paced_and_ends_as_failed(daemon: Daemon) -> None:
    """Growing waits, then no more starts until somebody asks by hand, which tries at once."""
    daemon.start_server("loop")
    given_up = daemon.log.wait_for("restarts_given_up", server="loop")
    waits = [line["in_s"] for line in daemon.log.events("restart_scheduled", server="loop")]
    assert given_up["restarts"] == len(waits) == 3
    assert waits == sorted(waits)
    assert len(daemon.log.events("instance_started", server="loop")) == 4
    server = daemon.server("loop")
    assert (server["state"], server["exits"], server["last_exit"]["code"]) == ("failed", 4, 3)
    assert server["next_start_in_s"] is None
    assert "exited with code 3; its last line on stderr: dying." in server["error"]
    assert daemon.instances() == []

    place = daemon.log.place()
    daemon.start_server("loop")
    daemon.log.wait_for("restarts_given_up", server="loop", after=place)


def test_a_stop_during_the_wait_cancels_the_restart(daemon: Daemon) -> None:
    """What an operator stopped stays stopped."""
    edit(daemon, loop={**record("sh", "-c", "exit 3"), "restart": {**LOOP, "backoffMs": 60000}})
    daemon.api("POST", "/v1/reload")
    daemon.start_server("loop")
    daemon.log.wait_for("restart_scheduled", server="loop")
    waiting = daemon.server("loop")
    assert waiting["state"] == "backoff"
    assert 40 < waiting["next_start_in_s"] <= 60
    assert daemon.mcpctl_json("stop", "loop")["outcome"] == "nothing_running"
    stopped = daemon.server("loop")
    assert (stopped["state"], stopped["next_start_in_s"]) == ("idle", None)


@pytest.mark.parametrize("name", ["once", "clean"])
def test_what_its_policy_leaves_alone_is_not_started_again(daemon: Daemon, name: str) -> None:
    """`temporary` after any end, `transient` after an exit with code 0."""
    instance = daemon.start_server(name)["id"]
    report = daemon.wait_judged(instance)
    assert (report["reason"], report["outcome"]) == ("crash", "confirmed")
    server = daemon.server(name)
    assert (server["state"], server["exits"]) == ("idle", 1)
    assert daemon.log.events("restart_scheduled", server=name) == []


def test_a_reload_without_a_change_moves_nothing(daemon: Daemon) -> None:
    """Keys in another order and other white space are no change; pids say so."""
    daemon.start_server("cat")
    before = pids(daemon)
    content = json.loads(daemon.config_file.read_text("utf-8"))
    turned = {name: dict(reversed(given.items())) for name, given in content["mcpServers"].items()}
    daemon.config_file.write_text(
        json.dumps({"mcpServers": dict(reversed(turned.items()))}, indent=7)
    )
    answer = daemon.api("POST", "/v1/reload")
    assert answer["unchanged"] == ["cat", "clean", "loop", "once", "other"]
    assert [answer[group] for group in ("changed", "retuned", "added", "removed")] == [[]] * 4
    assert pids(daemon) == before


def test_a_reload_moves_only_what_has_changed(daemon: Daemon) -> None:
    """The changed one gets a new process, the removed one is gone, the third keeps its pid."""
    for name in ("cat", "other", "loop"):
        edit(daemon, **{name: json.loads(daemon.config_file.read_text())["mcpServers"][name]})
    daemon.start_server("cat")
    daemon.start_server("other")
    before = pids(daemon)
    mark = json.loads(daemon.config_file.read_text())["mcpServers"]["cat"]["env"]
    edit(
        daemon,
        cat={**record("cat", "-u"), "env": mark},
        once=None,
        fresh={**record("cat"), "env": mark},
    )
    answer = daemon.api("POST", "/v1/reload")
    assert (answer["changed"], answer["added"], answer["removed"]) == (["cat"], ["fresh"], ["once"])
    assert [report["reason"] for report in answer["reports"]] == ["reload"]
    after = pids(daemon)
    assert after["other"] == before["other"]
    assert after["cat"] != before["cat"]
    assert Path(f"/proc/{after['cat']}/cmdline").read_bytes() == b"cat\0-u\0"
    daemon.start_server("fresh")
    assert daemon.api("GET", "/v1/servers/once", status=404)["code"] == "unknown_server"


def test_a_broken_file_changes_nothing_and_is_named_with_its_line(daemon: Daemon) -> None:
    """All or nothing, whoever asks: the API, and SIGHUP as well."""
    daemon.start_server("cat")
    before = pids(daemon)
    daemon.config_file.write_text('{"mcpServers": {\n  "cat": {"command": 7}}}', "utf-8")
    problem = daemon.api("POST", "/v1/reload", status=409)
    assert problem["code"] == "config_invalid"
    assert f"{daemon.config_file}, line 2" in problem["detail"]
    place = daemon.log.place()
    daemon.signal(signal.SIGHUP)
    refused = daemon.log.wait_for("reload_refused", after=place)
    assert "line 2" in refused["problems"][0]
    assert pids(daemon) == before
    assert daemon.server("other")["state"] == "idle"


def test_sighup_reloads_and_two_of_them_do_not_meet(daemon: Daemon) -> None:
    """One reload or two in a row, never two at once: the changed server is started once more."""
    daemon.start_server("cat")
    mark = json.loads(daemon.config_file.read_text())["mcpServers"]["cat"]["env"]
    edit(daemon, cat={**record("cat", "-u"), "env": mark})
    place = daemon.log.place()
    daemon.signal(signal.SIGHUP)
    daemon.signal(signal.SIGHUP)
    daemon.log.wait_for("configuration_reloaded", after=place, changed=["cat"])
    answer = daemon.api("POST", "/v1/reload")
    assert answer["changed"] == []
    assert len(daemon.log.events("instance_started", after=place, server="cat")) == 1
    assert len(daemon.instances()) == 1


def test_metrics_and_logs_tell_of_a_crash(daemon: Daemon) -> None:
    """The same happening as a counter and as a line."""
    instance = daemon.start_server("once")["id"]
    daemon.wait_judged(instance)
    with daemon.request("GET", "/metrics") as connection:
        text = connection.getresponse().read().decode()
    assert 'mcp_supervisor_exits_total{kind="error",server="once"} 1.0' in text
    assert 'mcp_supervisor_stops_total{outcome="confirmed",server="once"} 1.0' in text
    with daemon.request("GET", "/v1/servers/once/logs") as connection:
        lines = connection.getresponse().read().decode().splitlines()
    assert [line.split(" ", 2)[1:] for line in lines] == [[instance, "dying"]]


def test_a_reload_does_not_lose_a_restart_that_was_due(daemon: Daemon) -> None:
    """Somebody mends what crashed and reloads: the mended one starts, and does not wait."""
    edit(daemon, loop={**record("sh", "-c", "exit 3"), "restart": {**LOOP, "backoffMs": 60000}})
    daemon.api("POST", "/v1/reload")
    daemon.start_server("loop")
    daemon.log.wait_for("restart_scheduled", server="loop")
    mark = json.loads(daemon.config_file.read_text())["mcpServers"]["cat"]["env"]
    edit(daemon, loop={**record("cat"), "env": mark})
    assert daemon.api("POST", "/v1/reload")["changed"] == ["loop"]
    assert daemon.server("loop")["state"] == "alive"
