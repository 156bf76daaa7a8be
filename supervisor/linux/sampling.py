"""Memory and CPU time of whole families, summed per server, from one pass over all processes.

CPU time is a counter of our own: of each family the highest sum seen so far is kept, so that the
total of a server never falls when its processes end. A parent inherits the times of the children
that it reaps, hence short-lived ones are counted too. Not counted is what a family uses between
its last sample and its end, and children of a program that ignores SIGCHLD.

Source: proc(5), cutime and cstime; getrusage(2) RUSAGE_CHILDREN; psutil 7.2, `cpu_times`.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import psutil

from supervisor.core.attribution import Identity
from supervisor.core.ids import InstanceId, ServerName
from supervisor.linux.processes import read_stat


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRoots:
    """Where one family is found.

    Attributes:
        roots: its relay, anchor and server, as far as known; their descendants follow.
        helpers: those of them whose memory is ours and not the server's.
    """

    instance: InstanceId
    server: ServerName
    roots: tuple[Identity, ...]
    helpers: frozenset[Identity] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What all families of one server use.

    Attributes:
        resident_bytes: sum over living processes; a page that two of them share counts twice.
        cpu_seconds_total: user and system time since the first sample; never falls.
    """

    resident_bytes: int
    cpu_seconds_total: float


class Sampler:
    """Samples families and remembers the CPU time of those that are gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # two scrapes may come at once
        self._counted_s: dict[InstanceId, float] = {}  # guarded by _lock
        self._total_s: defaultdict[ServerName, float] = defaultdict(float)  # guarded by _lock

    def sample(self, families: Iterable[FamilyRoots]) -> Mapping[ServerName, Usage]:
        """Look at all processes once; those that vanish meanwhile are left out.

        Returns:
            One value for every server of `families` and for every one that was sampled before.

        Blocks: about 10 us for each process of the machine and 100 us for each of the families;
            call it in a worker thread.
        """
        with self._lock:
            return self._sample(tuple(families))

    def _sample(self, families: tuple[FamilyRoots, ...]) -> Mapping[ServerName, Usage]:
        children = _children_of_all() if families else {}
        resident: defaultdict[ServerName, int] = defaultdict(int)
        counted_s = dict[InstanceId, float]()
        for family in families:
            resident_bytes, cpu_s = _measure(family, children)
            before_s = self._counted_s.get(family.instance, 0.0)
            # a process that was reaped between two reads is missing from this sum and back in
            # the next one: counting from the highest sum never counts it twice
            counted_s[family.instance] = max(before_s, cpu_s)
            self._total_s[family.server] += max(0.0, cpu_s - before_s)
            resident[family.server] += resident_bytes
        self._counted_s = counted_s
        return {
            server: Usage(resident_bytes=resident[server], cpu_seconds_total=total_s)
            for server, total_s in self._total_s.items()
        }


def _children_of_all() -> Mapping[int, list[Identity]]:
    children: defaultdict[int, list[Identity]] = defaultdict(list)
    for pid in psutil.pids():
        stat = read_stat(pid)
        if stat is not None:
            children[stat.ppid].append(stat.identity)
    return children


def _measure(family: FamilyRoots, children: Mapping[int, list[Identity]]) -> tuple[int, float]:
    """Resident bytes and CPU seconds of one family, parents before their children."""
    resident_bytes, cpu_s = 0, 0.0
    for identity in _members(family.roots, children):
        try:
            process = psutil.Process(identity.pid)
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
        except (psutil.Error, ProcessLookupError):
            continue
        found = read_stat(identity.pid)
        if found is None or found.identity != identity:
            continue  # it ended, and what was measured may be its successor
        cpu_s += times.user + times.system + times.children_user + times.children_system
        if identity not in family.helpers:
            resident_bytes += memory.rss
    return resident_bytes, cpu_s


def _members(
    roots: tuple[Identity, ...], children: Mapping[int, list[Identity]]
) -> Iterator[Identity]:
    now = ((root, read_stat(root.pid)) for root in roots)
    found = [root for root, stat in now if stat is not None and stat.identity == root]
    seen = set[Identity]()
    while found:
        identity = found.pop(0)
        if identity not in seen:
            seen.add(identity)
            yield identity
            found += children.get(identity.pid, [])
