"""Finds what a test leaves behind: processes, groups, descriptors, threads."""

import ctypes
import os
import subprocess  # noqa: TID251 - tests start programs as a user would, not through our own code
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ground_truth import GroundTruth
from process_table import (
    ProcessRow,
    all_rows,
    children_of_self,
    descendants_of,
    identity_of,
    kill_pinned,
    pinned,
    reap_if_child,
    row_of,
    wait_gone,
)

_PR_SET_CHILD_SUBREAPER: Final = 36
_END_WITHIN_S: Final = 5.0
_THREAD_ENDS_WITHIN_S: Final = 2.0
"""A worker thread may end a moment after the event loop that it served."""


class Groups:
    """Starts programs in groups of their own, and knows what is left of them.

    Args:
        truth: what it knows to be alive is left too.
    """

    def __init__(self, truth: GroundTruth) -> None:
        self._truth = truth
        self._started: list[subprocess.Popen[bytes]] = []
        self._watched: dict[int, int] = {}
        self._before = {row.identity for row in descendants_of(os.getpid())}

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> "subprocess.Popen[bytes]":
        """Start a program as leader of a fresh session, with pipes as standard streams.

        The end of the test closes the pipes and reaps it; it must have ended by then.

        Args:
            argv: the program and its arguments.
            env: its whole environment; None is the tests' own.
            cwd: its working directory; None is the tests' own.
            pass_fds: further descriptors that it keeps.
        """
        process = subprocess.Popen(  # noqa: S603 - the command is the test's own
            argv,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._started.append(process)
        self.watch(process.pid)
        return process

    def watch(self, pgid: int) -> None:
        """Count what is left of a group that something else made, too; its leader must exist."""
        leader = identity_of(pgid)
        if leader is not None:
            self._watched[pgid] = leader.start_ticks

    def left(self) -> list[ProcessRow]:
        """What lives of the groups, of the ground truth, and of all that this process begot."""
        rows = {row.pid: row for row in all_rows().values() if self._is_member(row)}
        rows |= {row.pid: row for row in descendants_of(os.getpid())}
        alive = (row_of(process.pid) for process in self._truth.alive())
        rows |= {row.pid: row for row in alive if row is not None}
        return [row for row in rows.values() if row.alive and row.identity not in self._before]

    def close(self) -> None:
        """Kill what is left, close the pipes, reap what was started."""
        end(row.pid for row in self.left())
        for process in self._started:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with suppress(BrokenPipeError):  # unsent bytes to a server that has left
                        stream.close()
            process.wait(_END_WITHIN_S)

    def _is_member(self, row: ProcessRow) -> bool:
        # no member is older than the leader was: else the number belongs to somebody else by now
        start_ticks = self._watched.get(row.pgid)
        return start_ticks is not None and row.start_ticks >= start_ticks


@dataclass(frozen=True, slots=True)
class Holdings:
    """What this process holds at one moment."""

    descriptors: dict[int, str]
    threads: frozenset[threading.Thread]
    children: frozenset[int]

    @classmethod
    def now(cls) -> Self:
        """Look."""
        return cls(_descriptors(), _threads(), frozenset(children_of_self()))

    def problems_after(self) -> list[str]:
        """Say what differs now, one sentence each; threads get a moment to end."""
        for thread in _threads() - self.threads:
            thread.join(_THREAD_ENDS_WITHIN_S)
        now = Holdings.now()
        opened = dict(now.descriptors.items() - self.descriptors.items())
        closed = dict(self.descriptors.items() - now.descriptors.items())
        problems = [f"left open: descriptor {fd}, {what}" for fd, what in sorted(opened.items())]
        problems += [
            f"closed, but not the test's own: descriptor {fd}, {what}"
            for fd, what in sorted(closed.items())
            if fd not in opened
        ]
        new_threads = now.threads - self.threads
        problems += sorted(f"left running: thread {thread.name}" for thread in new_threads)
        problems += [_describe_child(pid) for pid in sorted(now.children - self.children)]
        return problems


def _threads() -> frozenset[threading.Thread]:
    # trio keeps idle threads for ten seconds, for whoever needs one next
    return frozenset(t for t in threading.enumerate() if not t.name.startswith("Trio thread "))


def set_subreaper(*, on: bool) -> None:
    """Let this process adopt orphaned descendants, or not.

    Source: PR_SET_CHILD_SUBREAPER(2const).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap_zombies(pids: Iterable[int]) -> None:
    """Take the exit status of those children that are dead; the living are left alone."""
    for pid in pids:
        reap_if_child(pid)


def end(pids: Iterable[int]) -> None:
    """SIGKILL these processes, wait for their end, reap those that nobody else waits for."""
    with pinned(pids) as pidfds:
        for pidfd in pidfds.values():
            kill_pinned(pidfd)
        wait_gone(pidfds.values(), _END_WITHIN_S)


def _descriptors() -> dict[int, str]:
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        # the descriptor of this very listing is gone again when it is looked at
        with suppress(FileNotFoundError):
            found[int(entry.name)] = str(entry.readlink())
    return found


def _describe_child(pid: int) -> str:
    row = row_of(pid)
    if row is None:
        return f"left behind: child {pid}"
    return f"left behind: child {pid} ({row.comm}), state {row.state}"
