"""Connects to a Unix socket, however long its path is.

The shim loads this file at every start, so it takes the C socket type: `import socket` costs more
than everything else that the shim loads (12 ms of a start of 26, Python 3.11).
"""

import os
import struct
from _socket import AF_UNIX, SO_SNDTIMEO, SOCK_STREAM, SOL_SOCKET, socket

from supervisor.core.places import MAX_SOCKET_PATH_BYTES

CONNECT_LIMIT_S = 5
"""A daemon that accepts nothing for so long is stuck: its backlog takes 128 connections."""


def reach(path: str) -> socket:
    """Connect to the stream socket at `path`.

    Args:
        path: the socket's path. One over 107 bytes is reached through its opened folder.

    Returns:
        A connected, blocking socket; sending to it gives up after `CONNECT_LIMIT_S`.

    Raises:
        OSError: nobody listens there (ENOENT, ECONNREFUSED), it is not ours to use (EACCES), or
            the daemon is stuck (EAGAIN).

    Source: unix(7): sun_path holds 108 bytes with its NUL; a full backlog blocks for SO_SNDTIMEO.
    """
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.setsockopt(SOL_SOCKET, SO_SNDTIMEO, struct.pack("ll", CONNECT_LIMIT_S, 0))
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
            connection.connect(path)
        else:
            _connect_through_folder(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_through_folder(connection: socket, path: str) -> None:
    folder, name = os.path.split(path)
    fd = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{fd}/{name}")
    finally:
        os.close(fd)
