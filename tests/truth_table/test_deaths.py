"""Whatever dies without a stop: the family is ended within its deadline, and no helper lingers.

Nobody is left to ask when the owner itself is killed; the truth is then seen through pidfds.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from ground_truth import GroundTruth
from misbehaving import Scenario
from process_table import open_pidfd, pinned, wait_gone
from truth_table.hosting import HERE, SPANS, Host, kill

LATE_S: Final = 0.1
FAMILIES: Final = ("plain", "setsid", "daemonize_cleanenv", "ign_term", "respawn_escape", "zombies")
COMBINATIONS: Final = (("host",), ("host", "relay"), ("host", "anchor"))


def spawn(host: Host, truth: GroundTruth, scenario: Scenario) -> dict[str, Any]:
    """Start one server and wait until its processes stand."""
    argv = truth.join_argv(scenario.argv)
    family = host.ask(spawn={"argv": argv, "env": {"PATH": os.environ["PATH"]}, **SPANS})
    assert "error" not in family, family
    scenario.wait_ready()
    return family


def sweep(records: Path) -> list[dict[str, Any]]:
    """Run the sweep of the next start."""
    done = subprocess.run(  # noqa: S603 - the program under test
        [sys.executable, str(HERE / "sweep_host.py"), str(records)],
        capture_output=True,
        check=True,
        timeout=30,
    )
    reports: list[dict[str, Any]] = json.loads(done.stdout)
    return reports


@pytest.mark.parametrize("killed", COMBINATIONS, ids="+".join)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_outlives_no_killed_owner(
    truth: GroundTruth, tmp_path: Path, name: str, killed: tuple[str, ...]
) -> None:
    """One helper is enough: whichever is left ends the family in the span it was given."""
    records = tmp_path / "records"
    records.mkdir()
    with Scenario(name, tmp_path) as scenario, Host(records, "forked") as host:
        family = spawn(host, truth, scenario)
        helpers = [family["relay"], family["anchor"]]
        with pinned([*helpers, *(process.pid for process in truth.alive())]) as pidfds:
            began_at = time.monotonic()
            for role in killed:
                kill(host.pid if role == "host" else family[role])
            left = wait_gone(pidfds.values(), SPANS["deadline_s"] + LATE_S)
            took_s = time.monotonic() - began_at
        host.close()
        assert not left
        assert truth.alive() == []
        polite = name not in {"ign_term", "respawn_escape"}
        assert took_s < (SPANS["kill_after_s"] if polite else SPANS["deadline_s"]) + LATE_S
        (report,) = sweep(records)
    assert report["reason"] == "daemon_lost"
    # a relay that was left to finish has written its receipt; an anchor alone cannot
    assert report["outcome"] == ("unconfirmed" if "relay" in killed else "confirmed"), report
    assert list(records.iterdir()) == []


def test_the_next_start_ends_what_nobody_holds_any_more(truth: GroundTruth, tmp_path: Path) -> None:
    """With all owners killed at once, exact identities and the mark are what is left to go by."""
    records = tmp_path / "records"
    records.mkdir()
    with Scenario("ign_term", tmp_path) as scenario, Host(records, "forked") as host:
        family = spawn(host, truth, scenario)
        before = {process.pid for process in truth.alive()}
        for pid in (host.pid, family["relay"], family["anchor"]):
            kill(pid)
        host.close()
        assert {process.pid for process in truth.alive()} == before
        (report,) = sweep(records)
    assert truth.alive() == []
    assert {row["pid"] for row in report["leftovers_ended"]} == before
    assert report["outcome"] == "unconfirmed"
    assert "descendants_gone" in report["missing"]


def test_a_stranger_with_a_recorded_pid_is_left_alone(truth: GroundTruth, tmp_path: Path) -> None:
    """A pid in a record means nothing without its start time."""
    records = tmp_path / "records"
    records.mkdir()
    with Scenario("plain", tmp_path) as scenario, Host(records, "forked") as host:
        spawn(host, truth, scenario)
        kill(host.pid)
        host.close()
        (record,) = records.glob("*.json")
        wait_empty(truth)
    innocent = subprocess.Popen(["/bin/sleep", "60"])
    try:
        fields = json.loads(record.read_text())
        fields["process"] = [innocent.pid, fields["process"][1]]
        record.write_text(json.dumps(fields))
        sweep(records)
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.parametrize("field", ["boot_id", "pid_namespace"])
def test_a_record_of_another_boot_or_namespace_is_deleted_unused(
    truth: GroundTruth, tmp_path: Path, field: str
) -> None:
    """Its pids are other processes' here, even where pid and start time agree."""
    records = tmp_path / "records"
    records.mkdir()
    with Scenario("ign_term", tmp_path) as scenario, Host(records, "forked") as host:
        family = spawn(host, truth, scenario)
        for pid in (host.pid, family["relay"], family["anchor"]):
            kill(pid)
        host.close()
        (record,) = records.glob("*.json")
        fields = json.loads(record.read_text())
        fields[field] = type(fields[field])(7)
        record.write_text(json.dumps(fields))
        assert sweep(records) == []
        assert list(records.glob("*.json")) == []
        assert truth.alive() != []
    truth.kill_all()


def test_two_families_that_lose_all_helpers_do_not_touch_a_third(
    host: Host, truth: GroundTruth, tmp_path: Path
) -> None:
    """Their orphans come to the daemon at the same time as a new relay does."""
    third = tmp_path / "third"
    third.mkdir()
    with contextlib.ExitStack() as stack:
        doomed = []
        for number, name in enumerate(("daemonize_cleanenv", "ign_term")):
            directory = tmp_path / str(number)
            directory.mkdir()
            scenario = stack.enter_context(Scenario(name, directory))
            doomed.append(spawn(host, truth, scenario))
        polite = stack.enter_context(Scenario("plain", third))
        victims = {process.pid for process in truth.alive()}
        env = {"PATH": os.environ["PATH"]}
        spawning = host.send(spawn={"argv": truth.join_argv(polite.argv), "env": env, **SPANS})
        for family in doomed:
            kill(family["relay"])
            kill(family["anchor"])
        alive = host.answer(spawning)
        assert "error" not in alive, alive
        polite.wait_ready()
        for family in doomed:
            report = host.ask(stop=family["instance"])["report"]
            assert report["outcome"] == "confirmed", report
        assert {process.pid for process in truth.alive()} == set(polite.pids())
        assert not victims & {process.pid for process in truth.alive()}
        report = host.ask(stop=alive["instance"])["report"]
    assert report["outcome"] == "confirmed"
    assert report["exit"] == {"code": 0, "signal": None}


def wait_empty(truth: GroundTruth) -> None:
    """Wait until nothing of the truth is alive."""
    for process in truth.alive():
        with contextlib.suppress(ProcessLookupError):
            pidfd = open_pidfd(process.pid)
            try:
                wait_gone([pidfd], SPANS["deadline_s"] + LATE_S)
            finally:
                os.close(pidfd)
