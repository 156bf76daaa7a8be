"""Who is the daemon: a lock and a live socket, never a number in a file or a name in a folder."""

import json
import os
import shutil
import stat
import subprocess  # noqa: TID251 - a stranger is not started through our own code
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from process_table import row_of
from real_daemon.conftest import StartDaemon
from real_daemon.daemon_fixture import GONE_WITHIN_S, READY_WITHIN_S, Daemon, record
from real_daemon.staging import SERVERS

RESTORED_WITHIN_S = 20.0
"""The daemon looks after its sockets every 5 s."""


class Stranger:
    """A process that has got a dead daemon's pid, and nobody's business to signal it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command
            [sys.executable, "-S", str(SERVERS / "stranger.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.pid = int(self._process.stdout.readline())

    def signals(self) -> str:
        """Let it end; the signals that it got."""
        out, _ = self._process.communicate(timeout=GONE_WITHIN_S)
        assert self._process.returncode == 0
        return out.strip()

    def close(self) -> None:
        """End it if the test has not."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    """A bystander."""
    made = Stranger()
    yield made
    made.close()


def test_a_second_daemon_is_refused_and_does_not_harm_the_first(start_daemon: StartDaemon) -> None:
    """Exit code 1 with a sentence; sockets, lock and servers of the first stay as they are."""
    daemon = start_daemon({"cat": record("cat")})
    instance = daemon.start_server("cat")
    before = fingerprint(daemon)
    for command in ("run", "start"):
        second = daemon.supervisord(command)
        assert second.returncode == 1
        assert f"A daemon already runs in {daemon.runtime_dir} (pid {daemon.pid}" in second.stderr
        assert "Traceback" not in second.stderr
    assert fingerprint(daemon) == before
    (still,) = daemon.instances()
    assert (still["id"], still["pid"]) == (instance["id"], instance["pid"])
    assert daemon.stop_server("cat")["outcome"] == "confirmed"


def test_a_killed_daemon_can_be_started_again(stopped_daemon: StartDaemon) -> None:
    """Lock and sockets of the dead one are in the way of nobody; one log line says so."""
    daemon = stopped_daemon({"cat": record("cat")})
    daemon.start()
    daemon.kill()
    assert stat.S_ISSOCK((daemon.runtime_dir / "control.sock").stat().st_mode)
    daemon.start()
    replaced = daemon.log.events("stale_socket_replaced")
    assert {Path(line["path"]).name for line in replaced} == {"control.sock", "mcp.sock"}
    assert daemon.mcpctl("status").returncode == 0
    assert daemon.stop() == 0


@pytest.mark.parametrize("name", ["control.sock", "mcp.sock"])
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_is_left_alone(stopped_daemon: StartDaemon, name: str, kind: str) -> None:
    """The start is refused with the path in a sentence, and nothing is touched."""
    daemon = stopped_daemon({})
    daemon.runtime_dir.mkdir(mode=0o700)
    path, precious = daemon.runtime_dir / name, daemon.home / "precious"
    precious.write_text("precious", "ascii")
    match kind:
        case "file":
            path.write_text("precious", "ascii")
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(precious)
    before = os.lstat(path)
    done = daemon.supervisord("run")
    assert done.returncode == 111
    assert str(path) in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    after = os.lstat(path)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert precious.read_text("ascii") == "precious"


def test_sockets_and_folders_are_private_from_the_first_instant(
    stopped_daemon: StartDaemon,
) -> None:
    """Whatever umask the daemon is started with (design section 2)."""
    daemon = stopped_daemon({}, wrapper=("sh", "-c", 'umask 0; exec "$@"', "sh"))
    path = daemon.runtime_dir / "control.sock"
    seen: set[int] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            try:
                seen.add(stat.S_IMODE(os.lstat(path).st_mode))
            except FileNotFoundError:
                continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        daemon.start()
    finally:
        over.set()
        watcher.join()
    assert seen <= {0o600}
    modes = {
        file.name: stat.S_IMODE(os.lstat(file).st_mode)
        for file in (daemon.runtime_dir, daemon.state_dir, *daemon.runtime_dir.iterdir())
    }
    assert modes == {
        "run": 0o700,
        "state": 0o700,
        "control.sock": 0o600,
        "mcp.sock": 0o600,
        "daemon.lock": 0o600,
        "instances": 0o700,
    }
    assert daemon.stop() == 0


def test_sockets_that_a_cleaner_removed_are_made_again(start_daemon: StartDaemon) -> None:
    """Until then commands say that nobody answers; clients that are connected go on."""
    daemon = start_daemon({"cat": record("cat")})
    (daemon.runtime_dir / "control.sock").unlink()
    (daemon.runtime_dir / "mcp.sock").unlink()
    done = daemon.mcpctl("status")
    assert done.returncode in {0, 4}  # made again already, or not yet
    for name in ("control.sock", "mcp.sock"):
        path = str(daemon.runtime_dir / name)
        daemon.log.wait_for("socket_restored", within_s=RESTORED_WITHIN_S, path=path)
    assert daemon.mcpctl("status").returncode == 0
    daemon.start_server("cat")
    assert daemon.stop_server("cat")["outcome"] == "confirmed"


def test_a_runtime_directory_that_was_removed_is_made_again(start_daemon: StartDaemon) -> None:
    """Cleaners of temporary files take whole folders; afterwards servers can be started again."""
    daemon = start_daemon({"cat": record("cat")})
    before = daemon.start_server("cat", "before")
    shutil.rmtree(daemon.runtime_dir)
    for name in ("control.sock", "mcp.sock"):
        path = str(daemon.runtime_dir / name)
        daemon.log.wait_for("socket_restored", within_s=RESTORED_WITHIN_S, path=path)
    daemon.start_server("cat", "after")
    answer = daemon.mcpctl_json("stop", "cat")
    assert answer["outcome"] == "confirmed"
    assert before["id"] in {report["instance"] for report in answer["reports"]}
    assert len(answer["reports"]) == 2


def test_the_number_in_the_lock_file_is_nobodys_identity(
    stopped_daemon: StartDaemon, stranger: Stranger
) -> None:
    """After a reboot it may name somebody else: no command may signal them, nor be stopped."""
    daemon = stopped_daemon({})
    daemon.runtime_dir.mkdir(mode=0o700)
    lock = daemon.runtime_dir / "daemon.lock"
    lock.write_text(f"{stranger.pid}\n", "ascii")
    for words in (("stop",), ("stop", "--force")):
        done = daemon.supervisord(*words)
        assert done.returncode == 4
        assert "not running" in done.stderr
    assert daemon.mcpctl("shutdown").returncode == 4
    daemon.start()
    assert lock.read_text("ascii") == f"{daemon.pid}\n"
    # and if the number changes while a daemon runs, its socket still says who it is
    lock.write_text(f"{stranger.pid}\n", "ascii")
    assert daemon.mcpctl_json("status")["daemon"]["pid"] == daemon.pid
    done = daemon.supervisord("stop")
    assert done.returncode == 0
    assert f"(pid {daemon.pid}) stopped" in done.stdout
    assert daemon.wait(GONE_WITHIN_S) == 0
    assert stranger.signals() == ""


@pytest.mark.parametrize("content", ["4194304\n", "", "this is no pid\n"])
def test_a_lock_file_may_hold_anything(stopped_daemon: StartDaemon, content: str) -> None:
    """A pid that is gone, nothing, or text: only the kernel's lock counts."""
    daemon = stopped_daemon({})
    daemon.runtime_dir.mkdir(mode=0o700)
    lock = daemon.runtime_dir / "daemon.lock"
    lock.write_text(content, "ascii")
    daemon.start()
    assert lock.read_text("ascii") == f"{daemon.pid}\n"
    assert daemon.stop() == 0


