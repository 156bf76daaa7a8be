"""`mcp-supervisord stop`: asks the daemon over its socket, and waits for that process to be gone.

No signal is sent to anybody, and no pid is read from a file: the process that listens on the
socket is the daemon, as the kernel says, and a pidfd holds on to it. A file that names a stranger
therefore cannot hurt the stranger.

Source: unix(7) SO_PEERCRED; pidfd_open(2).
"""

import contextlib
import json
import os
import re
import select
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from supervisor.client.client import Client, StreamedEvent
from supervisor.core.errors import SupervisorError
from supervisor.core.exits import DONE, FAILED, UNCONFIRMED, UNREACHABLE
from supervisor.daemon.options import Options, locate
from supervisor.linux.unix_socket import connect, peer_credentials

_AFTER_DEADLINE_S: Final = 10.0
"""Beyond the daemon's own budget: its API needs a second, a loaded machine some more."""

_LAST_WORDS_S: Final = 2.0
"""The stream has ended when the process has; this is for reading what the kernel still holds."""

_ANYWHERE: Final = "-"
"""An id that no event has: the stream then begins at once, with a `gap`."""


def stop_daemon(options: Options, *, force: bool) -> int:
    """Ask the daemon to stop and wait until its process is gone.

    Returns:
        0 when it is gone with every cleanup confirmed, 3 when one is not, 4 when no daemon
        answers, 1 when it is still there after its deadline.

    Raises:
        SupervisorError: it could not be asked.
    """
    path = locate(options).control_socket
    pidfd, pid = _hold_listener(path)
    if pidfd is None:
        _complain(f"mcp-supervisord is not running: nobody answers on {path}. Nothing was stopped.")
        return UNREACHABLE
    try:
        return _ask_and_wait(path, pidfd, pid, force=force)
    finally:
        os.close(pidfd)


def _hold_listener(path: str) -> tuple[int | None, int]:
    """A pidfd of the process that listens at `path`, and its pid; opened before it is asked."""
    try:
        connection = connect(path)
    except SupervisorError as error:
        if isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError):
            return None, 0
        raise
    with connection:
        pid = peer_credentials(connection).pid
    try:
        return os.pidfd_open(pid), pid
    except ProcessLookupError:  # it has just left by itself
        return None, 0


def _pids_of(pid: int) -> tuple[int, ...]:
    """Every pid of a process, one for each pid namespace that it is in, proc(5) NSpid.

    A daemon in a container calls itself by the last of them.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", errors="replace")
    except OSError:
        return (pid,)  # it has left meanwhile
    found = re.search(r"^NSpid:\s*([\d\s]+)$", status, re.MULTILINE)
    return (pid,) if found is None else tuple(int(number) for number in found[1].split())


def _ask_and_wait(path: str, pidfd: int, pid: int, *, force: bool) -> int:
    client = Client(path)
    # the place in the stream is fixed before the request: the closing summary cannot be missed
    stream = client.follow(after=_ANYWHERE)
    next(stream, None)
    answer = client.shutdown(force=force).value
    if answer["pid"] not in _pids_of(pid):
        _complain(f"Another daemon (pid {answer['pid']}) took the place of {pid}, and was asked.")
        return FAILED
    summary: list[dict[str, int]] = []
    reader = threading.Thread(target=_read_summary, args=(stream, summary), daemon=True)
    reader.start()
    patience_s = answer["deadline_s"] + _AFTER_DEADLINE_S
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    if not poller.poll(patience_s * 1000):
        _complain(
            f"The daemon (pid {pid}) is still stopping after {patience_s:g} s; "
            "`mcp-supervisord stop --force` hurries it."
        )
        return FAILED
    reader.join(_LAST_WORDS_S)
    return _tell(pid, summary)


def _read_summary(stream: Iterator[StreamedEvent], summary: list[dict[str, int]]) -> None:
    with contextlib.suppress(SupervisorError):  # cut off; then there is no summary
        summary.extend(
            json.loads(event.data)["data"] for event in stream if event.name == "daemon_stopped"
        )


def _tell(pid: int, summary: list[dict[str, int]]) -> int:
    if not summary:
        _complain(
            f"The daemon (pid {pid}) is gone, but did not say how its servers ended; see its log."
        )
        return FAILED
    confirmed, unconfirmed = summary[-1]["confirmed"], summary[-1]["unconfirmed"]
    if confirmed or unconfirmed:
        ended = f"cleanups: {confirmed} confirmed, {unconfirmed} unconfirmed"
    else:
        ended = "no server was running"
    print(f"mcp-supervisord (pid {pid}) stopped; {ended}")  # noqa: T201 - the answer
    return DONE if unconfirmed == 0 else UNCONFIRMED


def _complain(sentence: str) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201 - for the person who asked
