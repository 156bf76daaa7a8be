"""Rotating files of one line each event, named after servers: what the log's worker writes to.

A file is opened for each batch and closed again: no descriptor is held, and a file that somebody
moved away or removed is simply made anew. Everything here blocks on the disk.

Source: design sections 9 and 17; open(2) O_NOFOLLOW.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from string import ascii_letters, digits
from typing import Final

ROTATE_BYTES: Final = 5 * 1024 * 1024
KEPT_FILES: Final = 3
"""Old files beside the current one: at most 20 MiB for each server."""

_PLAIN: Final = frozenset((ascii_letters + digits + "-_.").encode())
_LONGEST_NAME: Final = 200
"""In bytes. File systems take 255, and the suffixes need some of them."""

_READ_BYTES: Final = 65536
_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def safe_name(server: str) -> str:
    """A file name for a server: unique, without slashes, never hidden, at most 200 bytes.

    What is not a letter, digit, `-`, `_` or `.` is percent-encoded, and so is a first dot. A long
    name is cut and ends with `%+` and its SHA-256, which no encoding of another name contains.
    """
    raw = server.encode("utf-8", "surrogatepass")
    if not raw:
        return "%"
    safe = "".join(
        chr(byte) if byte in _PLAIN and (at, byte) != (0, ord(".")) else f"%{byte:02X}"
        for at, byte in enumerate(raw)
    )
    if len(safe) <= _LONGEST_NAME:
        return safe
    ending = f"%+{sha256(raw).hexdigest()}"
    return safe[: _LONGEST_NAME - len(ending)] + ending


class LogFile:
    """The log of one server, and its older files `.1` to `.3`, the newest first."""

    def __init__(self, directory: str, server: str, *, rotate_bytes: int = ROTATE_BYTES) -> None:
        self.path = Path(directory) / f"{safe_name(server)}.log"
        self._rotate_bytes = rotate_bytes

    def append(self, lines: Iterable[bytes]) -> None:
        """Write whole lines, and begin a new file where one would grow beyond its size.

        Raises:
            OSError: the disk is full, or something else than our file stands at the path. Some
                lines may have been written.
        """
        waiting = deque(lines)
        while waiting:
            fd, size_bytes = self._open()
            batch = list[bytes]()
            try:
                while waiting and self._has_room(size_bytes, len(waiting[0])):
                    batch.append(waiting.popleft())
                    size_bytes += len(batch[-1])
                _write_all(fd, b"".join(batch))
            finally:
                os.close(fd)
            if waiting:
                self._rotate()

    def last_lines(self, count: int, *, at_most_bytes: int) -> list[bytes]:
        """The last lines of all files, oldest first, each with its newline.

        Args:
            count: how many lines.
            at_most_bytes: how much is read for them.
        """
        found: deque[bytes] = deque()
        size_bytes = 0
        for path in (self.path, *self._older()):
            for line in _lines_backwards(path):
                size_bytes += len(line)
                if len(found) >= count or size_bytes > at_most_bytes:
                    return list(found)
                found.appendleft(line)
        return list(found)

    def _has_room(self, size_bytes: int, more_bytes: int) -> bool:
        return size_bytes == 0 or size_bytes + more_bytes <= self._rotate_bytes

    def _open(self) -> tuple[int, int]:
        fd = os.open(self.path, _FLAGS | os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            status = os.fstat(fd)
            _check_ordinary(status, self.path)
            if stat.S_IMODE(status.st_mode) != 0o600:  # noqa: PLR2004 - rw------- reads best in octal
                os.fchmod(fd, 0o600)
        except BaseException:
            os.close(fd)
            raise
        return fd, status.st_size

    def _older(self) -> list[Path]:
        return [self.path.with_name(f"{self.path.name}.{n}") for n in range(1, KEPT_FILES + 1)]

    def _rotate(self) -> None:
        paths = [self.path, *self._older()]
        for newer, older in reversed(list(pairwise(paths))):
            with suppress(FileNotFoundError):
                newer.replace(older)


def _check_ordinary(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EEXIST, "it is no ordinary file", str(path))


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _lines_backwards(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last one first; nothing when it cannot be read."""
    try:
        fd = os.open(path, _FLAGS | os.O_RDONLY)
    except OSError:
        return
    with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor, opened without following links
        status = os.fstat(fd)
        end = status.st_size if stat.S_ISREG(status.st_mode) else 0
        rest, started = b"", False
        while end > 0:
            start = max(0, end - _READ_BYTES)
            file.seek(start)
            first, *whole = (file.read(end - start) + rest).split(b"\n")
            for line in reversed(whole):
                if line or started:  # nothing follows the last newline
                    yield line + b"\n"
                started = True
            rest, end = first, start
        if rest or started:
            yield rest + b"\n"