def test_records_of_strangers_are_not_believed(
    stopped_daemon: StartDaemon, stranger: Stranger
) -> None:
    """A record whose pids are somebody else's by now ends nobody (design section 7)."""
    daemon = stopped_daemon({"cat": record("cat")})
    daemon.start()
    instance = daemon.start_server("cat")
    file = daemon.runtime_dir / "instances" / f"{instance['id']}.json"
    given = json.loads(file.read_text("utf-8"))
    daemon.kill()
    daemon.wait_all_gone(GONE_WITHIN_S)
    roles = ("relay", "anchor", "process")
    row = row_of(stranger.pid)
    assert row is not None
    # the pid is right, the start time is another process's
    forged = given | {role: [stranger.pid, row.start_ticks - 1] for role in roles}
    file.write_text(json.dumps(forged), "utf-8")
    # right pid and start, but of another boot
    other = file.with_name("0123456789abcdef.json")
    exact = {role: [stranger.pid, row.start_ticks] for role in roles}
    foreign = given | exact | {"instance": "0123456789abcdef", "boot_id": "not-this-one"}
    other.write_text(json.dumps(foreign), "utf-8")
    daemon.start()
    daemon.log.wait_for("instance_swept", instance=instance["id"])
    assert daemon.stop() == 0
    assert not other.exists()
    assert stranger.signals() == ""


def test_a_detached_daemon_is_started_and_stopped_by_command(stopped_daemon: StartDaemon) -> None:
    """`start` returns when it is ready, `stop` when it is gone (design section 13)."""
    daemon = stopped_daemon({"cat": record("cat")})
    done = daemon.supervisord("start")
    assert (done.returncode, done.stderr) == (0, "")
    pid = daemon.mcpctl_json("status")["daemon"]["pid"]
    assert f"runs (pid {pid})" in done.stdout
    row = row_of(pid)
    assert row is not None
    assert row.sid != os.getsid(0)
    daemon.start_server("cat")
    stopped = daemon.supervisord("stop")
    assert stopped.returncode == 0
    assert "1 confirmed, 0 unconfirmed" in stopped.stdout
    assert not any(process.pid == pid for process in daemon.alive())
    assert daemon.alive() == []
    assert daemon.supervisord("stop").returncode == 4


def test_a_start_that_fails_says_why(stopped_daemon: StartDaemon) -> None:
    """Exit code 100 for a wrong configuration, with file and line, detached or not."""
    daemon = stopped_daemon({})
    daemon.config_file.write_text('{\n"mcpServers": {"cat": {"command": }}\n}\n', "ascii")
    for command in ("run", "start", "check"):
        done = daemon.supervisord(command)
        assert done.returncode == 100
        assert str(daemon.config_file) in done.stderr
        assert "line 2" in done.stderr or ":2" in done.stderr
        assert "Traceback" not in done.stderr
    assert not daemon.runtime_dir.exists() or not (daemon.runtime_dir / "control.sock").exists()


def test_a_sigterm_during_the_start_ends_it_cleanly(stopped_daemon: StartDaemon) -> None:
    """A service manager may change its mind; whatever was begun is undone."""
    daemon = stopped_daemon({})
    daemon.begin()
    daemon.log.wait_for("configuration_warned", "daemon_ready", within_s=READY_WITHIN_S)
    assert daemon.stop() in {0, -15}


def fingerprint(daemon: Daemon) -> list[tuple[str, int, int, int]]:
    """Name, inode, mode and size of all that is in the runtime directory."""
    found = ((file.name, os.lstat(file)) for file in daemon.runtime_dir.iterdir())
    return sorted((name, seen.st_ino, seen.st_mode, seen.st_size) for name, seen in found)
