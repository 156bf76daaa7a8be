"""Copies bytes between descriptors, several ways at once, without ever waiting for one of them.

Used by the shim only, so nothing is imported that costs. The client's own descriptors are not made
non-blocking: that flag belongs to the open file, which the client and others share.

Source: poll(2), pipe(7): POLLOUT promises room for one page; proc(5): /proc/self/fd reopens a FIFO.
"""

import os
import select
import stat
from _socket import MSG_DONTWAIT, socket

CHUNK_BYTES = 65536
"""A pipe's usual capacity: more is seldom there at once."""

SAFE_WRITE_BYTES = 4096
"""What a writable pipe takes without blocking, however full the rest of it is."""

STDIN, STDOUT, STDERR = 0, 1, 2

GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Sink:
    """Where bytes go, never blocking.

    Args:
        fd: the descriptor to write to.
        reopen: whether a FIFO may be given an open file of its own; else it is written page by
            page, as one of another user has to be.

    Attributes:
        fd: the descriptor to watch for room.
    """

    __slots__ = ("_chunk_bytes", "_poll", "_socket", "fd")

    def __init__(self, fd: int, *, reopen: bool = True) -> None:
        self.fd = fd
        self._chunk_bytes = CHUNK_BYTES
        self._socket: socket | None = None
        self._poll: select.poll | None = None
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode):
            self._socket = socket(fileno=os.dup(fd))
        elif not (reopen and stat.S_ISFIFO(mode) and _reopen(fd)):
            self._chunk_bytes = SAFE_WRITE_BYTES
            self._poll = select.poll()
            self._poll.register(fd, select.POLLOUT)

    def write(self, data: memoryview) -> int:
        """Write what fits; 0 when nothing does. Raises OSError when nobody reads any more."""
        try:
            if self._socket is not None:
                return self._socket.send(data, MSG_DONTWAIT)
            if self._poll is not None and not self._poll.poll(0):
                return 0
            return os.write(self.fd, data[: self._chunk_bytes])
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close it for the reader, and keep the number taken so that no socket gets it."""
        if self._socket is not None:
            self._socket.close()
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, self.fd, inheritable=False)
        os.close(null)


def _reopen(fd: int) -> bool:
    """Give `fd` an open file of its own that does not block; False where that is not possible."""
    try:
        own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # another user's pipe (EACCES), or nobody reads it (ENXIO)
    os.dup2(own, fd, inheritable=False)
    os.close(own)
    return True


class Flow:
    """One direction: at most one chunk is held, and nothing is read while it waits.

    Attributes:
        source: where bytes come from; -1 once it has ended.
        sink: where they go; None: they are kept in `kept`.
        lost: whether the sink takes nothing any more; the source is then read and dropped.
        kept: what was read, for a flow without a sink.
    """

    __slots__ = ("kept", "lost", "pending", "sink", "source", "watches_sink")

    def __init__(self, source: int, sink: "Sink | None", *, watches_sink: bool = False) -> None:
        self.source = source
        self.sink = sink
        self.watches_sink = watches_sink
        self.lost = False
        self.pending = memoryview(b"")
        self.kept = bytearray()

    @property
    def ended(self) -> bool:
        """Whether the source has ended and all of it was handed on."""
        return self.source < 0 and not self.pending

    def want(self, wanted: "dict[int, int]") -> None:
        """Add what this flow waits for."""
        if self.pending and self.sink is not None:
            wanted[self.sink.fd] = wanted.get(self.sink.fd, 0) | select.POLLOUT
        elif self.source >= 0:
            wanted[self.source] = wanted.get(self.source, 0) | select.POLLIN
        if self.watches_sink and self.sink is not None and not self.lost:
            wanted.setdefault(self.sink.fd, 0)

    def move(self, ready: "dict[int, int]") -> None:
        """Move what can be moved now."""
        if self.pending and self.sink is not None:
            if self.sink.fd in ready:
                self._flush()
        elif ready.get(self.source, 0) & (select.POLLIN | GONE):
            # room for the other direction on the same socket is nothing to read, and a read
            # would wait
            self._fill()
        if self.watches_sink and self.sink is not None and ready.get(self.sink.fd, 0) & GONE:
            self.lose()

    def put(self, data: bytes) -> None:
        """Let `data` go before all that is read from now on."""
        self.pending = memoryview(data)
        self._flush()

    def stop_reading(self) -> None:
        """Take the source for ended."""
        self.source = -1

    def lose(self) -> None:
        """Take the sink for gone; what is still read is dropped."""
        self.lost = True
        self.pending = memoryview(b"")

    def _fill(self) -> None:
        try:
            data = os.read(self.source, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # ECONNRESET, or EIO from a terminal that is gone: an end like any other
        if not data:
            self.source = -1
        elif self.sink is None:
            self.kept += data
        elif not self.lost:
            self.pending = memoryview(data)
            self._flush()

    def _flush(self) -> None:
        assert self.sink is not None  # noqa: S101 - only a flow with a sink has pending bytes
        try:
            while self.pending:
                count = self.sink.write(self.pending)
                if not count:
                    return
                self.pending = self.pending[count:]
        except OSError:
            self.lose()


class Copier:
    """Runs flows until the caller has seen enough.

    Attributes:
        flows: what is copied now; the caller adds and removes.
        signals: how many signals were caught so far.
    """

    __slots__ = ("_poll", "_wake_fd", "_watched", "flows", "signals")

    def __init__(self, wake_fd: int) -> None:
        self.flows: list[Flow] = []
        self.signals = 0
        self._wake_fd = wake_fd
        self._poll = select.poll()
        self._watched: dict[int, int] = {}

    def turn(self, limit_s: "float | None" = None) -> None:
        """Wait until something can be moved, a signal came or `limit_s` is over; move it."""
        wanted = {self._wake_fd: select.POLLIN}
        for flow in self.flows:
            flow.want(wanted)
        if wanted != self._watched:
            self._watch(wanted)
        limit_ms = None if limit_s is None else max(0.0, limit_s * 1000)
        ready = dict(self._poll.poll(limit_ms))
        for flow in self.flows:
            flow.move(ready)
        if self._wake_fd in ready:
            self.signals += len(os.read(self._wake_fd, 64))

    def _watch(self, wanted: "dict[int, int]") -> None:
        for fd in self._watched:
            if fd not in wanted:
                self._poll.unregister(fd)
        for fd, mask in wanted.items():
            if self._watched.get(fd) != mask:
                self._poll.register(fd, mask)
        self._watched = wanted
