"""The machine that is measured on, and what a measurement leaves behind on it: nothing."""

import os
import platform
import re
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

from supervisor.core.ids import Pid
from supervisor.linux.reaping import become_subreaper, own_children, reap_pid
from supervisor.linux.signals import signal_pidfd

DEATH_S: Final = 5.0
"""How long a killed process may take to go."""


class MeasurementError(Exception):
    """A measurement cannot be taken; the text says why."""


class LeftBehindError(MeasurementError):
    """A measurement left processes running; they have been killed."""


class TooLateError(MeasurementError):
    """Something that was waited for did not happen."""


class UnexpectedError(MeasurementError):
    """What was measured did not end as it should have, so its time says nothing."""


def machine() -> str:
    """Cores, kernel, Python and load, in one line without names or paths."""
    kernel = re.match(r"[0-9.]+", os.uname().release)
    return (
        f"{len(os.sched_getaffinity(0))} cores, Linux {kernel[0] if kernel else '?'}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def directory() -> TemporaryDirectory[str]:
    """A directory for one measurement, in memory where there is such a place.

    A runtime directory is: on a disk its records would cost a millisecond more at each spawn.
    """
    places = (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")  # noqa: S108 - for its user only
    found = (place for place in places if place and os.access(place, os.W_OK | os.X_OK))
    return TemporaryDirectory(prefix="mcps-", dir=next(found, None))


@contextmanager
def nothing_left() -> Iterator[None]:
    """Adopt every orphan of the block; kill what still runs at its end.

    Raises:
        LeftBehindError: there was something, and the block itself did not fail.
    """
    before = own_children()
    become_subreaper()
    try:
        yield
    except BaseException:
        _end(before)
        raise
    else:
        if left := _end(before):
            names = "; ".join(left)
            message = f"left running: {names}"
            raise LeftBehindError(message)
    finally:
        become_subreaper(on=False)


def _end(before: set[Pid]) -> list[str]:
    """Reap the dead and kill the living, until no child is left; name those that lived."""
    named = []
    while children := own_children() - before:
        for pid in children:
            if reap_pid(pid) is not None:
                continue
            with open_pidfd(pid) as pidfd:
                named.append(f"{pid} {_command(pid)}")
                signal_pidfd(pidfd, signal.SIGKILL)
                wait_readable(pidfd, DEATH_S)
    return named


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:  # noqa: PTH123 - a proc file
            return file.read().strip()
    except OSError:
        return "?"


@contextmanager
def open_pidfd(pid: int) -> Iterator[int]:
    """A pidfd of a process that is known to exist, for the time of the block."""
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def wait_readable(fd: int, within_s: float) -> None:
    """Block until a descriptor can be read, or a pidfd's process has ended.

    Raises:
        TooLateError: it did not happen in time.
    """
    if not becomes_readable(fd, within_s):
        message = f"nothing happened within {within_s:g} s"
        raise TooLateError(message)


def becomes_readable(fd: int, within_s: float) -> bool:
    """Whether a descriptor can be read, or a pidfd's process has ended, within that time."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
