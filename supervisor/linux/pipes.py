"""Pipes, and being told by the kernel when they can be read or written.

The one module of ours besides the HTTP server that touches asyncio: a reader callback that stays
registered costs 6 us a message here, an awaitable 31 to 42. Callbacks must not block.

Under trio (virtual clock, in tests) nothing of this file is used.

Source: measured on Python 3.11, echo of 280-byte lines over 200 pipes; pipe(7).
"""

import asyncio
import contextlib
import fcntl
import os
import select
from collections import deque
from collections.abc import Callable
from typing import Final

READ_BYTES: Final = 65536
"""One read: a pipe's buffer. A larger buffer is mapped and unmapped by the C library each time,
which costs more than the read of a usual message."""

LARGE_READ_BYTES: Final = 262144
"""After a read that was full: a large result takes few rounds."""

LAST_READS: Final = 16
"""How often a last look reads one pipe; what it holds comes with the first read or two."""

DATA_PIPE_BYTES: Final = 65536
"""The kernel's default; more would exhaust an unprivileged user's quota with 200 servers."""

SMALL_PIPE_BYTES: Final = 4096
"""For pipes that carry no data: one page, since an unprivileged user has 16384 in all."""


def make_pipe(*, small: bool = False) -> tuple[int, int]:
    """A pipe, close-on-exec: read end, write end.

    Raises:
        OSError: out of descriptors.
    """
    read, write = os.pipe()
    if small:
        with contextlib.suppress(OSError):
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, SMALL_PIPE_BYTES)
    return read, write


def is_readable(fd: int) -> bool:
    """Whether a read would not block, or a pidfd has exited, right now."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


class Watch:
    """Calls back whenever a descriptor can be read, until it is closed or paused."""

    __slots__ = ("_loop", "call", "fd", "on")

    def __init__(self, fd: int, call: Callable[[], None]) -> None:
        self.fd = fd
        self.on = False
        self.call = call
        self._loop = asyncio.get_running_loop()
        self.resume()

    def resume(self) -> None:
        """Call back again."""
        if not self.on:
            self.on = True
            self._loop.add_reader(self.fd, self.call)

    def pause(self) -> None:
        """Call back no more for now; the descriptor stays open."""
        if self.on:
            self.on = False
            self._loop.remove_reader(self.fd)


class HangUp:
    """Says that the other side of a socket has ended its writing, without reading anything.

    For a connection whose reading is paused: what waits in it may never be read, but that the
    peer has left must be known. An epoll descriptor of its own can be watched like any other.

    Args:
        fd: of the socket.
        call: called once.
        reading_too: whether to wait until the other side does not read any more either.

    Source: epoll_ctl(2), EPOLLRDHUP, EPOLLHUP.
    """

    def __init__(self, fd: int, call: Callable[[], None], *, reading_too: bool = False) -> None:
        self._epoll = select.epoll()
        self._epoll.register(fd, select.EPOLLHUP if reading_too else select.EPOLLRDHUP)
        self._call = call
        self._watch = Watch(self._epoll.fileno(), self._happened)

    def close(self) -> None:
        """Watch no longer. May be called twice."""
        self._watch.pause()
        self._epoll.close()

    def _happened(self) -> None:
        self.close()
        self._call()


class Source:
    """Reads a pipe or socket to its end and hands on what comes.

    Attributes:
        ended: whether the end was reached.
    """

    def __init__(
        self, fd: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.ended = False
        self._on_data = on_data
        self._on_end = on_end
        self._read_bytes = READ_BYTES
        self._watch = Watch(fd, self._ready)

    def pause(self) -> None:
        """Read no more for now, so that the other side has to wait."""
        self._watch.pause()

    def resume(self) -> None:
        """Read again."""
        if not self.ended:
            self._watch.resume()

    def redirect(self, on_data: Callable[[bytes], None]) -> None:
        """Hand what comes from now on to somebody else."""
        self._on_data = on_data

    def read_now(self) -> None:
        """Read what is there, without waiting: for a last look.

        Reads at most what a pipe holds some times over, since somebody may go on writing.
        """
        for _ in range(LAST_READS):
            if self.ended or not self._read():
                return

    def close(self) -> None:
        """Stop reading and close the descriptor. May be called twice."""
        self._watch.pause()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.ended = True

    def _ready(self) -> None:
        self._read()

    def _read(self) -> bool:
        try:
            data = os.read(self.fd, self._read_bytes)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a reset connection has ended too
        if data:
            self._read_bytes = READ_BYTES if len(data) < READ_BYTES else LARGE_READ_BYTES
            self._on_data(data)
            return True
        self.ended = True
        self._watch.pause()
        self._on_end()
        return False


class Sink:
    """Writes to a pipe or socket without ever blocking; what does not fit waits in order.

    Attributes:
        waiting_bytes: what has been accepted and not written yet.
        broken: whether the other side is gone; what is written then is dropped.
        on_drained: called when nothing waits any more.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.waiting_bytes = 0
        self.broken = False
        self.on_drained: Callable[[], None] = _nothing
        self._loop = asyncio.get_running_loop()
        self._queue: deque[memoryview] = deque()
        self.ending = False
        """Whether nothing more is accepted, and the end comes behind what waits."""
        self._empty: asyncio.Event | None = None

    def write(self, data: bytes) -> None:
        """Write now what fits, the rest when the kernel says that it can."""
        if self.broken or self.ending or self.fd < 0:
            return
        view = memoryview(data)
        if not self._queue:
            view = view[self._write(view) :]
            if not view or self._is_broken():
                return
            self._loop.add_writer(self.fd, self._ready)
        self._queue.append(view)
        self.waiting_bytes += len(view)

    async def wait_empty(self) -> None:
        """Wait until nothing waits to be written: it is written, dropped or closed."""
        if self._queue:
            self._empty = asyncio.Event()
            await self._empty.wait()

    def end(self) -> None:
        """Close once all that was accepted is written."""
        self.ending = True
        if not self._queue:
            self.close()

    def close(self) -> None:
        """Close at once and drop what waits. May be called twice."""
        if self.fd >= 0:
            self._loop.remove_writer(self.fd)
            os.close(self.fd)
            self.fd = -1
        self._emptied()

    def _is_broken(self) -> bool:
        return self.broken

    def _write(self, view: memoryview) -> int:
        try:
            return os.write(self.fd, view)
        except BlockingIOError:
            return 0
        except OSError:
            self.broken = True
            return 0

    def _ready(self) -> None:
        while self._queue and not self.broken:
            view = self._queue.popleft()
            written = self._write(view)
            self.waiting_bytes -= written
            if written < len(view) and not self.broken:
                self._queue.appendleft(view[written:])
                return
        self._loop.remove_writer(self.fd)
        self._emptied()
        if self.ending:
            self.close()
        else:
            self.on_drained()

    def _emptied(self) -> None:
        self._queue.clear()
        self.waiting_bytes = 0
        if self._empty is not None:
            self._empty.set()


def _nothing() -> None:
    """Nobody wants to know."""
