"""Unix sockets that are private from their first instant, and who is at the other end.

A socket gets its mode before it gets its name: `fchmod` on the unbound descriptor, which `bind`
then gives to the file. No umask and no moment between bind and chmod can make it looser.

Only a *stale socket* is ever replaced, one that nobody accepts on. A file, a directory, a symlink
or a live socket at the path is left alone, and the sentence says so.

Source: unix(7); `unix_bind_bsd` in Linux (file mode = the socket's own mode without the umask),
tried on Linux 6.18.
"""

import contextlib
import errno
import grp
import os
import select
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from supervisor.core.errors import ConfigError, KernelError
from supervisor.core.places import MAX_SOCKET_PATH_BYTES

_DYING_PATIENCE_S: Final = 1.0
"""A killed daemon drops its lock a moment before its sockets; measured in milliseconds."""

_CREDENTIALS: Final = struct.Struct("3i")
"""struct ucred: pid, uid, gid."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who connected, or who listens: as the kernel noted it at connect(2) or listen(2).

    `pid` is 0 for a process of a pid namespace that we cannot see.
    """

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A socket at its path, not yet listening.

    Attributes:
        socket: non-blocking, close-on-exec.
        path: where it was bound.
        replaced: whether a stale socket was removed for it.
        identity: device and inode of the socket file, to notice when it is no longer ours.
    """

    socket: socket.socket
    path: str
    replaced: bool
    identity: tuple[int, int]

    def is_in_place(self) -> bool:
        """Whether the path still leads to this socket."""
        return _identity(self.path) == self.identity

    def remove(self) -> None:
        """Close the socket, and remove its file unless the path leads to another one by now."""
        self.socket.close()
        if self.is_in_place():
            with contextlib.suppress(OSError):  # the directory went with it
                Path(self.path).unlink()


def bind_private(path: str, *, mode: int = 0o600, group: int | None = None) -> BoundSocket:
    """Bind a stream socket at `path`, never looser than `mode`, not even for an instant.

    Args:
        path: of any length; over 107 bytes it is bound through its open directory.
        mode: permission bits of the socket file.
        group: the gid that owns it, or None for our own.

    Returns:
        The socket, not yet listening, and whether it replaced a stale one.

    Raises:
        KernelError: something else is at the path, somebody listens there, or the OS refused.

    Blocks: up to 1 s, when the listener found there is about to die.
    """
    replaced = _make_room(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        os.fchmod(bound.fileno(), mode if group is None else mode & 0o700)
        with _reachable(path) as address:
            bound.bind(address)
        if group is not None:  # closed to the group until the group is the right one
            os.chown(path, -1, group, follow_symlinks=False)
        if stat.S_IMODE(os.lstat(path).st_mode) != mode:  # a group, or a umask without our bits
            Path(path).chmod(mode)
        bound.setblocking(False)
        found = _identity(path)
    except OSError as error:
        bound.close()
        raise _refused(path, "bound", error) from error
    if found is None:
        bound.close()
        message = f"The socket {path} was removed while it was being made."
        raise KernelError(message)
    return BoundSocket(bound, path, replaced, found)


def connect(path: str) -> socket.socket:
    """Connect to the socket at `path`, of any length.

    Returns:
        A blocking, close-on-exec stream socket.

    Raises:
        KernelError: nobody listens there, or the OS refused; `__cause__` is the OSError.
    """
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with _reachable(path) as address:
            connected.connect(address)
    except OSError as error:
        connected.close()
        raise _refused(path, "reached", error) from error
    return connected


def peer_credentials(sock: socket.socket) -> Peer:
    """Who is at the other end of a connected Unix socket, unix(7) SO_PEERCRED."""
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(packed))


def ensure_private_dir(path: str, *, group: int | None = None) -> None:
    """Make sure that `path` is a directory of ours that nobody else can enter.

    Args:
        path: absolute; missing parents are made, with mode 0700 as well.
        group: a gid that may pass through it (mode 0710) to the sockets inside.

    Raises:
        KernelError: it belongs to somebody else, is no directory, or the OS refused.
    """
    try:
        _make_directories(Path(path))
        link = os.lstat(path)
        # systemd's DynamicUser= gives a link made by root; a link made by anyone else is a trap
        if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
            message = f"The directory {path} is a symbolic link made by user {link.st_uid}."
            raise KernelError(message)
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        message = f"The directory {path} cannot be used: {reason}."
        raise KernelError(message) from error
    try:
        _narrow(directory, path, group)
    finally:
        os.close(directory)


def find_group(name: str) -> int:
    """The gid of the group called `name`.

    Raises:
        ConfigError: there is no such group.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        problem = f"supervisor.socketGroup names the group {name!r}, which does not exist."
        raise ConfigError(problem) from None


def _narrow(directory: int, path: str, group: int | None) -> None:
    status = os.fstat(directory)
    if status.st_uid != os.geteuid():
        message = (
            f"The directory {path} belongs to user {status.st_uid}, not to us "
            f"(user {os.geteuid()}); name another one."
        )
        raise KernelError(message)
    mode = 0o700 if group is None else 0o710
    try:
        if group is not None and status.st_gid != group:
            os.fchown(directory, -1, group)
        if stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(directory, mode)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        message = f"The directory {path} cannot be made private: {reason}."
        raise KernelError(message) from error


def _make_directories(path: Path) -> None:
    if path.is_dir():
        return
    if path.parent != path:
        _make_directories(path.parent)
    with contextlib.suppress(FileExistsError):  # another one made it; open() says what it is
        path.mkdir(0o700)


def _make_room(path: str) -> bool:
    """Remove a stale socket at `path`; whether there was one."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _refused(path, "looked at", error) from error
    kind = _kind(status.st_mode)
    if kind is not None:
        message = f"The socket {path} cannot be made: {kind} is there, and is left alone; move it."
        raise KernelError(message)
    owner = _listener(path)
    if owner is not None:
        message = f"The socket {path} cannot be made: process {owner.pid} listens there."
        raise KernelError(message)
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
    return True


def _kind(mode: int) -> str | None:
    """What is at a path, in words; None for a socket."""
    if stat.S_ISSOCK(mode):
        return None
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a file"


def _listener(path: str) -> Peer | None:
    """Who accepts connections at `path`, unless that process is about to die."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with probe:
        probe.setblocking(False)
        try:
            with _reachable(path) as address:
                probe.connect(address)
        except BlockingIOError:  # a full backlog: somebody listens, too busy to be named
            return Peer(0, 0, 0)
        except OSError:  # refused: nobody listens; a datagram socket cannot be ours either
            return None
        owner = peer_credentials(probe)
    return None if _dies_soon(owner.pid) else owner


def _dies_soon(pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        return error.errno == errno.ESRCH
    try:
        poller = select.poll()
        poller.register(process, select.POLLIN)
        return bool(poller.poll(_DYING_PATIENCE_S * 1000))
    finally:
        os.close(process)


@contextlib.contextmanager
def _reachable(path: str) -> Iterator[str]:
    """An address for `path` that fits into sockaddr_un."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        yield path
        return
    parent, name = os.path.split(path)
    directory = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{name}"
    finally:
        os.close(directory)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _refused(path: str, verb: str, error: OSError) -> KernelError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return KernelError(f"The socket {path} cannot be {verb}: {reason}.")
