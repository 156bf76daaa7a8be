"""What cannot be confirmed is said, kept, watched, and never started over.

Source: design sections 5, 6 and 8.
"""

import errno
import os
import shutil
import subprocess  # noqa: TID251 - looks at the machine as a user would
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ground_truth import GroundTruth
from process_table import descendants_of, row_of
from real_daemon import shapes
from real_daemon.clients import Shim
from real_daemon.conftest import StartDaemon
from real_daemon.daemon_fixture import SOON, SUPERVISORD, Daemon, record, running_daemon
from real_daemon.daemon_log import Json
from real_daemon.freezer import Freezer, freezer_mount, freezing
from real_daemon.staging import Gate, OnStage, staged

DEADLINE_S = SOON["deadlineMs"] / 1000
JUDGED_WITHIN_S = 0.5
"""How late a verdict may be on a loaded machine."""

NOBODY = 65534
REPOSITORY = Path(__file__).parents[2]
BECOME_ROOT = """setsid "$0" --reuid=0 --clear-groups sh -c 'echo $$ >"$0"; sleep 600' "$1" & cat"""
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

needs_freezer = pytest.mark.skipif(
    freezer_mount() is None, reason="no cgroup v1 freezer that this user may use"
)


@pytest.fixture(scope="module")
def on_stage() -> Iterator[OnStage]:
    """A family whose child is in the group, and one whose child has escaped."""
    with staged({"tree": "plain", "escaped": "setsid"}) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(on_stage: OnStage) -> Iterator[Daemon]:
    """A daemon that the tests share; each ends with nothing in quarantine."""
    with running_daemon({**on_stage.records, "cat": record("cat")}) as running:
        yield running
        assert running.instances() == []


@pytest.fixture
def freezer() -> Iterator[Freezer]:
    """Thawed at the end."""
    with freezing() as made:
        yield made


def start_and_freeze(daemon: Daemon, on_stage: OnStage, freezer: Freezer, name: str) -> int:
    """Start a family and freeze its child; the child's pid."""
    daemon.start_server(name)
    on_stage[name].wait_ready()
    child = on_stage[name].pids()[-1]
    freezer.freeze(child)
    return child


@needs_freezer
@pytest.mark.parametrize("name", ["tree", "escaped"])
def test_a_frozen_process_makes_a_stop_unconfirmed_until_it_thaws(
    daemon: Daemon, on_stage: OnStage, freezer: Freezer, name: str
) -> None:
    """Exit code 3, at the deadline, naming who is alive; afterwards the report is amended."""
    child = start_and_freeze(daemon, on_stage, freezer, name)
    answer = daemon.mcpctl_json("stop", name, code=3)
    assert answer["outcome"] == "unconfirmed"
    (report,) = answer["reports"]
    assert report["outcome"] == "unconfirmed"
    assert DEADLINE_S <= report["elapsed_s"] < DEADLINE_S + JUDGED_WITHIN_S
    assert "descendants_gone" in report["missing"]
    open_facts = {f["name"] for f in report["facts"] if f["state"] in {"missing", "contradicted"}}
    assert set(report["missing"]) == open_facts
    assert all(found.keys() == shapes.SURVIVOR for found in report["survivors"])
    assert child in {found["pid"] for found in report["survivors"]}
    assert report["exit"] == {"code": 0, "signal": None}

    is_quarantined(daemon, name, report)
    is_not_started(daemon, name, child, report["instance"])
    # another session of the same server is not concerned, nor is another server
    other = daemon.mcpctl_json("start", name, "--session", "other")["instance"]
    on_stage[name].wait_ready()
    assert daemon.mcpctl_json("stop", "--instance", other["id"])["outcome"] == "confirmed"
    daemon.start_server("cat")
    assert daemon.stop_server("cat")["outcome"] == "confirmed"

    freezer.thaw()
    amended = daemon.log.wait_for("cleanup_amended", instance=report["instance"])["report"]
    assert (amended["outcome"], amended["missing"]) == ("confirmed", [])
    assert amended["amended_at_utc"] is not None
    assert daemon.report(report["instance"]) == amended
    assert daemon.mcpctl_json("reports", "--unconfirmed") == {"reports": []}
    assert daemon.instances() == []
    assert row_of(child) is None
    daemon.start_server(name)
    on_stage[name].wait_ready()
    assert daemon.stop_server(name)["outcome"] == "confirmed"


