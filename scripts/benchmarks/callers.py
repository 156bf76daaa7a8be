"""A client of pipes, as fast as Python can be one, so that it is not the limit.

The same client stands before a server itself and before `mcpctl connect`.
"""

import os
import select
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Final, Self

from scripts.benchmarks.callees import ASKED
from scripts.benchmarks.ours import PROGRAMS, Daemon
from scripts.benchmarks.peers import PATIENCE_S, Bare
from scripts.benchmarks.surroundings import TooLateError, UnexpectedError

MCPCTL: Final = str(PROGRAMS / "mcpctl")
READ_BYTES: Final = 262144

KIB: Final = 1024
MIB: Final = 1024 * 1024
SIZES: Final = {KIB: "1 KB", MIB: "1 MB"}
"""Of the requests, and of their answers."""


def request(number: int, pad_bytes: int) -> bytes:
    """A call as one line of about that size; its id comes first, as SDKs in Python write it."""
    return b'{"jsonrpc":"2.0","id":%d,%b{"name":"echo","arguments":{"text":"%b"}}}\n' % (
        number,
        ASKED,
        b"x" * pad_bytes,
    )


class Caller:
    """Calls through the two pipes of one process.

    Attributes:
        process: the server itself, or a shim before it.
    """

    def __init__(self, process: Bare) -> None:
        self.process: Final = process
        self._last_id = 1000000  # so that all ids of a run have as many digits
        for fd in (process.stdin, process.stdout):
            os.set_blocking(fd, False)
        self._poll = select.poll()
        self._poll.register(process.stdout, select.POLLIN)
        self._room = select.poll()
        self._room.register(process.stdin, select.POLLOUT)
        self._room.register(process.stdout, select.POLLIN)

    @classmethod
    def bare(cls, argv: Sequence[str]) -> Self:
        """Stand before a server itself."""
        return cls(Bare(argv))

    @classmethod
    def through(cls, daemon: Daemon, *words: str) -> Self:
        """Stand before `mcpctl connect` with these words."""
        return cls(Bare([MCPCTL, "connect", *words], env=daemon.environ, quiet=True))

    def call_ms(self, pad_bytes: int) -> float:
        """Milliseconds from a request to the end of its answer.

        Raises:
            TooLateError, UnexpectedError: there is none, or it is an error.
        """
        self._last_id += 1
        line = request(self._last_id, pad_bytes)
        began_at = perf_counter()
        self.write(line)
        answer = self.read_line()
        taken_ms = (perf_counter() - began_at) * 1000
        if b'"result"' not in answer[:64]:
            message = f"a call was answered with {answer[:200]!r}"
            raise UnexpectedError(message)
        return taken_ms

    def calls_s(self, count: int, pad_bytes: int, in_flight: int) -> float:
        """Seconds until all of these are answered, so many of them in flight at any time.

        Raises:
            TooLateError, UnexpectedError: some are not.
        """
        first = self._last_id + 1
        self._last_id += count
        lines = [request(number, pad_bytes) for number in range(first, first + count)]
        began_at = perf_counter()
        unsent = deque([memoryview(b"".join(lines[:in_flight]))])
        sent, answered = min(in_flight, count), 0
        while answered < count:
            if unsent:
                unsent[0] = unsent[0][self._write_some(unsent[0]) :]
                if not unsent[0]:
                    unsent.popleft()
            came = self.read_some(room=bool(unsent)).count(b"\n")
            answered += came
            if came and sent < count:
                unsent.append(memoryview(b"".join(lines[sent : sent + came])))
                sent += came
        return perf_counter() - began_at

    def write(self, data: bytes) -> None:
        """Write all of it; the other side reads all of a request before it answers."""
        unsent = memoryview(data)
        while unsent := unsent[self._write_some(unsent) :]:
            self._wait(self._room)

    def read_line(self, end: bytes = b"\n") -> bytes:
        """Read to the end of a line, which is the last that comes.

        Args:
            end: what the line ends with, where others come before it.

        Raises:
            TooLateError, UnexpectedError: it does not come.
        """
        pieces = [self.read_some()]
        while not pieces[-1].endswith(end):
            pieces.append(self.read_some())
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_some(self, *, room: bool = False, end_is_good: bool = False) -> bytes:
        """Wait for bytes and read what is there.

        Args:
            room: whether to return for room to write as well, perhaps with nothing.
            end_is_good: whether nothing may come any more.

        Raises:
            TooLateError: nothing came.
            UnexpectedError: nothing will.
        """
        self._wait(self._room if room else self._poll)
        try:
            data = os.read(self.process.stdout, READ_BYTES)
        except BlockingIOError:
            return b""
        if not data and not end_is_good:
            message = "the other side of a call has left"
            raise UnexpectedError(message)
        return data

    def close(self) -> None:
        """Leave as a client does, wait for the other side's end, reap it."""
        try:
            self.process.close_stdin()
            self.process.wait_end()
        finally:
            self.process.release()

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self.process.stdin, data)
        except BlockingIOError:
            return 0

    @staticmethod
    def _wait(poll: select.poll) -> None:
        if not poll.poll(PATIENCE_S * 1000):
            message = f"a call made no progress within {PATIENCE_S:g} s"
            raise TooLateError(message)


@contextmanager
def opened(*callers: Caller) -> Iterator[tuple[Caller, ...]]:
    """Callers for the time of the block; all of them leave at its end."""
    try:
        yield callers
    finally:
        for caller in callers:
            caller.close()
