"""The misbehaving servers do what their names say, and can all be ended.

Stops are tested against them; so they are tested against the kernel's own tables.
"""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen  # noqa: TID251 - for a type only
from typing import Any

import pytest

from ground_truth import GroundTruth
from leftovers import Groups
from misbehaving import LIVING, Scenario, why_not
from process_table import ProcessRow, kill_pinned, pinned, row_of, wait_gone

pytestmark = pytest.mark.usefixtures("subreaper")

END_WITHIN_S = 5.0
RUNS_OR_SLEEPS = {"R", "S"}


class Standing:
    """A scenario that is in place, seen through /proc."""

    def __init__(self, scenario: Scenario, root_process: "Popen[bytes]") -> None:
        self.scenario = scenario
        self.root_process = root_process
        self.root_pid = root_process.pid
        self.announced = scenario.wait_ready()
        self.pids = scenario.pids()

    def row(self, pid: int) -> ProcessRow:
        """The row of a process that must exist."""
        row = row_of(pid)
        assert row is not None
        return row

    @property
    def root(self) -> ProcessRow:
        """The root, alive or a zombie."""
        return self.row(self.root_pid)

    @property
    def others(self) -> list[ProcessRow]:
        """What is noted beside the root, in the order of noting."""
        return [self.row(pid) for pid in self.pids if pid != self.root_pid]

    @property
    def child(self) -> ProcessRow:
        """The only one beside the root."""
        (only,) = self.others
        return only

    def holds(self, pid: int, descriptor: int) -> str | None:
        """What a process's descriptor points to, or None when it is closed."""
        link = Path(f"/proc/{pid}/fd/{descriptor}")
        return str(link.readlink()) if link.is_symlink() else None

    def environ(self, pid: int) -> bytes:
        """The environment with which a process was started."""
        return Path(f"/proc/{pid}/environ").read_bytes()


@pytest.fixture
def stand(
    truth: GroundTruth, groups: Groups, tmp_path: Path
) -> Iterator[Callable[[str], Standing]]:
    """Start a scenario and wait until it stands; it is killed at the end."""
    with ExitStack() as gates:

        def start(name: str) -> Standing:
            missing = why_not(name)
            if missing is not None:
                pytest.skip(missing)
            if name == "hop" and not truth.by_cgroup:
                pytest.skip("only a cgroup lists and ends a process that changes all the time")
            scenario = gates.enter_context(Scenario(name, tmp_path))
            return Standing(scenario, groups.start(truth.join_argv(scenario.argv)))

        yield start
        truth.kill_all()


Stand = Callable[[str], Standing]


def test_the_table_of_scenarios_is_complete(groups: Groups) -> None:
    """A scenario that the table forgets would never be tested."""
    program = Path(__file__).parent / "servers" / "misbehave.py"
    usage, _ = groups.start([sys.executable, "-S", str(program), "--help"]).communicate(timeout=10)

    choices = re.search(r"\{(\S*)\}", usage.decode())
    assert choices is not None
    assert choices[1].split(",") == sorted(LIVING)


@pytest.mark.parametrize("name", LIVING)
def test_a_ready_scenario_has_as_many_processes_as_it_says_and_can_be_ended(
    name: str, stand: Stand, truth: GroundTruth
) -> None:
    """A test that waits for `ready N` must neither sleep nor find fewer processes than N."""
    standing = stand(name)
    alive = truth.alive()

    assert standing.announced == LIVING[name]
    assert standing.root_pid == standing.pids[0]
    if name != "hop":  # which is two processes at times, and never those that were noted
        assert len(alive) == LIVING[name], alive
        assert {process.pid for process in alive} <= set(standing.pids)

    truth.kill_all()
    assert truth.alive() == []


def test_children_leave_group_and_session_as_their_names_say(stand: Stand) -> None:
    """Group, session and parent are what the owners of a family look at."""
    plain, group, session = stand("plain"), stand("setpgid"), stand("setsid")

    assert (plain.child.pgid, plain.child.sid) == (plain.root_pid, plain.root_pid)
    assert (group.child.pgid, group.child.sid) == (group.child.pid, group.root_pid)
    assert (session.child.pgid, session.child.sid) == (session.child.pid, session.child.pid)
    for standing in (plain, group, session):
        assert standing.child.ppid == standing.root_pid


@pytest.mark.parametrize(
    "name", ["daemonize", "daemonize_closeall", "daemonize_cleanenv", "nohup_envi"]
)
def test_a_daemonized_descendant_is_nobodys_child_any_more(name: str, stand: Stand) -> None:
    """The orphan comes to the nearest subreaper, here to this process, in a session of its own."""
    standing = stand(name)

    assert standing.child.ppid == os.getpid()
    assert standing.child.sid not in {standing.root_pid, os.getsid(0)}
    assert standing.holds(standing.child.pid, 0) == os.devnull