def is_quarantined(daemon: Daemon, name: str, report: Json) -> None:
    """It stays listed, and `status` does not call it stopped."""
    (instance,) = daemon.mcpctl_json("instances", "--quarantined")["instances"]
    assert instance["id"] == report["instance"]
    assert (instance["state"], instance["quarantined"]) == ("unconfirmed", True)
    assert daemon.server(name)["state"] == "unconfirmed"
    assert daemon.mcpctl_json("reports", "--unconfirmed") == {"reports": [report]}
    said = daemon.mcpctl("instances").stdout
    assert f"`mcpctl release {report['instance']}`" in said


def is_not_started(daemon: Daemon, name: str, survivor: int, instance: str) -> None:
    """A start is refused with exit code 3, naming who is alive and the way out."""
    done = daemon.mcpctl("start", name)
    assert done.returncode == 3
    assert f"{survivor} (" in done.stderr
    assert f"`mcpctl release {instance}`" in done.stderr
    problem = daemon.mcpctl_json("start", name, code=3)
    assert (problem["code"], problem["status"]) == ("cleanup_unconfirmed", 409)
    restarted = daemon.mcpctl("restart", name)
    assert restarted.returncode == 3


@needs_freezer
def test_an_unconfirmed_stop_tells_people_what_to_do(
    daemon: Daemon, on_stage: OnStage, freezer: Freezer
) -> None:
    """In words: what is missing, who is alive, and the command that gives it up."""
    child = start_and_freeze(daemon, on_stage, freezer, "tree")
    done = daemon.mcpctl("stop", "tree")
    (instance,) = daemon.instances()
    assert done.returncode == 3
    assert "cleanup is UNCONFIRMED" in done.stdout
    assert f"still alive: pid {child} " in done.stdout
    assert f"`mcpctl release {instance['id']}`" in done.stdout
    again = daemon.mcpctl("stop", "tree")
    assert again.returncode == 3
    freezer.thaw()
    daemon.log.wait_for("cleanup_amended", instance=instance["id"])


@needs_freezer
def test_release_gives_up_and_says_so_for_ever(
    daemon: Daemon, on_stage: OnStage, freezer: Freezer
) -> None:
    """On an operator's word the server can start again; the report stays unconfirmed."""
    child = start_and_freeze(daemon, on_stage, freezer, "escaped")
    (report,) = daemon.mcpctl_json("stop", "escaped", code=3)["reports"]
    said = daemon.mcpctl("release", report["instance"])
    assert said.returncode == 0
    assert f"pid {child} " in said.stdout
    kept = daemon.report(report["instance"])
    assert (kept["outcome"], kept["released"]) == ("unconfirmed", True)
    assert kept["amended_at_utc"] is not None
    assert daemon.instances() == []
    assert daemon.mcpctl("release", report["instance"]).returncode == 1
    assert daemon.log.events("instance_released", instance=report["instance"])
    daemon.start_server("escaped")
    on_stage["escaped"].wait_ready()
    assert daemon.stop_server("escaped")["outcome"] == "confirmed"
    freezer.thaw()
    daemon.wait_gone([child], 5.0)


@needs_freezer
def test_a_client_that_leaves_a_frozen_family_gets_exit_code_3(
    daemon: Daemon, on_stage: OnStage, freezer: Freezer
) -> None:
    """The shim's exit code is the outcome too (design section 13)."""
    with Shim(daemon, "tree") as shim:
        assert shim.ask("ping")["result"] == {}
        on_stage["tree"].wait_ready()
        child = on_stage["tree"].pids()[-1]
        freezer.freeze(child)
        (instance,) = daemon.instances()
        shim.leave()
        code, out, err = shim.finish()
    assert (code, out) == (3, b"")
    assert "its cleanup is unconfirmed; missing: " in err
    freezer.thaw()
    daemon.log.wait_for("cleanup_amended", instance=instance["id"])


