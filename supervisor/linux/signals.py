"""Signals, with their results as data: sent, gone, refused. The only place that sends any.

A process is signalled through a pidfd, a group by its number while its unreaped leader pins it.
"Gone" is never a failure; EPERM proves nothing about whether a process exists.

Source: pidfd_send_signal(2), kill(2).
"""

import errno
import os
import signal
from dataclasses import dataclass

from supervisor.core.ids import Pgid, Pid
from supervisor.core.report import SignalOutcome


@dataclass(frozen=True, slots=True)
class SignalResult:
    """How it went; `errno` only when refused."""

    outcome: SignalOutcome
    errno: int | None = None


def result_of(number: int) -> SignalResult:
    """The result behind an errno, 0 for success."""
    if number == 0:
        return SignalResult("sent")
    if number == errno.ESRCH:
        return SignalResult("gone")
    return SignalResult("refused", number)


def signal_pidfd(pidfd: int, number: signal.Signals) -> SignalResult:
    """Send to the one process that the descriptor stands for."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except OSError as error:
        return result_of(error.errno or 0)
    return SignalResult("sent")


def signal_child(pid: Pid, number: signal.Signals) -> SignalResult:
    """Send to a child that this process has not reaped: its number cannot be another's."""
    try:
        os.kill(pid, number)
    except OSError as error:
        return result_of(error.errno or 0)
    return SignalResult("sent")


def signal_group(pgid: Pgid, number: signal.Signals) -> SignalResult:
    """Send to every member of a group whose leader is known to be unreaped."""
    try:
        os.killpg(pgid, number)
    except OSError as error:
        return result_of(error.errno or 0)
    return SignalResult("sent")


def group_exists(pgid: Pgid) -> bool:
    """Whether the group has any member, zombies included: only ESRCH says no."""
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
