"""Tells the service manager how the daemon is doing, in datagrams of `NAME=value` lines.

Without `NOTIFY_SOCKET` every call does nothing, so nobody has to ask first.

Source: sd_notify(3), "Notes" (protocol, abstract sockets); sd_watchdog_enabled(3).
"""

import os
import socket
from collections.abc import Mapping
from typing import Final

_SEND_PATIENCE_S: Final = 1.0
"""The manager's queue may be full for a moment; READY=1 must not be lost, nor the loop held."""

_USEC: Final = 1_000_000


def notify(*lines: str, environ: Mapping[str, str] | None = None) -> bool:
    r"""Send `lines` (such as "READY=1") in one datagram.

    Args:
        lines: assignments without newlines.
        environ: where NOTIFY_SOCKET is looked up; the process's own when None.

    Returns:
        Whether the service manager has them. False too when there is none, or it refused: a
        daemon does not stop for that.

    Blocks: at most 1 s, while the manager's queue is full.
    """
    address = (os.environ if environ is None else environ).get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(_SEND_PATIENCE_S)
            sender.connect(address)
            sender.send("\n".join(lines).encode())
    except OSError:
        return False
    return True


def watchdog_period_s(environ: Mapping[str, str] | None = None) -> float | None:
    """How often WATCHDOG=1 is due, in seconds: half of what the service manager allows.

    Returns:
        None when there is no watchdog, or when it watches another process.
    """
    variables = os.environ if environ is None else environ
    allowed = variables.get("WATCHDOG_USEC", "")
    watched = variables.get("WATCHDOG_PID", "")
    if not allowed.isdigit() or int(allowed) == 0:
        return None
    if watched and watched != str(os.getpid()):
        return None
    return int(allowed) / _USEC / 2
