"""Looks at processes through /proc and pidfds, with no code of the project under test.

A pid alone is never an identity: it is pinned by a pidfd, or compared with its start time. (Start
times count in ticks of 10 ms, so two processes *can* share pid and start time; a held pidfd
cannot be reused.) Source: proc_pid_stat(5), pidfd_open(2).
"""

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEAD_STATES: Final = frozenset("ZX")
_AFTER_COMM: Final = ("state", "ppid", "pgid", "sid")
_START_FIELD: Final = 19
"""Index of starttime behind the name: field 22 of the line, and the name is field 2."""


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """A process that may be over: pid and start time in clock ticks since boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One line of the process table."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgid: int
    sid: int
    start_ticks: int

    @property
    def identity(self) -> Identity:
        """What tells it from a later process with the same pid, but for 10 ms."""
        return Identity(self.pid, self.start_ticks)

    @property
    def alive(self) -> bool:
        """Whether it runs, sleeps or is stopped: anything but a zombie."""
        return self.state not in DEAD_STATES


def row_of(pid: int) -> ProcessRow | None:
    """The row of a process, or None when there is none with that pid."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name may hold spaces and parentheses: the last parenthesis ends it
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    ppid, pgid, sid = (int(field) for field in fields[1 : len(_AFTER_COMM)])
    return ProcessRow(
        pid=pid,
        comm=head.partition("(")[2],
        state=fields[0],
        ppid=ppid,
        pgid=pgid,
        sid=sid,
        start_ticks=int(fields[_START_FIELD]),
    )


def all_rows() -> dict[int, ProcessRow]:
    """Every process of this pid namespace, by pid; one pass, so no snapshot of one instant."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid: row for pid in pids if (row := row_of(pid)) is not None}


def children_of_self() -> set[int]:
    """The pids of this process's children, zombies included."""
    own = os.getpid()
    try:
        lists = [file.read_text("ascii") for file in Path("/proc/self/task").glob("*/children")]
    except FileNotFoundError:
        lists = []  # a thread ended between the listing and the reading
    if lists:
        return {int(pid) for text in lists for pid in text.split()}
    # a kernel without CONFIG_PROC_CHILDREN has no such file
    return {pid for pid, row in all_rows().items() if row.ppid == own}


def descendants_of(ancestor: int) -> list[ProcessRow]:
    """All rows below `ancestor`, zombies included, sorted by pid."""
    rows = all_rows()
    below: dict[int, list[ProcessRow]] = {}
    for row in rows.values():
        below.setdefault(row.ppid, []).append(row)
    found, todo = [], [ancestor]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += [child.pid for child in children]
    return sorted(found, key=lambda row: row.pid)


def identity_of(pid: int) -> Identity | None:
    """The identity of a process that exists, or None."""
    row = row_of(pid)
    return None if row is None else row.identity


def still_runs(identity: Identity) -> bool:
    """Whether this very process exists and is no zombie."""
    row = row_of(identity.pid)
    return row is not None and row.identity == identity and row.alive


def open_pidfd(pid: int) -> int:
    """Pin a process; the caller closes the descriptor.

    Raises:
        ProcessLookupError: it is gone.
    """
    return os.pidfd_open(pid)


@contextmanager
def pinned(pids: Iterable[int]) -> Iterator[dict[int, int]]:
    """Hold a pidfd for each process that still exists: pid to pidfd."""
    with ExitStack() as held:
        pidfds: dict[int, int] = {}
        for pid in pids:
            with suppress(ProcessLookupError):
                pidfds[pid] = open_pidfd(pid)
                held.callback(os.close, pidfds[pid])
        yield pidfds


def wait_gone(pidfds: Iterable[int], within_s: float) -> tuple[int, ...]:
    """Wait until all these processes have ended (as zombies or altogether).

    Args:
        pidfds: pinned processes.
        within_s: the longest wait, in seconds.

    Returns:
        The pidfds of those that still run: empty when all is well.
    """
    waiting = set(pidfds)
    poll = select.poll()
    for pidfd in waiting:
        poll.register(pidfd, select.POLLIN)
    deadline_at = time.monotonic() + within_s
    while waiting:
        left_s = deadline_at - time.monotonic()
        for pidfd, _ in poll.poll(max(0.0, left_s) * 1000):
            poll.unregister(pidfd)
            waiting.discard(pidfd)
        if left_s <= 0:
            break
    return tuple(sorted(waiting))


def kill_pinned(pidfd: int) -> None:
    """SIGKILL the process of a pidfd; one that is gone is no error."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def reap_if_child(pid: int) -> bool:
    """Take the exit status of a zombie child of ours.

    Returns:
        Whether there was one; a stranger, a living child and nobody are all left alone.
    """
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return False
