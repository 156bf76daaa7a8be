"""`mcpctl shutdown`: asks the daemon to stop, and watches it go."""

import os
import select
import sys
import time
from _socket import SO_PEERCRED, SOL_SOCKET
from typing import Final

import click

from supervisor.cli.options import Given
from supervisor.cli.waiting import Interrupted
from supervisor.client.reach import reach
from supervisor.client.wire import FIRST_TICK_S, TICK_S
from supervisor.core import exits

CREDENTIALS_BYTES: Final = 12
"""struct ucred: pid, uid, gid."""

MARGIN_S: Final = 5.0
"""What a daemon may take beyond the deadline of its servers: it ends followers and closes files."""


def watch(given: Given, *, force: bool, wait: bool) -> int:
    """Ask for the stop; with `wait`, return when the daemon's process has ended.

    Returns:
        DONE when it is gone (or, without `wait`, has agreed), FAILED when it is late.
    """
    pidfd = _hold_daemon(given.places().control_socket)
    try:
        return _ask_and_watch(given, pidfd, force=force, wait=wait)
    except KeyboardInterrupt:
        message = "Interrupted; the daemon goes on stopping."
        raise Interrupted(message) from None
    finally:
        if pidfd is not None:
            os.close(pidfd)


def _hold_daemon(control_socket: str) -> int | None:
    """A pidfd of whoever listens, taken before it is asked to go; None where nobody does.

    By the socket, not by what the daemon says of itself: in a container it is pid 1 to itself.
    Source: unix(7) SO_PEERCRED.
    """
    try:
        connection = reach(control_socket)
    except OSError:
        return None  # the request will say so
    try:
        credentials = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, CREDENTIALS_BYTES)
        return os.pidfd_open(int.from_bytes(credentials[:4], sys.byteorder))
    except OSError:
        return None
    finally:
        connection.close()


def _ask_and_watch(given: Given, pidfd: int | None, *, force: bool, wait: bool) -> int:
    answer = given.client().shutdown(force=force)
    stopping = answer.value
    pid, deadline_s = stopping["pid"], stopping["deadline_s"]
    if given.as_json:
        click.echo(answer.text)
    if not wait:
        if not given.as_json:
            click.echo(f"mcp-supervisord (pid {pid}) is stopping, within {deadline_s:.1f} s")
        return exits.DONE
    started_at = time.monotonic()
    gone = pidfd is None or _wait_gone(pidfd, deadline_s)
    elapsed_s = time.monotonic() - started_at
    if not gone:
        click.echo(
            f"mcpctl: mcp-supervisord (pid {pid}) is still there {elapsed_s:.1f} s after it agreed "
            "to stop; its log says what it waits for.",
            err=True,
        )
        return exits.FAILED
    if not given.as_json:
        click.echo(f"mcp-supervisord (pid {pid}) has stopped in {elapsed_s:.3f} s")
    return exits.DONE


def _wait_gone(fd: int, deadline_s: float) -> bool:
    """Source: pidfd_open(2): readable once the process has ended, and never another process."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    deadline_at = time.monotonic() + deadline_s
    shown, tick_s = False, FIRST_TICK_S
    while not (ended := bool(poll.poll(tick_s * 1000))):
        left_s = deadline_at - time.monotonic()
        if left_s < -MARGIN_S:
            break
        if sys.stderr.isatty():
            left = f"deadline in {max(0.0, left_s):.1f} s"
            sys.stderr.write(f"\r\x1b[Kwaiting for mcp-supervisord to stop: {left}")
            sys.stderr.flush()
            shown = True
        tick_s = TICK_S
    if shown:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
    return ended
