"""Starts the daemon's own helper programs: the fork server, and relays where it cannot be used.

posix_spawn, so that a daemon with threads and much memory is not copied. Helpers get no
environment, and an interpreter that reads no site packages: what they run is the package's own
`supervisor.relay`, found by its parent directory.

Source: posix_spawn(3): file actions run in order, so that sources are parked above the targets.
"""

import fcntl
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import supervisor
from supervisor.core.ids import Pid

_PACKAGE_PARENT: Final = str(Path(supervisor.__file__).resolve().parent.parent)
_PARKED_FROM: Final = 40
"""Above every number that a file action targets."""


def start_fork_server(link: socket.socket) -> Pid:
    """Start a fork server that serves `link`.

    Raises:
        OSError: the kernel refused.
    """
    fd = link.fileno()
    os.set_inheritable(fd, True)
    try:
        return _spawn(f"from supervisor.relay.fork_server import main; main({fd})", [])
    finally:
        os.set_inheritable(fd, False)


def start_relay(fds: Sequence[int], first: int) -> Pid:
    """Start a relay as a direct child; it finds `fds` at `first` and the numbers behind it.

    Raises:
        OSError: the kernel refused.
    """
    parked = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _PARKED_FROM) for fd in fds]
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)
    ]
    actions += [(os.POSIX_SPAWN_DUP2, fd, first + i) for i, fd in enumerate(parked)]
    try:
        return _spawn("from supervisor.relay.fork_server import main_relay; main_relay()", actions)
    finally:
        for fd in parked:
            os.close(fd)


def _spawn(code: str, actions: list[tuple[int, ...] | tuple[int, int, str, int, int]]) -> Pid:
    program = f"import sys; sys.path[:0] = [{_PACKAGE_PARENT!r}]; {code}"
    # the interpreter itself, not a venv's link to it: without site there is no venv
    python = str(Path(sys.executable).resolve())
    argv = [python, "-I", "-S", "-E", "-c", program]
    return Pid(os.posix_spawn(python, argv, {}, file_actions=actions))
