"""Descendants that leave the group, the session, the parent or their descriptors behind.

Each function is one scenario's part before its root serves. It returns how many processes of the
scenario are then alive, the root included, or None when a descendant announces that itself.
Source: the escapes that were tried on Linux 6.18 for this project, one function each.
"""

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Callable
from typing import Final

from family import (
    Family,
    comm_and_state,
    ignore,
    reap,
    until,
    wait_end,
    wait_exited,
    wait_stopped,
)

_ZOMBIES: Final = 20
_BULK: Final = 500
_ALL_DESCRIPTORS: Final = 65536
_PR_SET_CHILD_SUBREAPER: Final = 36
_CLONE_VFORK: Final = 0x4000
_CLONE_NUMBER: Final = {"x86_64": 56, "aarch64": 220}
"""System call numbers of clone(2); its first two arguments are flags and stack on both."""


def plain(family: Family) -> int:
    """One child in the same group."""
    return _one_child(family, lambda: None)


def own_session(family: Family) -> int:
    """One child in a session of its own."""
    return _one_child(family, os.setsid)


def own_group(family: Family) -> int:
    """One child in a group of its own, same session."""
    return _one_child(family, lambda: os.setpgid(0, 0))


def closed_descriptors(family: Family) -> int:
    """One child in the same group that holds no descriptor at all."""
    return _one_child(family, lambda: os.closerange(0, _ALL_DESCRIPTORS))


def dropped_user(family: Family) -> int:
    """One child that has become nobody; the root needs to be root."""
    nobody = pwd.getpwnam("nobody")

    def drop() -> None:
        os.setgroups([])
        os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
        os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)

    return _one_child(family, drop)


def daemon(family: Family) -> int:
    """A classic daemon: own session, double fork, standard streams on /dev/null."""
    return _daemonize(family, family.stay)


def daemon_without_descriptors(family: Family) -> int:
    """A daemon that has closed every inherited descriptor, but keeps its environment."""

    def close_all() -> None:
        os.closerange(3, _ALL_DESCRIPTORS)
        family.stay()

    return _daemonize(family, close_all)


def daemon_without_traces(family: Family) -> int:
    """A daemon with an empty environment and no inherited descriptor: only its parent tells."""

    def clean() -> None:
        os.closerange(3, family.place)
        os.closerange(family.place + 1, _ALL_DESCRIPTORS)
        family.become_sleep({})

    return _daemonize(family, clean)


def stopped_child(family: Family) -> int:
    """One child that has stopped itself."""

    def stop() -> None:
        family.note()
        family.in_place()
        signal.raise_signal(signal.SIGSTOP)
        family.stay()

    pid = family.child(stop)
    family.wait_placed()
    wait_stopped(pid)
    return 2


def stopped_root(family: Family) -> None:
    """The root stops itself; its child says so. After SIGCONT the root serves and is polite."""
    root = os.getpid()

    def watch() -> None:
        family.note()
        family.in_place()
        until(lambda: comm_and_state(root)[1] == "T")
        family.announce(2)
        family.stay()

    family.child(watch)
    family.wait_placed()
    signal.raise_signal(signal.SIGSTOP)


def deaf_child(family: Family) -> int:
    """One child that ignores SIGTERM; the root ignores it too, and EOF (see the table)."""
    return _one_child(family, lambda: ignore(signal.SIGTERM))


def zombies(family: Family) -> int:
    """A root that never reaps its 20 dead children; alone alive."""
    for _ in range(_ZOMBIES):
        pid = family.child(lambda: None)
        family.note(pid)
        wait_exited(pid)
    return 1


def waiting_for_vfork(family: Family) -> None:
    """A child in uninterruptible sleep: it waits for its own vforked child, which stays."""

    def second() -> None:
        family.note()
        until(lambda: comm_and_state(os.getppid())[1] == "D")
        family.announce(3)
        family.stay()

    def first() -> None:
        family.note()
        family.in_place()
        # without CLONE_VM the child has its own memory, so that Python may go on in it; PyDLL
        # keeps the interpreter's lock across the call, as os.fork does
        clone = ctypes.PyDLL(None).syscall
        flags = _CLONE_VFORK | signal.SIGCHLD
        if clone(_CLONE_NUMBER[os.uname().machine], flags, 0, 0, 0, 0) == 0:
            second()
        family.stay()

    family.child(first)
    family.wait_placed()


def leader_leaves(family: Family) -> None:
    """The root leaves by itself and at once; its child stays in the group."""
    root = os.pidfd_open(os.getpid())

    def stay_behind() -> None:
        family.note()
        family.in_place()
        wait_end(root)
        os.close(root)
        family.announce(1)
        family.stay()

    family.child(stay_behind)
    family.wait_placed()


def output_held(family: Family) -> None:
    """The root leaves by itself; a child in its own session keeps stdout, and only that, open."""
    root = os.pidfd_open(os.getpid())

    def hold() -> None:
        os.setsid()
        family.note()
        family.in_place()
        os.dup2(root, 3, inheritable=False)
        os.closerange(4, _ALL_DESCRIPTORS)
        _to_null(0, 2)
        wait_end(3)
        os.close(3)
        family.announce(1)
        family.stay()

    family.child(hold)
    family.wait_placed()


def nested_subreaper(family: Family) -> int:
    """A child that adopts: the daemon below it never becomes anybody else's child."""

    def adopt() -> None:
        if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            sys.exit("prctl(PR_SET_CHILD_SUBREAPER) was refused")
        family.note()
        _fork_twice(family, family.stay)
        family.stay()

    family.child(adopt)
    family.wait_placed()
    return 3


def bulk(family: Family) -> int:
    """500 children, each in a session of its own."""
    for _ in range(_BULK):
        family.child(lambda: _settle(family, os.setsid))
    family.wait_placed()
    return _BULK + 1


def _one_child(family: Family, become: Callable[[], object]) -> int:
    family.child(lambda: _settle(family, become))
    family.wait_placed()
    return 2


def _settle(family: Family, become: Callable[[], object]) -> None:
    family.note()
    become()
    family.stay()


def _daemonize(family: Family, last: Callable[[], object]) -> int:
    def detached() -> None:
        os.chdir("/")
        _to_null(0, 1, 2)
        last()

    _fork_twice(family, detached)
    family.wait_placed()
    return 2


def _fork_twice(family: Family, last: Callable[[], object]) -> None:
    """Let `last` run in a grandchild with its own session, whose parent has left and is reaped."""

    def middle() -> None:
        os.setsid()
        family.child(grandchild)

    def grandchild() -> None:
        family.note()
        last()

    reap(family.child(middle))


def _to_null(*descriptors: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)
