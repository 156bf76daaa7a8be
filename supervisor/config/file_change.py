"""Replaces a file in one step, and only if it is still the file that was read.

The new content is written and synced beside the file and then takes its name, so that a reader,
or a machine that loses power, finds the old content or the new one and never a part. Mode, owner
and access lists stay. A symbolic link stays one; what it leads to is replaced.
Writers of this program wait for each other by a lock beside the file; other programs know nothing
of it, which is why the content is compared again right before the rename.

Source: rename(2), link(2) (fails where the name exists), flock(2), fsync(2).
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from supervisor.config.files import MAX_FILE_BYTES
from supervisor.core.errors import ConfigError, KernelError, RequestError

_BOM: Final = b"\xef\xbb\xbf"
_GROUP_CAN_ENTER: Final = 0o050
_KEPT_ATTRIBUTES: Final = ("system.posix_acl_access", "user.")


class EditRefusedError(RequestError):
    """A change that is not made, and why; everything is as before."""

    code = "edit_refused"


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was read.

    Attributes:
        path: where it really is, with links followed.
        text: its content without a byte order mark; None where there is no file.
        digest: SHA-256 of its bytes; empty where there is no file.
        marked: whether it begins with a byte order mark, which stays.
    """

    path: str
    text: str | None = field(repr=False)
    digest: bytes
    marked: bool


def look(path: str) -> Seen:
    """Read the file at `path`, at most `MAX_FILE_BYTES`, in UTF-8.

    Raises:
        ConfigError: it is there and cannot be read.
    """
    real = os.path.realpath(path)
    try:
        content = _content(real)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}."
        raise ConfigError(message) from error
    if content is None:
        return Seen(real, None, b"", marked=False)
    if len(content) > MAX_FILE_BYTES:
        message = f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB; it is not what it seems."
        raise ConfigError(message)
    marked = content.startswith(_BOM)
    try:
        text = content.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"{path}, line {line}: this is no UTF-8; save the file in that encoding."
        raise ConfigError(message) from None
    return Seen(real, text, hashlib.sha256(content).digest(), marked)


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Be the only writer of this program for the file at `path`, which need not exist.

    The lock is an empty hidden file beside it, which stays. Waits for another writer without
    limit: none holds the lock while it waits for a person.

    Raises:
        KernelError: the lock cannot be had.
    """
    real = Path(os.path.realpath(path))
    lock = real.with_name(f".{real.name}.lock")
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(lock, flags, 0o600)
    except OSError as error:
        message = f"{path} cannot be changed: {lock} cannot be opened: {error.strerror}."
        raise KernelError(message) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def replace(seen: Seen, text: str, *, new_mode: int = 0o600) -> None:
    """Give the file `text` as its content, if it is as it was `seen`.

    Args:
        seen: the file as the change was made for it.
        text: the whole new content.
        new_mode: of a file that does not exist yet, before the umask; 0o600 becomes 0o640 and
            the folder's group where the folder lets another group in, as for a daemon's.

    Raises:
        EditRefusedError: it has changed in between, or its owner could not be kept.
        KernelError: the operating system refused; the file is as before.

    Blocks: for the disk.
    """
    path = Path(seen.path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise _refused(path, error) from error
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.write((_BOM if seen.marked else b"") + text.encode())
            stream.flush()
            _take_over(stream.fileno(), path, new_mode, exists=seen.text is not None)
            os.fsync(stream.fileno())
        _take_name(Path(temporary), path, seen)
        _sync_folder(path.parent)
    except FileNotFoundError:  # it, or the folder, has gone
        raise changed_meanwhile(seen.path) from None
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _content(path: str) -> bytes | None:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None


def _take_name(temporary: Path, path: Path, seen: Seen) -> None:
    content = _content(str(path))
    digest = b"" if content is None else hashlib.sha256(content).digest()
    changed = digest != seen.digest
    if not changed and seen.text is not None:
        temporary.replace(path)
    elif not changed:
        try:
            path.hardlink_to(temporary)  # unlike a rename, it never takes the place of a file
        except FileExistsError:
            changed = True
    if changed:
        raise changed_meanwhile(seen.path)


def _take_over(fd: int, path: Path, new_mode: int, *, exists: bool) -> None:
    """Give the new file the mode, owner and access list of the old one."""
    if not exists:
        _private_to_group(fd, path.parent, new_mode)
        return
    old, own = path.stat(), os.fstat(fd)
    if (old.st_uid, old.st_gid) != (own.st_uid, own.st_gid):
        try:
            os.fchown(fd, old.st_uid, old.st_gid)
        except PermissionError:
            message = (
                f"{path} belongs to another user or group, which could not be kept; run the "
                "command as its owner."
            )
            raise EditRefusedError(message) from None
    os.fchmod(fd, old.st_mode & 0o7777)
    with suppress(OSError):  # a file system without attributes has none to keep
        for name in os.listxattr(path):
            if name.startswith(_KEPT_ATTRIBUTES):
                os.setxattr(fd, name, os.getxattr(path, name))


def _private_to_group(fd: int, folder: Path, mode: int) -> None:
    """The mode of a new file; a daemon of another user reads its configuration by the group."""
    status = folder.stat()
    if mode == 0o600 and status.st_gid != os.getegid() and status.st_mode & _GROUP_CAN_ENTER:  # noqa: PLR2004 - rw------- reads best in octal
        with suppress(PermissionError):
            os.fchown(fd, -1, status.st_gid)
            mode = 0o640
    umask = os.umask(0)
    os.umask(umask)
    os.fchmod(fd, mode & ~umask if mode & 0o007 else mode)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def changed_meanwhile(file: str) -> EditRefusedError:
    """What to say when somebody else was faster."""
    message = (
        f"{file} has changed since it was read, so nothing was written; look at it, and run the "
        "command again."
    )
    return EditRefusedError(message)


def _refused(path: Path, error: OSError) -> KernelError:
    message = f"{path} cannot be written: {error.strerror or error}. It is as it was."
    return KernelError(message)