def test_daemons_keep_or_lose_mark_and_descriptors_as_their_names_say(
    stand: Stand, truth: GroundTruth
) -> None:
    """A scan by mark and a lineage pipe each miss some of them: that is why there are four."""
    keeps, closed = stand("daemonize").child, stand("daemonize_closeall")
    clean, nohup = stand("daemonize_cleanenv"), stand("nohup_envi")
    mark = truth.mark.encode()

    assert mark in closed.environ(keeps.pid)
    assert mark in closed.environ(closed.child.pid)
    assert clean.environ(clean.child.pid) == b""
    assert mark not in nohup.environ(nohup.child.pid)
    for standing in (closed, clean):
        assert os.listdir(f"/proc/{standing.child.pid}/fd") == ["0", "1", "2"]  # noqa: PTH208 - order
    assert clean.child.comm == nohup.child.comm == "sleep"


def test_a_child_without_descriptors_holds_none(stand: Stand) -> None:
    """EOF on every pipe, and yet a member of the group."""
    standing = stand("closefds")

    assert list(Path(f"/proc/{standing.child.pid}/fd").iterdir()) == []
    assert standing.child.pgid == standing.root_pid


def test_stopped_processes_are_stopped(stand: Stand) -> None:
    """SIGTERM stays pending there until SIGCONT."""
    child, root = stand("stopped"), stand("root_stopped")

    assert child.child.state == root.root.state == "T"
    # what has just spoken may not have gone to sleep yet
    assert child.root.state in RUNS_OR_SLEEPS
    assert root.child.state in RUNS_OR_SLEEPS


def test_zombies_stay_unreaped(stand: Stand) -> None:
    """A group of zombies still takes signals, so it must not look like a living one."""
    for name in ("zombies", "zombies_ign"):
        states = [row.state for row in stand(name).others]
        assert states == ["Z"] * 20


def test_a_parent_that_waits_for_its_vfork_sleeps_uninterruptibly(stand: Stand) -> None:
    """State D looks like a process that nobody can end, but this one takes SIGKILL."""
    parent, child = stand("vfork_d").others

    assert parent.state == "D"
    assert child.state in RUNS_OR_SLEEPS


def test_a_child_that_dropped_its_user_runs_as_nobody(stand: Stand) -> None:
    """An owner without privileges could not signal it."""
    standing = stand("setuid_drop")

    assert Path(f"/proc/{standing.child.pid}").stat().st_uid == 65534


@pytest.mark.parametrize(
    ("name", "new_session"),
    [
        ("py_subprocess", False),
        ("py_subprocess_session", True),
        ("node_child", False),
        ("node_detached", True),
    ],
)
def test_ordinary_programs_start_children_as_they_always_do(
    name: str, new_session: bool, stand: Stand
) -> None:
    """Python's subprocess and Node's spawn: most real servers do one of these four."""
    standing = stand(name)
    sleep = standing.others[-1]

    assert sleep.comm == "sleep"
    assert (sleep.sid == sleep.pid) is new_session
    assert (sleep.pgid == standing.root_pid) is not new_session


def test_a_leader_that_left_is_dead_before_ready_is_said(stand: Stand) -> None:
    """Only its children are left then: in its group, or holding nothing but its stdout."""
    left, shell, held = stand("leader_exit"), stand("sh_leader_exit"), stand("hold_stdout")

    for standing in (left, shell, held):
        assert standing.root.state == "Z"
        assert standing.root_process.wait(END_WITHIN_S) == 0
    assert left.child.pgid == left.root_pid
    groups = [row.pgid == shell.root_pid for row in shell.others]
    assert sorted(groups) == [False, True]
    assert held.child.sid == held.child.pid
    stream = held.root_process.stdout
    assert stream is not None
    inode = os.fstat(stream.fileno()).st_ino
    pointers = [held.holds(held.child.pid, number) for number in range(8)]
    assert pointers == [os.devnull, f"pipe:[{inode}]", os.devnull, *[None] * 5]


def test_bash_gives_each_job_a_group_of_its_own(stand: Stand) -> None:
    """A signal to the server's group does not reach them."""
    standing = stand("bash_jobctl")
    bash, job = standing.others

    assert (bash.comm, bash.pgid) == ("bash", standing.root_pid)
    assert (job.comm, job.pgid, job.sid) == ("sleep", job.pid, standing.root_pid)


def test_a_nested_subreaper_keeps_the_orphan(stand: Stand) -> None:
    """Its orphan climbs no higher as long as it lives."""
    adopter, orphan = stand("nested_subreaper").others

    assert orphan.ppid == adopter.pid
    assert orphan.sid not in {adopter.sid, adopter.pid}


