"""What the real daemon tells a service manager, over a real datagram socket."""

import http.client
import json
import os
import signal
import socket
import subprocess  # noqa: TID251 - `mcpctl` is run as a person runs it
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest

from leftovers import Groups

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = Path(sys.executable).parent
SERVER: Final = ROOT / "scripts" / "systemd_trial" / "server.py"
PATIENCE_S: Final = 30.0
"""For a whole start on a loaded machine."""


class Service:
    """A daemon, and the service manager's end of its notifications."""

    def __init__(self, groups: Groups, home: Path, manager: socket.socket) -> None:
        self._groups = groups
        self._home = home
        self._manager = manager
        self.places = [f"--runtime-dir={home / 'run'}", f"--state-dir={home / 'state'}"]

    def run(
        self, servers: Mapping[str, Mapping[str, Any]], watchdog_usec: int | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start the daemon as a service manager would."""
        file = self._home / "config.json"
        file.write_text(json.dumps({"mcpServers": servers}), "utf-8")
        environ = {**os.environ, "NOTIFY_SOCKET": str(self._home / "notify")}
        if watchdog_usec is not None:
            environ["WATCHDOG_USEC"] = str(watchdog_usec)
        argv = [str(PROGRAMS / "mcp-supervisord"), "run", f"--config={file}", *self.places]
        return self._groups.start(argv, env=environ)

    def told(self) -> list[str]:
        """The lines of the next datagram."""
        return self._manager.recv(4096).decode().split("\n")

    def until(self, line: str) -> list[str]:
        """The next datagram that begins with `line`."""
        while (told := self.told())[0] != line:
            pass
        return told

    def mcpctl(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """One command to its end."""
        return subprocess.run(  # noqa: S603 - our own program
            [str(PROGRAMS / "mcpctl"), *self.places, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    def readyz(self) -> int:
        """The HTTP status of GET /readyz on the control socket, asked once."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(PATIENCE_S)
            control.connect(str(self._home / "run" / "control.sock"))
            connection = http.client.HTTPConnection("localhost")
            connection.sock = control
            connection.request("GET", "/readyz")
            return connection.getresponse().status


@pytest.fixture
def service(groups: Groups, tmp_runtime: Path) -> Iterator[Service]:
    """A service that is not started yet."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_runtime / "notify"))
        manager.settimeout(PATIENCE_S)
        yield Service(groups, tmp_runtime, manager)


def stubborn(deadline_ms: int) -> dict[str, Any]:
    """A server that ignores EOF and SIGTERM."""
    return {
        "command": sys.executable,
        "args": ["-S", str(SERVER), "stubborn"],
        "stop": {"deadlineMs": deadline_ms},
    }


def test_ready_is_said_once_the_control_socket_answers(service: Service) -> None:
    """What systemd starts after us may use the socket at once, without trying twice."""
    daemon = service.run({"one": {"command": "cat"}, "two": {"command": "cat"}})

    told = service.told()

    assert service.readyz() == 200
    assert told == ["READY=1", "STATUS=2 servers configured"]
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE_S) == 0


def test_stopping_is_said_before_the_servers_are_gone(service: Service) -> None:
    """Systemd then shows that it stops, and for how long, instead of a service that is up."""
    daemon = service.run({"deaf": stubborn(1000)})
    service.until("READY=1")
    assert service.mcpctl("start", "deaf").returncode == 0

    daemon.send_signal(signal.SIGTERM)
    told = service.until("STOPPING=1")

    assert daemon.poll() is None
    assert told == ["STOPPING=1", "STATUS=Stopping all servers within 1 s"]
    assert daemon.wait(PATIENCE_S) == 0


def test_the_watchdog_is_fed_at_half_of_its_time(service: Service) -> None:
    """Seldom enough to cost nothing, often enough that one late turn of the loop is forgiven."""
    daemon = service.run({}, watchdog_usec=1_000_000)
    service.until("WATCHDOG=1")
    began_at = monotonic()

    for _ in range(4):
        service.until("WATCHDOG=1")

    # 2 s; a first ping that we read late makes it seem less, a loaded machine makes it more
    assert 1.5 < monotonic() - began_at < 4.0
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE_S) == 0


def test_the_watchdog_is_fed_through_a_long_stop(service: Service) -> None:
    """A stop may last longer than WatchdogSec; systemd must not abort it half-way."""
    daemon = service.run({"deaf": stubborn(1500)}, watchdog_usec=200_000)
    service.until("READY=1")
    assert service.mcpctl("start", "deaf").returncode == 0

    daemon.send_signal(signal.SIGTERM)
    service.until("STOPPING=1")
    fed = [service.told() for _ in range(5)]

    assert daemon.poll() is None
    assert fed == [["WATCHDOG=1"]] * 5
    assert daemon.wait(PATIENCE_S) == 0


def test_servers_cannot_speak_for_the_daemon(service: Service) -> None:
    """A server that knows of sd_notify would report itself as the service."""
    daemon = service.run({"deaf": stubborn(500)}, watchdog_usec=60_000_000)
    service.until("READY=1")
    started = service.mcpctl("start", "deaf", "--json")

    pid = json.loads(started.stdout)["instance"]["pid"]
    environ = Path(f"/proc/{pid}/environ").read_bytes()

    assert b"MCP_SUPERVISOR_INSTANCE=" in environ
    assert b"NOTIFY_SOCKET" not in environ
    assert b"WATCHDOG" not in environ
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE_S) == 0
