"""What the processes of one scenario share: where they report, and when they are in place.

A process is *in place* once it has become what its scenario says. Every process inherits the write
end of one pipe and closes it at that moment (an exec does so by itself); EOF tells the root that
nothing is missing, without a sleep. Standard library only.
"""

import contextlib
import os
import select
import signal
import socket
import stat
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

LIFETIME_S: Final = 600
"""Nothing of a scenario lives longer, so a test run that was killed leaves nothing for ever."""

_POLL_S: Final = 0.001
"""For the few kernel states that no descriptor announces (stopped, waiting for a vfork)."""

_GIVE_UP_S: Final = 20.0


class Family:
    """The reporting side of a scenario, inherited by all of its processes.

    Args:
        pids: file that gets one line with a pid for every process of interest.
        ready: FIFO or Unix socket of the test, or None when nobody wants to know.
        state: directory whose file `events` gets one line for what the root saw, or None.
    """

    def __init__(self, pids: Path, ready: Path | None, state: Path | None) -> None:
        self.pids = pids
        self.place = -1
        """Write end of the pipe; closing it means being in place."""
        self._missing, self.place = os.pipe()
        self._ready = ready
        self._events = None if state is None else state / "events"

    def note(self, pid: int | None = None) -> None:
        """Add a pid, by default the caller's own, to the pid file."""
        _append(self.pids, f"{os.getpid() if pid is None else pid}\n")

    def saw(self, event: str) -> None:
        """Record what happened to the root: `start PID`, `eof`, `SIGTERM`."""
        if self._events is not None:
            _append(self._events, f"{event}\n")

    def child(self, body: Callable[[], object]) -> int:
        """Fork a process that runs `body` and then leaves with 0.

        Returns:
            The child's pid.
        """
        pid = os.fork()
        if pid == 0:
            leave_after(body)
        return pid

    def in_place(self) -> None:
        """Say that the caller has become what it should be."""
        if self.place >= 0:
            with contextlib.suppress(OSError):  # who closes everything has closed this too
                os.close(self.place)
            self.place = -1

    def stay(self) -> NoReturn:
        """Be in place, and do nothing until killed."""
        self.in_place()
        select.select([], [], [], LIFETIME_S)
        os._exit(0)

    def become_sleep(self, env: dict[str, str] | None = None) -> NoReturn:
        """Be `/bin/sleep`, with the inherited environment unless another is given."""
        # the exec closes the write end of `place`, as Python makes it close-on-exec
        argv = ["sleep", str(LIFETIME_S)]
        os.execve("/bin/sleep", argv, dict(os.environ) if env is None else env)  # noqa: S606

    def wait_placed(self) -> bytes:
        """In the root: wait until all others are in place.

        Returns:
            What they wrote into the pipe: pids, one a line, of those that cannot note themselves.
        """
        self.in_place()
        written = b""
        while chunk := os.read(self._missing, 4096):
            written += chunk
        os.close(self._missing)
        return written

    def announce(self, living: int) -> None:
        """Tell the test that the scenario stands, with the number of processes now alive."""
        if self._ready is None:
            return
        line = b"ready %d\n" % living
        if stat.S_ISSOCK(self._ready.stat().st_mode):
            with socket.socket(socket.AF_UNIX) as gate:
                gate.connect(str(self._ready))
                gate.sendall(line)
        else:
            with self._ready.open("wb", buffering=0) as gate_fifo:
                gate_fifo.write(line)


def leave_after(body: Callable[[], object]) -> NoReturn:
    """Run `body` and leave without the interpreter's own goodbye, which belongs to the root."""
    code = 70
    try:
        body()
        code = 0
    except BaseException:  # noqa: BLE001 - a forked copy must never return into the root's code
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a state that no descriptor announces.

    Raises:
        TimeoutError: it did not come about.
    """
    for _ in range(int(_GIVE_UP_S / _POLL_S)):
        if condition():
            return
        select.select([], [], [], _POLL_S)
    message = f"the scenario did not come about within {_GIVE_UP_S} s"
    raise TimeoutError(message)


def comm_and_state(pid: int) -> tuple[str, str]:
    """Name and state letter of a process; two empty strings when it is gone.

    Source: proc_pid_stat(5); the name may hold anything, so the last parenthesis ends it.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    head, _, tail = text.rpartition(")")
    return head.partition("(")[2], tail.split()[0]


def wait_exited(pid: int) -> None:
    """Wait until a child is a zombie, and leave it one."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def reap(pid: int) -> None:
    """Wait for a child and take its exit status."""
    os.waitid(os.P_PID, pid, os.WEXITED)


def wait_stopped(pid: int) -> None:
    """Wait until a child is stopped."""
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def wait_end(pidfd: int) -> None:
    """Wait until the process of a pidfd has ended; it may still be a zombie."""
    select.select([pidfd], [], [])


def ignore(*signals: signal.Signals) -> None:
    """Ignore these signals from now on; children inherit that, through exec too."""
    for number in signals:
        signal.signal(number, signal.SIG_IGN)


def _append(file: Path, text: str) -> None:
    # one write to O_APPEND: lines of several processes never mix
    with file.open("ab", buffering=0) as out:
        out.write(text.encode())
