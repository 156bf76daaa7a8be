"""`start`, `stop` and `check` as real processes, with a manager that owns nothing."""

import json
import os
import signal
import socket
import subprocess  # noqa: TID251 - programs that end by themselves, run as a user would
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from leftovers import Groups
from process_table import kill_pinned, pinned, row_of, wait_gone
from supervisor.client.client import Client
from supervisor.daemon.exits import NamesakeError, explain
from supervisor.daemon.prepare import refuse_namesake

PROGRAM: Final = Path(__file__).with_name("program.py")
PATIENCE_S: Final = 30

INNOCENT: Final = """
import signal, sys
def note(number, _): print(f"GOT SIGNAL {number}", flush=True)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, note)
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class Shell:
    """Calls commands on the places below `home`, and knows which daemons they left running."""

    home: Path
    pids: list[int] = field(default_factory=list)

    @property
    def flags(self) -> list[str]:
        """Flags for the places."""
        return [
            f"--config={self.home / 'config.json'}",
            f"--state-dir={self.home / 'state'}",
            f"--runtime-dir={self.home / 'run'}",
        ]

    def call(
        self, command: str, *flags: str, env: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """One command, up to its end."""
        return subprocess.run(  # noqa: S603 - our own program
            [sys.executable, str(PROGRAM), command, *self.flags, *flags],
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def start(self, *flags: str, env: Mapping[str, str] | None = None) -> int:
        """A daemon in the background; its pid."""
        started = self.call("start", *flags, env=env)
        assert (started.returncode, started.stderr) == (0, "")
        pid = self.client().status().value["daemon"]["pid"]
        self.pids.append(pid)
        log = self.home / "state" / "logs" / "daemon.log"
        assert started.stdout == f"mcp-supervisord runs (pid {pid}); its log is {log}\n"
        return pid

    def client(self) -> Client:
        """A client of the daemon."""
        return Client(str(self.home / "run" / "control.sock"))

    def log(self) -> list[str]:
        """The names of the lines in the daemon's log."""
        text = (self.home / "state" / "logs" / "daemon.log").read_text()
        return [json.loads(line)["event"] for line in text.splitlines()]


@pytest.fixture
def shell(tmp_runtime: Path) -> Iterator[Shell]:
    """Commands on fresh places; a daemon that is still there is killed and fails the test."""
    (tmp_runtime / "config.json").write_text('{"mcpServers": {}}')
    shell = Shell(tmp_runtime)
    yield shell
    left = [pid for pid in shell.pids if lives(pid)]
    for pid in left:
        kill(pid)
    assert left == []


def lives(pid: int) -> bool:
    """Whether it runs; a zombie, which is for init to reap, does not."""
    row = row_of(pid)
    return row is not None and row.state != "Z"


def kill(pid: int) -> None:
    """Kill a daemon and wait until it is gone."""
    with pinned([pid]) as held:
        for pidfd in held.values():
            kill_pinned(pidfd)
        assert wait_gone(held.values(), PATIENCE_S) == ()


def test_a_daemon_starts_in_the_background_and_is_stopped(shell: Shell) -> None:
    """Detached: a session of its own, nobody's descriptors, the log in its file, the lock held."""
    pid = shell.start()
    lock = shell.home / "run" / "daemon.lock"

    assert os.getsid(pid) not in (os.getsid(0), pid)
    assert lock.read_text() == f"{pid}\n"
    standard = [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3)]
    log = str(shell.home / "state" / "logs" / "daemon.log")
    assert standard == ["/dev/null", log, log]
    status = Path(f"/proc/{pid}/status").read_text()
    assert "Umask:\t0077" in status
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")

    stopped = shell.call("stop")

    assert stopped.returncode == 0
    assert stopped.stdout == (
        f"mcp-supervisord (pid {pid}) stopped; cleanups: 2 confirmed, 0 unconfirmed\n"
    )
    assert not lives(pid)
    assert shell.log()[-2:] == ["daemon_stopped", "manager_closed"]
    assert Path(log).stat().st_mode & 0o777 == 0o600


def test_the_stop_tells_of_unconfirmed_cleanups(shell: Shell) -> None:
    """In words and by its exit code, like the daemon's own."""
    shell.start(env={"FAKE_UNCONFIRMED": "1"})

    stopped = shell.call("stop")

    assert stopped.returncode == 3
    assert stopped.stdout.endswith("cleanups: 2 confirmed, 1 unconfirmed\n")


def test_a_forced_stop_reaches_the_manager(shell: Shell) -> None:
    """Without the flag this daemon would not leave before somebody forces it."""
    shell.start(env={"FAKE_STUBBORN": "1"})

    assert shell.call("stop", "--force").returncode == 0
    assert "all_forced" in shell.log()


