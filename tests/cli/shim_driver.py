"""Runs the shim as a client does, and plays the daemon at its other ends."""

import json
import socket
import subprocess  # noqa: TID251 - the program is run as a client runs it
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from cli.fake_daemon import INSTANCE, REPORT, WITHIN_S, listening, running
from leftovers import Groups
from supervisor.core.report import CleanupReport

MCPCTL: Final = (sys.executable, "-m", "supervisor.cli.entry")
GONE: Final = replace(REPORT, session=None, reason="disconnect")


class Connected:
    """A shim with both of its connections, and the test at their other ends."""

    def __init__(self, groups: Groups, listener: socket.socket, runtime_dir: Path) -> None:
        self.shim = groups.start([*MCPCTL, "connect", "git", "--runtime-dir", str(runtime_dir)])
        self.connection = accept(listener)
        self.asked = read_line(self.connection)
        answer = {"connected": {"instance": INSTANCE, "session": None}}
        self.connection.sendall(json.dumps(answer).encode() + b"\n")
        self.errors = accept(listener)
        self.errors_asked = read_line(self.errors)

    def write(self, data: bytes) -> None:
        """Be the client that writes."""
        assert self.shim.stdin is not None
        self.shim.stdin.write(data)
        self.shim.stdin.flush()

    def read(self, count: int) -> bytes:
        """Be the client that reads."""
        assert self.shim.stdout is not None
        return self.shim.stdout.read(count)

    def leave(self) -> None:
        """Be the client that leaves."""
        assert self.shim.stdin is not None
        self.shim.stdin.close()

    def end(self) -> tuple[int, str]:
        """Be the daemon that has ended both connections; the exit code and all of stderr."""
        self.connection.close()
        self.errors.close()
        return finish(self.shim)


def accept(listener: socket.socket) -> socket.socket:
    """The next connection, which never blocks for ever."""
    connection, _ = listener.accept()
    connection.settimeout(WITHIN_S)
    return connection


def read_line(connection: socket.socket) -> object:
    """One JSON line, byte by byte: what follows it is not ours yet."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        assert byte
        line += byte
    return json.loads(line)


def read_all(connection: socket.socket, count: int | None = None) -> bytes:
    """So many bytes, or all up to the end."""
    data = b""
    while count is None or len(data) < count:
        more = connection.recv(65536 if count is None else count - len(data))
        if not more:
            break
        data += more
    return data


def finish(shim: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """The exit code and what was said on stderr."""
    assert shim.stderr is not None
    said = shim.stderr.read().decode()
    return shim.wait(WITHIN_S), said


@contextmanager
def connected(
    groups: Groups, runtime_dir: Path, report: CleanupReport = GONE
) -> Iterator[Connected]:
    """A connected shim and a daemon that knows the report of its instance."""
    with running(runtime_dir) as fake, listening(runtime_dir) as listener:
        fake.answer("GET", f"/v1/instances/{INSTANCE}/report", report)
        both = Connected(groups, listener, runtime_dir)
        try:
            yield both
        finally:
            both.connection.close()
            both.errors.close()
