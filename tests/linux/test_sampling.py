"""Memory and CPU time of real families."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from leftovers import Groups
from supervisor.core.attribution import Identity
from supervisor.core.ids import InstanceId, ServerName
from supervisor.linux.processes import read_stat
from supervisor.linux.sampling import FamilyRoots, Sampler, Usage

GIT: Final = ServerName("git")
MIB: Final = 1024 * 1024
WORKED_S: Final = 0.15
"""Of the 0.2 s that `BUSY` works: the kernel counts in ticks of 10 ms."""

PARENT = """
import os, sys
ends = os.pipe()
child = os.fork()
if child == 0:
    filled = b"x" * (64 << 20)
    os.write(1, b"%d\\n" % os.getpid())
    os.read(0, 1)
    os._exit(0)
os.waitpid(child, 0)
os.write(1, b"reaped\\n")
os.read(0, 1)
"""
"""A small process with a child of 64 MiB, which ends at the first byte."""

BUSY = """
import os, time
child = os.fork()
if child == 0:
    while time.process_time() < 0.2:
        pass
    os._exit(0)
os.waitpid(child, 0)
os.write(1, b"reaped\\n")
os.read(0, 1)
"""
"""A child that works for 0.2 s of CPU time and is gone when we look."""


def identity(pid: int) -> Identity:
    """Of a process that exists."""
    stat = read_stat(pid)
    assert stat is not None
    return stat.identity


def family(pid: int, instance: str = "0" * 16) -> FamilyRoots:
    """A family whose only root is `pid`."""
    return FamilyRoots(instance=InstanceId(instance), server=GIT, roots=(identity(pid),))


def usage(found: Mapping[ServerName, Usage]) -> Usage:
    """Of the only server."""
    assert list(found) == [GIT]
    return found[GIT]


def test_descendants_count_and_the_vanished_do_not(groups: Groups) -> None:
    """A server is often a launcher with the real program below it."""
    process = groups.start([sys.executable, "-S", "-E", "-c", PARENT])
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    sampler = Sampler()

    both = usage(sampler.sample([family(process.pid)]))
    process.stdin.write(b"x")
    process.stdin.flush()
    assert process.stdout.readline() == b"reaped\n"
    alone = usage(sampler.sample([family(process.pid)]))

    assert both.resident_bytes > 64 * MIB > alone.resident_bytes > 0
    assert alone.cpu_seconds_total >= both.cpu_seconds_total
    roots = family(process.pid)
    process.communicate(b"x", timeout=5)
    gone = usage(sampler.sample([roots]))
    assert (gone.resident_bytes, gone.cpu_seconds_total) == (0, alone.cpu_seconds_total)


def test_children_that_are_gone_already_count_through_their_parent(groups: Groups) -> None:
    """Most of what a shell tool uses is used by processes of a moment."""
    process = groups.start([sys.executable, "-S", "-E", "-c", BUSY])
    assert process.stdout is not None
    assert process.stdout.readline() == b"reaped\n"

    found = usage(Sampler().sample([family(process.pid)]))

    assert found.cpu_seconds_total >= WORKED_S
    process.communicate(b"x", timeout=5)


def test_helpers_count_with_their_time_and_not_with_their_memory(groups: Groups) -> None:
    """The relay's memory is ours; the times of what it reaped are the server's."""
    process = groups.start([sys.executable, "-S", "-E", "-c", BUSY])
    assert process.stdout is not None
    process.stdout.readline()
    helper = replace(family(process.pid), helpers=frozenset({identity(process.pid)}))

    found = usage(Sampler().sample([helper]))

    assert found.resident_bytes == 0
    assert found.cpu_seconds_total >= WORKED_S
    process.communicate(b"x", timeout=5)


def test_instances_of_one_server_are_summed_and_their_time_never_falls(groups: Groups) -> None:
    """A counter that falls is a restart to Prometheus, and counts from zero."""
    first = groups.start([sys.executable, "-S", "-E", "-c", BUSY])
    second = groups.start([sys.executable, "-S", "-E", "-c", BUSY])
    for process in (first, second):
        assert process.stdout is not None
        process.stdout.readline()
    sampler = Sampler()
    both = usage(sampler.sample([family(first.pid, "1" * 16), family(second.pid, "2" * 16)]))
    first.communicate(b"x", timeout=5)

    one = usage(sampler.sample([family(second.pid, "2" * 16)]))
    second.communicate(b"x", timeout=5)
    none = usage(sampler.sample([]))

    assert both.cpu_seconds_total >= 2 * WORKED_S
    assert both.cpu_seconds_total <= one.cpu_seconds_total <= none.cpu_seconds_total
    assert one.cpu_seconds_total < both.cpu_seconds_total + WORKED_S
    assert none.resident_bytes == 0


def test_a_pid_that_went_to_somebody_else_is_left_out(groups: Groups) -> None:
    """A family may end, and its numbers be taken; the successor's children are not its own."""
    child = groups.start([sys.executable, "-S", "-E", "-c", BUSY])
    me = identity(os.getpid())
    before = replace(me, start=me.start - 1)

    found = usage(Sampler().sample([replace(family(me.pid), roots=(before,))]))
    child.communicate(b"x", timeout=5)

    assert found == Usage(resident_bytes=0, cpu_seconds_total=0.0)


def test_a_process_that_is_named_twice_counts_once() -> None:
    """Relay, anchor and server are each other's descendants."""
    once = family(os.getpid())
    twice = replace(once, roots=once.roots * 2)

    one, other = (usage(Sampler().sample([each])) for each in (once, twice))

    assert other.resident_bytes < one.resident_bytes * 1.5
