"""The daemon's identity: a kernel lock on one file, never the number written in it.

The kernel drops the lock with its last holder, so a crash leaves nothing to clean up. The pid in
the file is for people who read it; no decision and no signal ever rests on it: after a reboot it
may name a stranger. The file itself is never removed, since a second daemon could then lock a
new one while the first still holds the old.

Source: flock(2): the lock belongs to the open file description and so survives fork;
open(2) O_NOFOLLOW.
"""

import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from typing import Final

from supervisor.core.errors import KernelError

_HINT_BYTES: Final = 32
"""A pid with its newline is far shorter; whatever else is in the file is not read."""


@dataclass(frozen=True, slots=True)
class Held:
    """The lock is ours until `release`, or until the last process with a copy of `fd` is gone."""

    fd: int
    path: str

    def write_pid(self) -> None:
        """Write our pid for people to read; after a detach, call it again."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Give the lock up; the file stays."""
        os.close(self.fd)


@dataclass(frozen=True, slots=True)
class HeldByOther:
    """Another process holds it; `pid_hint` is what the file says, for a message only."""

    path: str
    pid_hint: int | None


def acquire_lock(path: str) -> Held | HeldByOther:
    """Take the lock at `path` if nobody has it, and write our pid there.

    The content of the file does not matter: it may be empty, hold text, or name any process.

    Args:
        path: the file; created with mode 0600, and narrowed to that when it was wider.

    Returns:
        `Held`, with a close-on-exec descriptor, or `HeldByOther`.

    Raises:
        KernelError: the file cannot be used as a lock (a symlink, a directory, no permission).

    Blocks: no.
    """
    while True:
        fd = _open(path)
        try:
            held = _lock(fd, path)
        except BaseException:
            os.close(fd)
            raise
        if held is not None:
            if isinstance(held, HeldByOther):
                os.close(fd)
            return held
        os.close(fd)  # the file was replaced between open and lock: that lock guards nothing


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            reason = "it is a symbolic link, which is never followed here; remove it"
        else:
            reason = os.strerror(error.errno or 0)
        message = f"The lock file {path} cannot be opened: {reason}."
        raise KernelError(message) from error


def _lock(fd: int, path: str) -> Held | HeldByOther | None:
    """Lock an open file; None when the path leads to another file by now."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        message = f"The lock file {path} is not an ordinary file; remove it."
        raise KernelError(message)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return HeldByOther(path, _read_pid(fd))
    try:
        current = os.lstat(path)
    except FileNotFoundError:
        return None
    if (current.st_dev, current.st_ino) != (status.st_dev, status.st_ino):
        return None
    try:
        if stat.S_IMODE(status.st_mode) != 0o600:  # noqa: PLR2004 - rw------- reads best in octal
            os.fchmod(fd, 0o600)
        held = Held(fd, path)
        held.write_pid()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        message = f"The lock file {path} cannot be written: {reason}."
        raise KernelError(message) from error
    return held


def _read_pid(fd: int) -> int | None:
    words = os.pread(fd, _HINT_BYTES, 0).split(b"\n", 1)[0].strip()
    return int(words) if words.isdigit() else None
