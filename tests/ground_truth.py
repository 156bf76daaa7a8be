"""What is truly alive, found without any code of the project under test.

Where a cgroup v2 directory can be made, the commands of a test run in one of their own: the
kernel's own list, which nothing that a server does can leave. Else the pid file of the scenario
counts, together with every process that carries a mark in its environment or descends from one
that does. Then a test must let its servers write the pid file, as `tests/servers` do.

    with GroundTruth(tmp_path) as truth:
        process = start(truth.join_argv(["python3", "server.py"]))
        assert truth.alive() == []

Source: cgroups(7); cgroup.kill since Linux 5.14.
"""

import errno
import os
import select
import time
import uuid
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from process_table import (
    ProcessRow,
    all_rows,
    kill_pinned,
    pinned,
    reap_if_child,
    row_of,
    wait_gone,
)

MARK: Final = "MCP_GROUND_TRUTH"
"""Set in the environment of all that `join_argv` starts."""

_KILL_WITHIN_S: Final = 15.0
"""Without a cgroup some fast forkers cannot be caught; those of `tests/servers` stop after 12 s."""

_JOIN_SCRIPT: Final = 'echo 0 > "$0/cgroup.procs" && exec "$@"'


class Alive(NamedTuple):
    """A living process: no zombie."""

    pid: int
    comm: str
    state: str


class GroundTruth:
    """Knows and, at the end, kills everything that its commands have started.

    Args:
        pids: file in which the servers note their pids, or directory with such files called
            `*.pids`; needed only where there is no cgroup.
        cgroup: False to do without one, for tests of that very way.
    """

    def __init__(self, pids: Path | None = None, *, cgroup: bool = True) -> None:
        self._pids = pids
        self._token = uuid.uuid4().hex
        base = cgroup_base() if cgroup else None
        self._leaf = None if base is None else base / f"mcp-truth-{self._token[:12]}"
        # in ticks since boot: what is older than this truth cannot be a process of it
        self._since_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        if self._leaf is not None:
            self._leaf.mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.kill_all()
        if self._leaf is not None:
            _remove(self._leaf)

    @property
    def by_cgroup(self) -> bool:
        """Whether the kernel's own list is used."""
        return self._leaf is not None

    @property
    def mark(self) -> str:
        """The environment entry of everything that `join_argv` starts."""
        return f"{MARK}={self._token}"

    def join_argv(self, argv: Sequence[str]) -> list[str]:
        """Wrap a command so that it, and all that it starts, belongs to this truth.

        Args:
            argv: the command; it keeps pid, descriptors and exit status, as the wrappers exec.
        """
        marked = ["/usr/bin/env", self.mark, *argv]
        if self._leaf is None:
            return marked
        return ["/bin/sh", "-c", _JOIN_SCRIPT, str(self._leaf), *marked]

    def alive(self) -> list[Alive]:
        """All living processes of this truth, sorted by pid."""
        rows = self._scan() if self._leaf is None else _members(self._leaf)
        return sorted(Alive(row.pid, row.comm, row.state) for row in rows if row.alive)

    def kill_all(self) -> list[Alive]:
        """SIGKILL everything and wait for the end of it; children of ours are reaped.

        Returns:
            What had been alive.

        Raises:
            TimeoutError: something lives on after 15 s.
        """
        before = self.alive()
        deadline_at = time.monotonic() + _KILL_WITHIN_S
        seen = {process.pid for process in before}
        while left := self.alive():
            if time.monotonic() > deadline_at:
                message = f"these processes cannot be killed: {left}"
                raise TimeoutError(message)
            seen |= {process.pid for process in left}
            with pinned(process.pid for process in left) as pidfds:
                self._kill(pidfds)
                wait_gone(pidfds.values(), deadline_at - time.monotonic())
        for pid in seen:
            reap_if_child(pid)
        return before

    def _kill(self, pidfds: dict[int, int]) -> None:
        if self._leaf is not None:
            try:
                (self._leaf / "cgroup.kill").write_text("1")
            except FileNotFoundError:
                pass  # older than Linux 5.14
            else:
                return
        members = {process.pid for process in self.alive()}
        for pid, pidfd in pidfds.items():
            if pid in members:  # looked at again behind the pin: it cannot be a stranger now
                kill_pinned(pidfd)

    def _scan(self) -> list[ProcessRow]:
        rows = {pid: row for pid, row in all_rows().items() if row.start_ticks >= self._since_ticks}
        noted = self._noted()
        known = {pid for pid in rows if pid in noted or self._marked(pid)}
        grown = True
        while grown:
            below = {pid for pid, row in rows.items() if row.ppid in known} - known
            known |= below
            grown = bool(below)
        return [rows[pid] for pid in known]

    def _noted(self) -> frozenset[int]:
        if self._pids is None:
            return frozenset()
        files = self._pids.glob("*.pids") if self._pids.is_dir() else [self._pids]
        texts = [file.read_text("ascii") for file in files if file.exists()]
        return frozenset(int(pid) for text in texts for pid in text.split())

    def _marked(self, pid: int) -> bool:
        try:
            entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False  # gone, or another user's
        return self.mark.encode() in entries


@lru_cache(maxsize=1)
def cgroup_base() -> Path | None:
    """A cgroup v2 directory in which this user may make leaves and fill them, or None."""
    for directory in _cgroup2_directories():
        probe = directory / f"mcp-probe-{uuid.uuid4().hex[:12]}"
        try:
            probe.mkdir()
        except OSError:
            continue
        try:
            if _can_join(probe):
                return directory
        finally:
            _remove(probe)
    return None


def _cgroup2_directories() -> list[Path]:
    """Our own cgroup first (a delegated one is writable), then the mount itself."""
    own = "/"
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        if line.startswith("0::"):
            own = line[3:]
    found = []
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        head, _, tail = line.partition(" - ")
        if tail.split()[0] != "cgroup2":
            continue
        root, mount = head.split()[3:5]
        inside = Path(own).relative_to(root) if Path(own).is_relative_to(root) else Path()
        found += [Path(mount) / inside, Path(mount)]
    return found


def _can_join(leaf: Path) -> bool:
    argv = ["/bin/sh", "-c", _JOIN_SCRIPT, str(leaf), "/bin/true"]
    null = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=null)
    ended = os.waitid(os.P_PID, pid, os.WEXITED)
    return ended is not None and ended.si_status == 0


def _members(leaf: Path) -> list[ProcessRow]:
    pids = [int(pid) for pid in (leaf / "cgroup.procs").read_text("ascii").split()]
    return [row for pid in pids if (row := row_of(pid)) is not None]


def _remove(leaf: Path) -> None:
    """Remove a cgroup whose last members may just be on their way out."""
    with (leaf / "cgroup.events").open("rb", buffering=0) as events:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        deadline_at = time.monotonic() + _KILL_WITHIN_S
        while True:
            events.seek(0)
            events.read()  # reading arms the poll for the next change
            try:
                leaf.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline_at:
                    raise
            else:
                return
            poll.poll(100)
