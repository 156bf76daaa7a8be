"""Children of the daemon: list them, look at them, reap them one by one.

Never `waitpid(-1)`: it would take statuses that somebody else waits for.

Source: waitid(2), prctl(2), proc(5), Linux 6.18.
"""

import ctypes
import os
from dataclasses import dataclass
from typing import Final

from supervisor.core.ids import Pid

PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def become_subreaper(*, on: bool = True) -> None:
    """Make this process the heir of all orphans below it; cleared by every fork.

    Raises:
        OSError: the kernel refused.
    """
    if _LIBC.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on), 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


def own_children() -> set[Pid]:
    """Pids of all children of all threads, zombies included. Costs 0.05 ms.

    Raises:
        OSError: out of files; a list that is not whole would be taken for an empty one.
    """
    pids: set[Pid] = set()
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children", "rb") as file:
                pids.update(Pid(int(pid)) for pid in file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended; its children moved to another one of ours
    return pids


@dataclass(frozen=True, slots=True)
class Exited:
    """A wait status in its two forms: exit code or signal, one of them None."""

    code: int | None
    signal: int | None

    @classmethod
    def from_wait_status(cls, status: int) -> "Exited":
        """Read what waitpid(2) gave."""
        if os.WIFSIGNALED(status):
            return cls(None, os.WTERMSIG(status))
        return cls(os.WEXITSTATUS(status), None)

    def __str__(self) -> str:  # type: ignore[explicit-override] # typing.override needs 3.12
        """As a report says it."""
        if self.signal is not None:
            return f"signal {self.signal}"
        return f"exit code {self.code}"


def reap_pidfd(pidfd: int) -> Exited | None:
    """Reap the child behind a pidfd if it has exited; None while it runs.

    Raises:
        ChildProcessError: it is not our child, or somebody has reaped it.
    """
    found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    return None if found is None else _exited(found)


def reap_pid(pid: Pid) -> Exited | None:
    """The same by pid, for an unreaped child of ours: its number cannot be another's.

    Raises:
        ChildProcessError: it is not our child, or somebody has reaped it.
    """
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    return None if found is None else _exited(found)


def _exited(found: os.waitid_result) -> Exited:
    if found.si_code == os.CLD_EXITED:
        return Exited(found.si_status, None)
    return Exited(None, found.si_status)


def peek_pidfd(pidfd: int) -> bool:
    """Whether the child behind a pidfd still runs; nothing is reaped.

    Raises:
        ChildProcessError: it is not our child, or somebody has reaped it.
    """
    return os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def peek_pid(pid: Pid) -> bool:
    """The same by pid, for an unreaped child of ours."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def wait_pidfd(pidfd: int) -> Exited:
    """Wait for and reap a child that was killed: blocks for as long as its death takes.

    Raises:
        ChildProcessError: it is not our child, or somebody has reaped it.
    """
    found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
    if found is None:  # only with WNOHANG, which is not given
        raise ChildProcessError
    return _exited(found)