@pytest.mark.parametrize(("name", "escapes"), [("respawn_group", False), ("respawn_escape", True)])
def test_a_killed_partner_comes_back(
    name: str, escapes: bool, stand: Stand, truth: GroundTruth
) -> None:
    """Whoever ends them one by one never gets to the end, but for the bound of generations."""
    standing = stand(name)
    first, second = (row.pid for row in standing.others)
    noted = len(standing.pids)

    for victim in (first, second):
        with pinned([victim]) as pidfds:
            kill_pinned(pidfds[victim])
            assert wait_gone(pidfds.values(), END_WITHIN_S) == ()
        noted += 1
        while len(standing.scenario.pids()) < noted:  # bounded by the test's own time limit
            os.sched_yield()

    newest = [standing.row(pid) for pid in standing.scenario.pids()[-2:]]
    assert {row.pid for row in newest}.isdisjoint({first, second})
    assert [row.pgid == standing.root_pid for row in newest] == [not escapes] * 2
    assert len(truth.alive()) == 3


def test_a_hopper_is_never_the_same_process_twice(stand: Stand, truth: GroundTruth) -> None:
    """What a scan found is gone when the signal is sent."""
    standing = stand("hop")

    def hopper() -> int:
        return next((one.pid for one in truth.alive() if one.pid != standing.root_pid), 0)

    before = hopper()
    while hopper() in {0, before}:  # bounded by the test's own time limit
        os.sched_yield()


def test_each_of_the_five_hundred_has_its_own_session(stand: Stand) -> None:
    """One signal to a group or a session reaches one of them."""
    standing = stand("bulk500")

    sessions = {row.sid for row in standing.others}
    assert len(sessions) == 500
    assert standing.root_pid not in sessions


def test_the_wrapper_shell_stays_the_parent_of_the_server(stand: Stand) -> None:
    """A signal to the shell alone would leave the server behind."""
    standing = stand("exec_chain")

    assert standing.root.comm == "sh"
    assert standing.child.ppid == standing.root_pid
    assert standing.child.pgid == standing.root_pid
    assert say(standing, "ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_the_polite_root_speaks_mcp_and_leaves_on_eof(stand: Stand) -> None:
    """The start and the normal end of every scenario that does not say otherwise."""
    standing = stand("polite")

    version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
    assert say(standing, "initialize", version)["result"]["protocolVersion"] == "2025-06-18"
    assert say(standing, "server/discover")["error"]["code"] == -32601
    assert [tool["name"] for tool in say(standing, "tools/list")["result"]["tools"]] == ["echo"]
    call = {"name": "echo", "arguments": {"text": "grüß dich"}}
    assert say(standing, "tools/call", call)["result"]["content"][0]["text"] == "grüß dich"

    close_stdin(standing)
    assert standing.root_process.wait(END_WITHIN_S) == 0
    assert standing.scenario.events() == [f"start {standing.root_pid}", "eof"]


def test_a_deaf_family_survives_eof_and_sigterm(stand: Stand, truth: GroundTruth) -> None:
    """Only SIGKILL ends it; the events prove that it was asked before."""
    standing = stand("ign_term")

    close_stdin(standing)
    os.kill(standing.child.pid, signal.SIGTERM)  # noqa: TID251 - ours, unreaped
    standing.root_process.terminate()
    while len(standing.scenario.events()) < 3:  # bounded by the test's own time limit
        os.sched_yield()

    assert sorted(standing.scenario.events()[1:]) == ["SIGTERM", "eof"]
    assert len(truth.alive()) == 2


def test_sigterm_ends_a_root_that_is_not_deaf(stand: Stand) -> None:
    """It dies of the signal itself, and the events say that it came."""
    standing = stand("polite")
    standing.root_process.terminate()

    assert standing.root_process.wait(END_WITHIN_S) == -signal.SIGTERM
    assert standing.scenario.events()[-1] == "SIGTERM"


def test_a_crash_comes_with_the_call(stand: Stand) -> None:
    """Exit code 7 and a line on stderr, for reports that name both."""
    standing = stand("crash")
    assert say(standing, "tools/list")["id"] == 1

    send(standing, "tools/call", {"name": "echo"})

    assert standing.root_process.wait(END_WITHIN_S) == 7
    stream = standing.root_process.stderr
    assert stream is not None
    assert stream.read() == b"misbehave: this call is one too many\n"


def send(standing: Standing, method: str, params: object = None) -> None:
    """Send one request with the id 1."""
    stream = standing.root_process.stdin
    assert stream is not None
    request = {"jsonrpc": "2.0", "id": 1, "method": method}
    if params is not None:
        request["params"] = params
    stream.write(json.dumps(request).encode() + b"\n")
    stream.flush()


def say(standing: Standing, method: str, params: object = None) -> dict[str, Any]:
    """Send one request and read its answer."""
    send(standing, method, params)
    stream = standing.root_process.stdout
    assert stream is not None
    answer = json.loads(stream.readline())
    assert isinstance(answer, dict)
    return answer


def close_stdin(standing: Standing) -> None:
    """Ask the root to leave."""
    stream = standing.root_process.stdin
    assert stream is not None
    stream.close()