@needs_freezer
def test_a_daemon_that_cannot_confirm_its_own_stop_says_so(
    on_stage: OnStage, freezer: Freezer, stopped_daemon: StartDaemon
) -> None:
    """Exit code 3 within its budget, and the next start tells what it found."""
    daemon = stopped_daemon({"tree": on_stage.records["tree"]})
    daemon.start()
    child = start_and_freeze(daemon, on_stage, freezer, "tree")
    assert daemon.stop() == 3
    (stopped,) = daemon.log.events("daemon_stopped")
    assert (stopped["confirmed"], stopped["unconfirmed"]) == (0, 1)
    (line,) = daemon.log.events("cleanup_unconfirmed")
    assert child in {found["pid"] for found in line["report"]["survivors"]}
    daemon.start()
    freezer.thaw()
    swept = daemon.log.wait_for("instance_swept", instance=line["instance"])
    assert swept["outcome"] == "confirmed"
    assert row_of(child) is None
    daemon.start_server("tree")
    on_stage["tree"].wait_ready()
    assert daemon.stop() == 0


def programs_for_nobody() -> Iterator[list[str]]:
    """Ways to run the daemon: as installed, or by the system's Python of the same version."""
    yield [SUPERVISORD]
    python = "/usr/bin/python{}.{}".format(*sys.version_info[:2])
    places = [str(REPOSITORY), *(path for path in sys.path if path.endswith("site-packages"))]
    code = f"import sys; sys.path[:0] = {places!r}; from supervisor.daemon.main import main; main()"
    yield [python, "-c", code]


def find_program_for_nobody() -> list[str] | str:
    """The first way that works for another user, or what is missing here."""
    if os.geteuid() != 0:
        return "only root can make a set-uid program"
    if shutil.which("setpriv") is None:
        return "setpriv is not installed"
    for program in programs_for_nobody():
        # through a shell, which has lost root's power over directories when it looks
        argv = [*AS_NOBODY, "sh", "-c", '"$@"', "sh", *program, "--version"]
        if subprocess.run(argv, capture_output=True, check=False).returncode == 0:  # noqa: S603
            return program
    return "no Python that another user may run"


@contextmanager
def open_folder() -> Iterator[Path]:
    """A directory that belongs to nobody, with a set-uid copy of setpriv in it."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as name:
        folder = Path(name)
        program = folder / "become-root"
        shutil.copy(str(shutil.which("setpriv")), program)
        program.chmod(0o4755)
        folder.chmod(0o755)
        yield folder


def test_a_set_uid_descendant_of_an_unprivileged_daemon_is_reported() -> None:
    """It may not be signalled (EPERM), which proves nothing; so it is named and waited for."""
    program = find_program_for_nobody()
    if isinstance(program, str):
        pytest.skip(program)
    with open_folder() as folder, Gate(folder / "gate") as gate, GroundTruth() as truth:
        home = folder / "home"
        home.mkdir()
        given = record("sh", "-c", BECOME_ROOT, str(folder / "become-root"), str(gate.path))
        records = {"sudo": {**given, "cwd": "/"}}
        daemon = Daemon(truth, home, records, wrapper=AS_NOBODY, program=program)
        os.chown(home, NOBODY, NOBODY)
        gate.path.chmod(0o666)
        with daemon:
            stop_what_may_not_be_signalled(daemon, gate)


def stop_what_may_not_be_signalled(daemon: Daemon, gate: Gate) -> None:
    """The body of the test above."""
    daemon.start_server("sudo")
    root = int(gate.line())
    status = Path(f"/proc/{root}/status").read_text("ascii")
    assert "Uid:\t0\t0\t0\t0" in status
    (report,) = daemon.mcpctl_json("stop", "sudo", code=3)["reports"]
    assert report["outcome"] == "unconfirmed"
    assert root in {found["pid"] for found in report["survivors"]}
    refused = {(sent["signal"], sent["errno"]) for sent in report["failed_signals"]}
    assert ("SIGKILL", errno.EPERM) in refused
    assert row_of(root) is not None
    for row in descendants_of(root):
        daemon.kill_process(row.pid)
    daemon.kill_process(root)
    amended = daemon.log.wait_for("cleanup_amended", instance=report["instance"])
    assert amended["report"]["outcome"] == "confirmed"
