"""What /proc and psutil say about processes: identities, marks, members, names for reports.

Cheap looks at one process are read from /proc directly (6 us); whatever confirms a death or names
a survivor goes through psutil, which knows a recycled pid by its start time. Full scans cost 10 ms
and more: they run in a worker thread and are shared.

Source: proc(5); psutil 7.2; costs measured with 300 processes.
"""

import contextlib
import datetime as dt
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import psutil

from supervisor.core.attribution import Identity, Orphan
from supervisor.core.ids import INSTANCE_MARK, Pgid, Pid
from supervisor.core.report import Survivor

_MARK: Final = INSTANCE_MARK.encode() + b"="
_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
PF_EXITING: Final = 0x4
"""In the kernel's flags of a process: it has begun to exit. Source: proc(5), linux/sched.h."""

COMMAND_CHARS: Final = 240
"""How much of a command line is worth showing."""

GONE: Final = (FileNotFoundError, ProcessLookupError)
"""What /proc says of a process that is no more; anything else is no answer."""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/PID/stat; `exiting` from the first step of its end on, zombies included."""

    identity: Identity
    state: str
    ppid: int
    pgid: int
    sid: int
    command: str
    exiting: bool = False

    @property
    def alive(self) -> bool:
        """Whether it can still run."""
        return self.state not in {"Z", "X"}


def read_stat(pid: int) -> ProcessStat | None:
    """The process as it is now, or None when it is gone.

    Raises:
        OSError: out of files; that says nothing about the process.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            raw = file.read()
    except GONE:
        return None
    opening, closing = raw.find(b"("), raw.rfind(b")")
    fields = raw[closing + 2 :].split()
    if len(fields) < 20:  # noqa: PLR2004 - starttime is the 20th after the name
        return None
    return ProcessStat(
        Identity(pid, int(fields[19])),
        fields[0].decode(),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        raw[opening + 1 : closing].decode("utf-8", "replace"),
        exiting=bool(int(fields[6]) & PF_EXITING),
    )


def read_mark(pid: int) -> str | None:
    """The instance mark in the environment of a process, or None: none, or not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            raw = file.read()
    except (*GONE, PermissionError):
        return None
    for entry in raw.split(b"\0"):
        if entry.startswith(_MARK):
            return entry[len(_MARK) :].decode("ascii", "replace")
    return None


def read_orphan(pid: Pid, seen: Mapping[Identity, Orphan] | None) -> Orphan | None:
    """A child that the daemon did not start, or None when it is gone.

    Args:
        pid: its pid.
        seen: orphans whose mark was read before (a mark does not change); None to read no marks.
    """
    found = read_stat(pid)
    if found is None:
        return None
    mark = None
    if seen is not None and found.alive:
        before = seen.get(found.identity)
        mark = before.mark if before is not None else read_mark(pid)
    return Orphan(
        identity=found.identity,
        pgid=found.pgid,
        sid=found.sid,
        mark=mark,
        zombie=not found.alive,
        command=found.command,
    )


class Known:
    """One process that belongs to a family, and whether psutil still finds it running.

    With `pin`, psutil's own handle is taken now: it tells the process from a successor that got
    the same pid within the same clock tick. Without, the pid and start time have to do.
    """

    __slots__ = ("_process", "identity")

    def __init__(self, identity: Identity, *, pin: bool) -> None:
        self.identity = identity
        self._process: psutil.Process | None = None
        if pin:
            with contextlib.suppress(psutil.Error, OSError):  # then pid and start time decide
                self._process = self._find()

    def running(self) -> bool:
        """Whether psutil finds this very process, and not as a zombie."""
        try:
            process = self._process or self._find()
            if process is None:
                return False
            return process.is_running() and process.status() not in {
                psutil.STATUS_ZOMBIE,
                psutil.STATUS_DEAD,
            }
        except psutil.NoSuchProcess:
            return False
        except (psutil.AccessDenied, OSError):
            return True  # nobody could look: that is no proof

    def _find(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.identity.pid)
        except psutil.NoSuchProcess:
            return None
        found = read_stat(self.identity.pid)
        same = found is not None and found.identity == self.identity
        return process if same else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a scan looks for on behalf of one family."""

    mark: str
    sessions: frozenset[int]
    pgid: int | None
    helpers: frozenset[Identity]
    identities: frozenset[Identity]


def scan(wanted: Iterable[Wanted]) -> dict[str, tuple[ProcessStat, ...]]:
    """Look once through all processes; give each family those that are alive and its own.

    Blocks for 10 to 50 ms: call it in a worker thread.

    Returns:
        Mark to processes, helpers left out.
    """
    wanted = tuple(wanted)
    found: dict[str, list[ProcessStat]] = {family.mark: [] for family in wanted}
    for pid in psutil.pids():
        stat = read_stat(pid)
        if stat is None or not stat.alive:
            continue
        mark = read_mark(pid)
        for family in wanted:
            if stat.identity not in family.helpers and _belongs(stat, mark, family):
                found[family.mark].append(stat)
    return {mark: tuple(stats) for mark, stats in found.items()}


def _belongs(stat: ProcessStat, mark: str | None, family: Wanted) -> bool:
    if mark == family.mark or stat.identity in family.identities:
        return True
    return stat.sid in family.sessions or stat.pgid == family.pgid


def count_group(pgid: Pgid) -> tuple[int, ...]:
    """Pids of the members of a group that can still run. One pass over /proc, 3 ms."""
    living = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_stat(int(name))
            if stat is not None and stat.pgid == pgid and stat.alive:
                living.append(stat.identity.pid)
    return tuple(living)


def describe(identity: Identity, why: str) -> Survivor | None:
    """Name a process for a report, or None when it is gone or a zombie."""
    try:
        stat = read_stat(identity.pid)
    except OSError:
        stat = ProcessStat(identity, "?", 0, 0, 0, "?")  # it may well be alive
    if stat is None or stat.identity != identity or not stat.alive:
        return None
    return Survivor(
        pid=identity.pid,
        ppid=stat.ppid,
        pgid=stat.pgid,
        sid=stat.sid,
        started_at_utc=started_at_utc(identity),
        command=command_line(identity.pid, stat.command),
        why=why,
    )


def command_line(pid: int, fallback: str) -> str:
    """The command line as one string, or the bracketed name where it cannot be read."""
    try:
        words = psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        words = []
    return " ".join(words)[:COMMAND_CHARS] or f"[{fallback}]"


def started_at_utc(identity: Identity) -> str:
    """When the process started, ISO 8601; follows the wall clock, for people only."""
    at = psutil.boot_time() + identity.start / _CLOCK_TICKS
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def boot_id() -> str:
    """The kernel's id of this boot: pids of another boot mean nothing."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def pid_namespace() -> int:
    """The inode of our pid namespace: pids of another namespace mean nothing here."""
    return os.stat("/proc/self/ns/pid").st_ino


def open_pidfd(identity: Identity) -> int | None:
    """Hold a process: the descriptor first, then the identity, so that it is the right one.

    Returns:
        A pidfd that the caller closes, or None when the process is gone.
    """
    try:
        pidfd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    found = read_stat(identity.pid)
    if found is None or found.identity != identity:
        os.close(pidfd)
        return None
    return pidfd
