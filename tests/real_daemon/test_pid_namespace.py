"""The daemon as PID 1 of a pid namespace, as in a container: every orphan there comes to it."""

import os
import re
import select
import shutil
import signal
import subprocess  # noqa: TID251 - strangers are not started through our own code
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from typing_extensions import override

from process_table import descendants_of, kill_pinned, pinned, row_of, wait_gone
from real_daemon.clients import Shim, note_line
from real_daemon.daemon_fixture import GONE_WITHIN_S, Daemon, record, running_daemon
from real_daemon.staging import SERVERS, OnStage, staged

IN_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")
ORPHAN = 'exec 3<&0; "$@" <&3 & exit 0'
REAPED_LOOKS = 2000


def why_not() -> str | None:
    """What this machine lacks, or None."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "unshare and nsenter are not installed"
    done = subprocess.run([*IN_NAMESPACE, "true"], capture_output=True, check=False)  # noqa: S603
    return None if done.returncode == 0 else "this user may not make a pid namespace"


pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


class FirstProcess(Daemon):
    """A daemon that is PID 1; outside it has another pid, and a parent that waits for it."""

    @property
    def outer_pid(self) -> int:
        """The daemon's pid as we see it."""
        (only,) = (row for row in descendants_of(self.pid) if row.ppid == self.pid)
        return only.pid

    @override
    def signal(self, number: signal.Signals) -> None:
        with pinned([self.outer_pid]) as pidfds:
            for pidfd in pidfds.values():
                signal.pidfd_send_signal(pidfd, number)

    def outside(self, inner: int) -> int:
        """The pid as we see it of a process that the daemon calls `inner`."""
        for row in descendants_of(self.pid):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                text = Path(f"/proc/{row.pid}/status").read_text("utf-8")
                if re.search(rf"^NSpid:.*\t{inner}$", text, re.MULTILINE):
                    return row.pid
        raise LookupError(inner)


@pytest.fixture(scope="module")
def on_stage() -> Iterator[OnStage]:
    """A polite server, one with an escaped child, and one that is deaf."""
    with staged({"polite": "polite", "tree": "daemonize", "deaf": "ign_term"}) as made:
        yield made


@pytest.fixture(scope="module")
def daemon(on_stage: OnStage) -> Iterator[FirstProcess]:
    """The tests share it."""
    records = {**on_stage.records, "cat": record("cat")}
    with running_daemon(records, kind=FirstProcess, wrapper=IN_NAMESPACE) as running:
        assert isinstance(running, FirstProcess)
        yield running