def test_a_stop_without_a_daemon_says_so(shell: Shell) -> None:
    """Nothing was ever there, or a crash left its sockets: exit code 4 (design section 13)."""
    never = shell.call("stop")
    pid = shell.start()
    kill(pid)
    crashed = shell.call("stop")

    for ended in (never, crashed):
        assert ended.returncode == 4
        assert ended.stderr.startswith("mcp-supervisord is not running: nobody answers on ")
    assert (shell.home / "run" / "control.sock").exists()


@pytest.mark.parametrize("running", [False, True])
def test_a_stranger_whose_pid_is_in_the_lock_file_never_gets_a_signal(
    shell: Shell, groups: Groups, *, running: bool
) -> None:
    """After a reboot the pid of a dead daemon is somebody else's (case 61)."""
    innocent = groups.start([sys.executable, "-c", INNOCENT])
    assert innocent.stdin is not None
    assert innocent.stdout is not None
    assert innocent.stdout.readline() == b"ready\n"
    run = shell.home / "run"
    run.mkdir(0o700)
    for name in ("daemon.lock", "daemon.pid", "mcp-supervisord.pid"):
        (run / name).write_text(f"{innocent.pid}\n")

    assert shell.call("stop").returncode == 4
    if running:
        shell.start()
        (run / "daemon.lock").write_text(f"{innocent.pid}\n")
        assert shell.call("start").returncode == 1
        assert shell.call("stop", "--force").returncode == 0

    innocent.stdin.close()
    assert innocent.stdout.read() == b""
    assert innocent.wait(PATIENCE_S) == 0


def test_a_daemon_that_dies_before_it_can_speak_is_a_failed_start(shell: Shell) -> None:
    """The end of the pipe says it; the sentence names the log."""
    started = shell.call("start", env={"FAKE_REFUSES": "killed"})

    assert started.returncode == 1
    assert started.stderr.startswith("The daemon ended before it was ready, without a word; see ")
    assert started.stderr.count("\n") == 1


def test_check_prints_what_it_finds_and_makes_nothing(shell: Shell) -> None:
    """100 is for what an operator has to mend; a summary is for everybody."""
    good = shell.call("check")
    (shell.home / "config.json").write_text(
        '{"mcpServers": {"git": {"command": "true", "env": {"TOKEN": "${NO_SUCH_VARIABLE}"}}}}'
    )
    unusable = shell.call("check")
    (shell.home / "config.json").write_text('{"mcpServers": {')
    broken = shell.call("check")
    (shell.home / "config.json").unlink()
    missing = shell.call("check")

    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.endswith("config.json: 0 servers, 0 of them can be started\n")
    assert unusable.returncode == 100
    assert "NO_SUCH_VARIABLE" in unusable.stderr
    assert unusable.stdout.endswith("1 servers, 0 of them can be started\n")
    assert [broken.returncode, missing.returncode] == [100, 100]
    assert "Traceback" not in broken.stderr + missing.stderr
    assert [path.name for path in shell.home.iterdir()] == []


def test_a_wrong_flag_is_a_usage_error(shell: Shell) -> None:
    """Click's own exit code, 2, is the table's."""
    assert shell.call("run", "--no-such-flag").returncode == 2
    assert shell.call("run", "--log-level=loud").returncode == 2


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("main", {"fastapi", "uvicorn", "anyio", "pydantic", "structlog", "http.client"}),
        ("stop", {"fastapi", "uvicorn", "anyio", "pydantic", "structlog", "http.client"}),
        ("check", {"fastapi", "uvicorn", "anyio", "structlog"}),
        ("detach", {"fastapi", "uvicorn"}),
    ],
)
def test_a_command_loads_only_what_it_needs(module: str, heavy: set[str]) -> None:
    """The web framework alone takes half a second."""
    code = f"import sys, supervisor.daemon.{module}; print(*sys.modules)"
    loaded = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert heavy.isdisjoint(loaded.stdout.split())


def test_the_namesake_is_refused_by_name() -> None:
    """Two projects with one import name in one environment break each other."""
    refuse_namesake()
    with pytest.raises(NamesakeError) as refused:
        refuse_namesake("click")  # one that is installed plays it

    assert explain(refused.value)[0] == 100
    assert "separate environments" in str(refused.value)


def test_an_interrupted_start_is_130_and_the_daemon_goes_on(shell: Shell, groups: Groups) -> None:
    """Whoever stops waiting has not stopped the daemon."""
    gate = shell.home / "gate"
    os.mkfifo(gate)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(shell.home / "notify"))
        manager.settimeout(PATIENCE_S)
        env = {"FAKE_GATE": str(gate), "NOTIFY_SOCKET": str(shell.home / "notify")}
        waiting = groups.start(
            [sys.executable, str(PROGRAM), "start", *shell.flags], env={**os.environ, **env}
        )
        with gate.open("w"):  # opens once the daemon opens its own end, and holds it there
            shell.pids.append(int((shell.home / "run" / "daemon.lock").read_text()))
            waiting.send_signal(signal.SIGINT)
            assert waiting.wait(PATIENCE_S) == 130
        assert manager.recv(4096).startswith(b"READY=1")

    assert shell.call("stop").returncode == 0
