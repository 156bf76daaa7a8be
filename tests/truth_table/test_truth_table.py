"""Every kind of descendant, every broken helper: is the verdict true?

The truth comes from the kernel's list of a cgroup, or from the servers' own pid files: never from
the code under test. In each cell: never "confirmed" with a survivor, never a survivor that is not
named, never past the deadline by more than 100 ms; and since nothing here is beyond killing, never
"unconfirmed" either.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ground_truth import GroundTruth
from misbehaving import LIVING, Scenario, why_not
from process_table import row_of
from truth_table.hosting import SPANS, Hang, Host, kill, pids_of

SCENARIOS: Final = sorted(set(LIVING) - {"crash"})
FAULTS: Final = (
    "none",
    "relay_killed",
    "anchor_killed",
    "relay_stopped",
    "anchor_stopped",
    "relay_hung",
    "anchor_hung",
    "both_killed",
    "anchor_stopped_relay_killed",
)
LEAVERS: Final = {"leader_exit", "sh_leader_exit", "hold_stdout"}
"""Their root leaves by itself, which ends the family: it may never get to say that it is ready."""

LATE_S: Final = 0.1


class Cell:
    """One server of one scenario, with a way to break its helpers."""

    def __init__(self, host: Host, truth: GroundTruth, scenario: Scenario) -> None:
        self.host = host
        self.truth = truth
        argv = truth.join_argv(scenario.argv)
        env = {"PATH": os.environ["PATH"]}
        # five hundred deaths take their time on a busy machine, whoever brings them about
        scale = 3 if "bulk500" in scenario.argv else 1
        spans = {name: span_s * scale for name, span_s in SPANS.items()}
        self.family = host.ask(spawn={"argv": argv, "env": env, **spans})
        assert "error" not in self.family, self.family
        if not LEAVERS & set(scenario.argv):
            scenario.wait_ready()
        self.hangs: list[Hang] = []

    def break_helpers(self, fault: str) -> None:
        """Kill, stop or hang relay and anchor."""
        for role in ("anchor", "relay"):
            pid = self.host.outside(self.family[role])
            if fault == "both_killed" or f"{role}_killed" in fault:
                kill(pid)
            elif f"{role}_stopped" in fault:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            elif f"{role}_hung" in fault:
                self.hangs.append(Hang(pid))
                if self.hangs[-1].refused:
                    pytest.skip("ptrace is not permitted here")

    def stop(self, **options: object) -> dict[str, Any]:
        """Stop it; return the report, after comparing it with the truth."""
        report: dict[str, Any] = self.host.ask(stop=self.family["instance"], **options)["report"]
        alive = self.truth.alive()
        named = {row["pid"] for row in (*report["survivors"], *report["unattributed"])}
        assert report["outcome"] == ("unconfirmed" if alive else "confirmed"), explain(report)
        assert {self.inside(process.pid) for process in alive} <= named, explain(report)
        assert report["elapsed_s"] <= report["deadline_s"] + LATE_S
        return report

    def inside(self, pid: int) -> int:
        """The pid as the host sees it."""
        return pids_of(pid)[-1] if self.host.namespaced else pid

    def helpers_left(self) -> list[str]:
        """Relay and anchor, as far as they are more than zombies."""
        rows = (row_of(self.host.outside(self.family[role])) for role in ("relay", "anchor"))
        return [row.comm for row in rows if row is not None and row.alive]

    def close(self) -> None:
        """Let go of what is held."""
        for hang in self.hangs:
            hang.close()


def explain(report: dict[str, Any]) -> str:
    """What a failing cell has to tell, which is too long for an assertion's own words."""
    shown = ("reason", "elapsed_s", "missing", "survivors", "unattributed", "failed_signals")
    facts = [f"{f['name']} {f['state']} {f['at_s']} {f['evidence']}" for f in report["facts"]]
    return "\n".join([*(f"{name}: {report[name]}" for name in shown), *facts])


def check(host: Host, truth: GroundTruth, tmp_path: Path, name: str, fault: str) -> dict[str, Any]:
    """Run one cell; return its report."""
    missing = why_not(name)
    if missing:
        pytest.skip(missing)
    with Scenario(name, tmp_path) as scenario:
        cell = Cell(host, truth, scenario)
        try:
            cell.break_helpers(fault)
            report = cell.stop()
            assert report["outcome"] == "confirmed", explain(report)
            assert cell.helpers_left() == []
        finally:
            cell.close()
    return report


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_verdict_is_true(
    host: Host, truth: GroundTruth, tmp_path: Path, name: str, fault: str
) -> None:
    """The promise of the whole project, cell by cell."""
    check(host, truth, tmp_path, name, fault)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["plain", "daemonize_cleanenv", "ign_term"])
def test_the_verdict_is_true_where_relays_are_executed(
    executing_host: Host, truth: GroundTruth, tmp_path: Path, name: str, fault: str
) -> None:
    """Without a fork server the same relay program makes the same promises."""
    check(executing_host, truth, tmp_path, name, fault)


PID_1_FAULTS: Final = ("none", "relay_killed", "anchor_killed", "relay_hung", "both_killed")


@pytest.fixture(scope="module")
def init_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host that is PID 1 of a pid namespace of its own, and so inherits strangers as well."""
    prefix = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    try:
        started = Host(tmp_path_factory.mktemp("records"), "forked", prefix)
    except (EOFError, FileNotFoundError):
        pytest.skip("a pid namespace cannot be made here")
    with started:
        yield started


@pytest.mark.parametrize("fault", PID_1_FAULTS)
@pytest.mark.parametrize("name", sorted({"plain", "setsid", "daemonize", "ign_term", "stopped"}))
def test_the_verdict_is_true_for_pid_1(
    init_host: Host, truth: GroundTruth, tmp_path: Path, name: str, fault: str
) -> None:
    """In a container the daemon is often init: whatever loses its parent comes to it."""
    check(init_host, truth, tmp_path, name, fault)


def test_pid_1_leaves_what_it_cannot_attribute_and_names_it(
    init_host: Host, truth: GroundTruth, tmp_path: Path
) -> None:
    """Without mark, session and parent, init cannot know whose an orphan is: it says so."""
    with Scenario("daemonize_cleanenv", tmp_path) as scenario:
        cell = Cell(init_host, truth, scenario)
        # stopped first: neither may see the other die, adopt its orphan and report it
        cell.break_helpers("relay_stopped anchor_stopped")
        cell.break_helpers("both_killed")
        report = cell.stop()
    (survivor,) = truth.alive()
    assert report["outcome"] == "unconfirmed"
    assert [row["pid"] for row in report["unattributed"]] == [cell.inside(survivor.pid)]
    assert "descendants_gone" in report["missing"]
    truth.kill_all()
    amended = init_host.verdict(cell.family["instance"])
    while amended["outcome"] == "unconfirmed":
        amended = init_host.verdict(cell.family["instance"])
    assert amended["amended_at_utc"] is not None