class Orphan:
    """A process of the namespace that is none of the daemon's, but becomes its child."""

    def __init__(self, daemon: FirstProcess) -> None:
        stranger = [sys.executable, "-S", str(SERVERS / "stranger.py")]
        enter = ["nsenter", f"--target={daemon.outer_pid}", "--pid"]
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command
            daemon.truth.join_argv([*enter, "sh", "-c", ORPHAN, "sh", *stranger]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.pid = daemon.outside(int(self._process.stdout.readline()))
        self._process.wait(GONE_WITHIN_S)

    def signals(self) -> str:
        """Let it end; the signals that it got, besides SIGKILL, which would have ended it."""
        out, _ = self._process.communicate(timeout=GONE_WITHIN_S)
        return out.strip()

    def close(self) -> None:
        """End it if the test has not."""
        with pinned([self.pid]) as pidfds:
            for pidfd in pidfds.values():
                kill_pinned(pidfd)
            wait_gone(pidfds.values(), GONE_WITHIN_S)
        self._process.communicate()


@pytest.fixture
def stranger(daemon: FirstProcess) -> Iterator[Orphan]:
    """An orphan that the daemon has adopted, and that is not its own."""
    made = Orphan(daemon)
    row = row_of(made.pid)
    assert row is not None
    assert row.ppid == daemon.outer_pid
    yield made
    made.close()


def test_a_daemon_can_be_the_first_process(daemon: FirstProcess, on_stage: OnStage) -> None:
    """Families are started and stopped as elsewhere, escaped children included."""
    assert daemon.api("GET", "/v1/status")["daemon"]["pid"] == 1
    for name in ("polite", "tree", "deaf"):
        daemon.start_server(name)
        on_stage[name].wait_ready()
        assert daemon.stop_server(name)["outcome"] == "confirmed"
    assert len(descendants_of(daemon.pid)) == 2


def test_a_client_outside_can_connect(daemon: FirstProcess) -> None:
    """The socket is all that both have to see."""
    with Shim(daemon, "cat") as shim:
        shim.send(note_line())
        assert shim.read_line() == note_line()
        shim.leave()
        assert shim.finish() == (0, b"", "")


def test_a_lost_relay_is_told_from_the_other_orphans(
    daemon: FirstProcess, on_stage: OnStage, stranger: Orphan
) -> None:
    """Its family comes to the daemon and is drained; the stranger is let alone."""
    instance = daemon.start_server("tree")
    on_stage["tree"].wait_ready()
    before = {row.pid for row in descendants_of(daemon.pid)}
    daemon.kill_process(daemon.outside(instance["relay_pid"]))
    report = daemon.wait_judged(instance["id"])
    assert report["outcome"] == "confirmed"
    # on a busy machine the anchor learns of it, and ends the server, before the daemon does
    assert report["reason"] in {"relay_lost", "crash"}
    left = {row.pid for row in descendants_of(daemon.pid) if row.alive}
    assert stranger.pid in left
    assert left < before
    assert len(left) == 3
    assert stranger.signals() == ""


def test_a_stranger_is_reaped_when_it_ends_and_gets_no_signal(
    daemon: FirstProcess, on_stage: OnStage, stranger: Orphan
) -> None:
    """The first process has to reap whatever comes to it, and owns only what it started."""
    daemon.start_server("deaf")
    on_stage["deaf"].wait_ready()
    assert daemon.stop_server("deaf")["outcome"] == "confirmed"
    assert stranger.signals() == ""
    # no descriptor of ours announces that somebody else has reaped
    for _ in range(REAPED_LOOKS):
        if row_of(stranger.pid) is None:
            break
        select.select([], [], [], 0.005)
    assert row_of(stranger.pid) is None


def test_a_shutdown_from_outside_waits_for_the_right_process(on_stage: OnStage) -> None:
    """What the daemon calls pid 1 is somebody else here: the peer of the socket is it."""
    records = {"polite": on_stage.records["polite"]}
    with running_daemon(records, kind=FirstProcess, wrapper=IN_NAMESPACE) as daemon:
        daemon.start_server("polite")
        on_stage["polite"].wait_ready()
        done = daemon.mcpctl("shutdown")
        assert (done.returncode, done.stderr) == (0, "")
        assert daemon.wait(GONE_WITHIN_S) == 0


def test_a_stop_from_outside_waits_for_the_right_process_too(on_stage: OnStage) -> None:
    """`mcp-supervisord stop` as well: it is the same daemon, whatever pid it gives itself."""
    records = {"polite": on_stage.records["polite"]}
    with running_daemon(records, kind=FirstProcess, wrapper=IN_NAMESPACE) as daemon:
        daemon.start_server("polite")
        on_stage["polite"].wait_ready()
        done = daemon.supervisord("stop")
        assert (done.returncode, done.stderr) == (0, "")
        assert "1 confirmed, 0 unconfirmed" in done.stdout
        assert daemon.wait(GONE_WITHIN_S) == 0


def test_a_sigterm_stops_the_first_process_too(on_stage: OnStage) -> None:
    """PID 1 gets no signal that it does not handle; `docker stop` sends this one."""
    records = {"deaf": on_stage.records["deaf"]}
    with running_daemon(records, kind=FirstProcess, wrapper=IN_NAMESPACE) as daemon:
        daemon.start_server("deaf")
        on_stage["deaf"].wait_ready()
        assert daemon.stop() == 0
        (stopped,) = daemon.log.events("daemon_stopped")
        assert (stopped["confirmed"], stopped["unconfirmed"]) == (1, 0)
        assert os.getpid() not in {process.pid for process in daemon.alive()}
        assert daemon.alive() == []
