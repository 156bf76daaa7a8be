"""The daemon's shell as a real process, with a manager that owns nothing: start, life, stop."""

import json
import os
import resource
import signal
import socket
import stat
import subprocess  # noqa: TID251 - a type, and exit codes of programs that end by themselves
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from leftovers import Groups
from supervisor.client.client import Client
from supervisor.linux.unix_socket import bind_private, connect

PROGRAM: Final = Path(__file__).with_name("program.py")
PATIENCE_S: Final = 30
"""For a whole start on a loaded machine: importing the web framework alone takes seconds there."""


class Daemon:
    """One `run` of the shell, and its log as it comes."""

    def __init__(
        self, groups: Groups, home: Path, *flags: str, env: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        argv = [sys.executable, str(PROGRAM), "run", *places_of(home), "--log-format=json", *flags]
        self.process = groups.start(argv, env={**os.environ, **(env or {})})
        self.lines = list[dict[str, Any]]()

    def until(self, event: str) -> dict[str, Any]:
        """The next log line of that name; fails when the log ends before it."""
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            self.lines.append(json.loads(raw) if raw.startswith(b"{") else {"event": raw.decode()})
            if self.lines[-1]["event"] == event:
                return self.lines[-1]
        pytest.fail(f"no {event}; the log: {self.lines}")

    def ends(self) -> int:
        """The exit code, with the rest of the log read."""
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            self.lines.append(json.loads(raw) if raw.startswith(b"{") else {"event": raw.decode()})
        return self.process.wait(PATIENCE_S)

    def events(self) -> list[str]:
        """The names of all log lines that were read."""
        return [line["event"] for line in self.lines]


def places_of(home: Path) -> list[str]:
    """Flags for places below `home`, with a configuration that is there and empty."""
    file = home / "config.json"
    if not file.exists():
        file.write_text('{"mcpServers": {}}')
    return [f"--config={file}", f"--state-dir={home / 'state'}", f"--runtime-dir={home / 'run'}"]


def call(
    home: Path, command: str, *flags: str, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """One command of the shell, up to its end."""
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, str(PROGRAM), command, *places_of(home), *flags],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def state_of(directory: Path) -> dict[str, tuple[int, int, int]]:
    """What would show that somebody touched a file there."""
    found = {path.name: path.lstat() for path in directory.iterdir()}
    return {name: (now.st_ino, now.st_mode, now.st_mtime_ns) for name, now in found.items()}


def mode_of(path: Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_daemon_lives_and_leaves_in_order(tmp_runtime: Path, groups: Groups) -> None:
    """Ready when the sockets answer; at SIGTERM the servers first, the manager last (case 59)."""
    before = os.umask(0o027)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        daemon = Daemon(groups, tmp_runtime)
    finally:
        os.umask(before)
    ready = daemon.until("daemon_ready")
    run = tmp_runtime / "run"

    assert Client(ready["control_socket"]).status().value["daemon"]["pid"] == daemon.process.pid
    with connect(ready["mcp_socket"]) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
    assert [mode_of(run / name) for name in ("control.sock", "mcp.sock", "daemon.lock")] == (
        [0o600] * 3
    )
    assert [mode_of(run), mode_of(tmp_runtime / "state")] == [0o700] * 2
    limits = Path(f"/proc/{daemon.process.pid}/limits").read_text().split("Max open files")[1]
    assert limits.split()[:2] == [str(hard)] * 2

    daemon.process.send_signal(signal.SIGTERM)

    assert daemon.ends() == 0
    assert daemon.events() == [
        "manager_opened",
        "daemon_ready",
        "shutdown_requested",
        "all_asked_to_stop",
        "daemon_stopped",
        "manager_closed",
    ]
    opened, stopped = daemon.lines[0], daemon.lines[4]
    assert (opened["original_nofile"], opened["original_umask"]) == ([soft, hard], 0o027)
    assert (stopped["confirmed"], stopped["unconfirmed"], stopped["level"]) == (2, 0, "info")
    assert sorted(path.name for path in run.iterdir()) == ["daemon.lock"]


def test_no_umask_loosens_what_the_daemon_makes(tmp_runtime: Path, groups: Groups) -> None:
    """Under `umask 0` everything would be made 0666 and 0777."""
    before = os.umask(0)
    try:
        daemon = Daemon(groups, tmp_runtime)
    finally:
        os.umask(before)
    daemon.until("daemon_ready")

    assert mode_of(tmp_runtime / "run") == 0o700
    assert mode_of(tmp_runtime / "run" / "control.sock") == 0o600
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.ends() == 0


def test_an_unconfirmed_cleanup_of_the_stop_is_the_exit_code(
    tmp_runtime: Path, groups: Groups
) -> None:
    """Only the daemon's own stop counts (design section 13: 3)."""
    daemon = Daemon(groups, tmp_runtime, env={"FAKE_UNCONFIRMED": "1"})
    daemon.until("daemon_ready")
    daemon.process.send_signal(signal.SIGTERM)

    assert daemon.ends() == 3
    stopped = next(line for line in daemon.lines if line["event"] == "daemon_stopped")
    assert (stopped["unconfirmed"], stopped["level"]) == (1, "error")


def test_a_second_signal_hurries_the_stop_and_skips_nothing(
    tmp_runtime: Path, groups: Groups
) -> None:
    """A person who presses Ctrl-C twice still gets a confirmed cleanup."""
    daemon = Daemon(groups, tmp_runtime, env={"FAKE_STUBBORN": "1"})
    daemon.until("daemon_ready")
    daemon.process.send_signal(signal.SIGINT)
    daemon.until("all_asked_to_stop")
    daemon.process.send_signal(signal.SIGINT)

    assert daemon.ends() == 0
    assert daemon.events()[-4:] == [
        "shutdown_requested",
        "all_forced",
        "daemon_stopped",
        "manager_closed",
    ]


def test_other_signals_are_heeded_and_end_nothing(tmp_runtime: Path, groups: Groups) -> None:
    """SIGHUP reloads; SIGUSR1 dumps; SIGCHLD is the manager's."""
    daemon = Daemon(groups, tmp_runtime)
    daemon.until("daemon_ready")

    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.until("fake_reloaded")
    daemon.process.send_signal(signal.SIGUSR1)
    assert daemon.until("state_dumped")["status"]["daemon"]["pid"] == daemon.process.pid
    daemon.process.send_signal(signal.SIGCHLD)
    daemon.until("child_changed")

    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ends() == 0


def test_the_service_manager_hears_of_everything(tmp_runtime: Path, groups: Groups) -> None:
    """READY when the sockets answer, WATCHDOG from the loop, STOPPING at once."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_runtime / "notify"))
        manager.settimeout(PATIENCE_S)
        env = {"NOTIFY_SOCKET": str(tmp_runtime / "notify"), "WATCHDOG_USEC": "100000"}
        daemon = Daemon(groups, tmp_runtime, env=env)
        told = list[str]()
        while told.count("WATCHDOG=1") < 3:
            told.append(manager.recv(4096).decode().split("\n")[0])
        Client(str(tmp_runtime / "run" / "control.sock")).status()
        daemon.process.send_signal(signal.SIGTERM)
        while told[-1] != "STOPPING=1":
            told.append(manager.recv(4096).decode().split("\n")[0])
        assert daemon.ends() == 0

    assert told.index("READY=1") <= 1
    assert set(told) == {"READY=1", "WATCHDOG=1", "STOPPING=1"}


def test_a_removed_socket_is_made_again(tmp_runtime: Path, groups: Groups) -> None:
    """Cleaners of temporary files exist; clients of the old socket go on (case 59)."""
    daemon = Daemon(groups, tmp_runtime, env={"FAKE_LOOK_EVERY_S": "0.02"})
    daemon.until("daemon_ready")
    run = tmp_runtime / "run"
    for name in ("control.sock", "mcp.sock", "daemon.lock"):
        (run / name).unlink()
    run.rmdir()

    restored = [daemon.until("socket_restored")["path"] for _ in range(2)]

    assert restored == [str(run / "control.sock"), str(run / "mcp.sock")]
    assert [mode_of(Path(path)) for path in (*restored, run)] == [0o600, 0o600, 0o700]
    Client(restored[0]).status()
    with connect(restored[1]) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ends() == 0
    assert list(run.iterdir()) == []


def test_what_took_a_sockets_place_is_reported_once_and_left_alone(
    tmp_runtime: Path, groups: Groups
) -> None:
    """It may be precious; the daemon says so and waits until the place is free again."""
    daemon = Daemon(groups, tmp_runtime, env={"FAKE_LOOK_EVERY_S": "0.02"})
    daemon.until("daemon_ready")
    control = tmp_runtime / "run" / "control.sock"
    control.unlink()
    control.write_text("precious\n")

    lost = daemon.until("socket_lost")
    assert "a file is there" in lost["reason"]
    assert control.read_text() == "precious\n"
    for _ in range(2):  # each restoring is another look at both sockets
        (tmp_runtime / "run" / "mcp.sock").unlink()
        assert daemon.until("socket_restored")["path"].endswith("mcp.sock")
    control.unlink()
    assert daemon.until("socket_restored")["path"] == str(control)

    assert daemon.events().count("socket_lost") == 1
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ends() == 0


def test_a_bug_in_one_part_still_stops_every_server(tmp_runtime: Path, groups: Groups) -> None:
    """The traceback is in the log, the exit code says whose fault it was."""
    daemon = Daemon(groups, tmp_runtime, env={"FAKE_DIES": "1"})

    assert daemon.ends() == 101
    failed = next(line for line in daemon.lines if line["event"] == "daemon_task_failed")
    assert "ZeroDivisionError" in failed["exception"]
    assert "daemon_stopped" in daemon.events()


def test_a_second_daemon_is_refused_and_harms_nothing(tmp_runtime: Path, groups: Groups) -> None:
    """It names the directory and the way out; the first one's files stay as they are."""
    daemon = Daemon(groups, tmp_runtime)
    daemon.until("daemon_ready")
    run = tmp_runtime / "run"
    before = state_of(run)

    for command in ("run", "start"):
        second = call(tmp_runtime, command)
        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert f"A daemon already runs in {run} (pid {daemon.process.pid}" in second.stderr
        assert f"mcp-supervisord stop --runtime-dir {run}" in second.stderr

    assert state_of(run) == before
    Client(str(run / "control.sock")).status()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.ends() == 0


def test_a_killed_daemon_is_followed_by_the_next(tmp_runtime: Path, groups: Groups) -> None:
    """Its sockets and its lock file are leftovers, and one line for each socket says so."""
    first = Daemon(groups, tmp_runtime)
    first.until("daemon_ready")
    first.process.send_signal(signal.SIGKILL)
    first.ends()

    second = Daemon(groups, tmp_runtime)
    second.until("daemon_ready")

    assert second.events().count("stale_socket_replaced") == 2
    second.process.send_signal(signal.SIGTERM)
    assert second.ends() == 0


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_something_else_at_a_sockets_path_is_refused(tmp_runtime: Path, kind: str) -> None:
    """One sentence, exit code 111, and it is still there (case 59)."""
    run = tmp_runtime / "run"
    run.mkdir(0o700)
    path, target = run / "control.sock", run / "control.sock.target"
    target.write_text("precious\n")
    match kind:
        case "file":
            path.write_text("precious\n")
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(target)
    before = path.lstat().st_ino

    ended = call(tmp_runtime, "run")

    assert ended.returncode == 111
    assert "Traceback" not in ended.stderr
    assert "is there, and is left alone" in ended.stderr.splitlines()[-1]
    assert (path.lstat().st_ino, target.read_text()) == (before, "precious\n")
    assert not (run / "mcp.sock").exists()


@pytest.mark.parametrize("command", ["run", "start"])
@pytest.mark.parametrize(
    ("refuses", "code", "sentence"),
    [
        ("os", 111, "The fork server cannot be started: no more processes.\n"),
        ("bug", 101, "This is a bug of mcp-supervisord: ZeroDivisionError: not foreseen.\n"),
    ],
)
def test_a_failed_start_is_one_sentence_with_its_exit_code(
    tmp_runtime: Path, command: str, refuses: str, code: int, sentence: str
) -> None:
    """Also where it happens in another process, after the detach."""
    ended = call(tmp_runtime, command, env={"FAKE_REFUSES": refuses})

    assert ended.returncode == code
    assert ended.stderr.endswith(sentence)
    assert ended.stdout == ""
    if command == "start":
        assert ended.stderr == sentence
        log = (tmp_runtime / "state" / "logs" / "daemon.log").read_text()
        assert [json.loads(line)["event"] for line in log.splitlines()] == ["daemon_failed"]


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_runtime: Path) -> None:
    """The operating system's refusal, with the path."""
    (tmp_runtime / "run").write_text("precious\n")

    ended = call(tmp_runtime, "run")

    assert ended.returncode == 111
    assert ended.stderr.startswith(f"The directory {tmp_runtime / 'run'} cannot be used: ")
    assert ended.stderr.count("\n") == 1


def test_a_bad_configuration_stops_the_start_before_anything_is_made(tmp_runtime: Path) -> None:
    """Exit code 100, and no directory, socket or lock."""
    (tmp_runtime / "config.json").write_text('{"mcpServers": ')

    ended = call(tmp_runtime, "run")

    assert ended.returncode == 100
    assert str(tmp_runtime / "config.json") in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_runtime / "run").exists()


def test_a_live_socket_of_somebody_else_is_refused(tmp_runtime: Path) -> None:
    """A daemon whose lock file was removed still owns its sockets."""
    run = tmp_runtime / "run"
    run.mkdir(0o700)
    other = bind_private(str(run / "control.sock"))
    other.socket.listen(5)

    ended = call(tmp_runtime, "run")

    assert ended.returncode == 111
    assert f"process {os.getpid()} listens there" in ended.stderr
    assert other.is_in_place()
    other.remove()
