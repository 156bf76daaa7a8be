"""One HTTP/1.1 exchange over a Unix socket, written out by hand.

`http.client` brings in the email package: 30 ms, more than the budget of all of `mcpctl` leaves.
What the daemon's server sends is a small part of the protocol: a status line, headers, and a body
by length, in chunks, or up to the end of the connection. One request for each connection.

Source: RFC 9112 sections 4, 5, 6.3 and 7.1.
"""

import select
import time
from _socket import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Self

from supervisor.client.errors import GarbledAnswerError, hung_up, silent, unreachable
from supervisor.client.reach import reach

PATIENCE_S: Final = 10.0
"""How long a snapshot may take: it is made in milliseconds unless the daemon is stuck."""

FIRST_TICK_S: Final = 1.0
"""Waiting less than this is not worth a word."""

TICK_S: Final = 0.5
"""How often a longer wait is looked at: often enough for a countdown that people watch."""

_CHUNK_BYTES: Final = 65536
_MAX_LINE_BYTES: Final = 65536

OnWait = Callable[[float], None]
"""Called with the seconds waited so far, after the first second and then twice a second."""


class Answer:
    """A status, headers, and a body that is read as it is needed; a context manager.

    Owned by one thread. Every read may raise `DaemonUnreachableError` (gone or silent) or
    `GarbledAnswerError`.
    """

    def __init__(
        self, path: str, connection: socket, patience_s: float | None, on_wait: OnWait | None
    ) -> None:
        self._path = path
        self._connection = connection
        self._patience_s = patience_s
        self._on_wait = on_wait
        self._buffer = b""
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)
        try:
            self.status = self._read_status()
            self.headers = self._read_headers()
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def read(self) -> bytes:
        """The whole rest of the body."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The body in pieces as they arrive, without its framing."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            yield from self._chunks()
        elif "content-length" in self.headers:
            yield from self._exactly(self._number(self.headers["content-length"], 10))
        else:
            yield from self._until_end()

    def wait_without_limit(self) -> None:
        """From now on the body may take for ever, as a stream of events does."""
        self._patience_s = None

    def _read_status(self) -> int:
        words = self._line().split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1."):  # noqa: PLR2004 - version, status
            raise GarbledAnswerError(self._path, "it is not HTTP")
        return self._number(words[1], 10)

    def _read_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return headers

    def _chunks(self) -> Iterator[bytes]:
        while size := self._number(self._line().partition(";")[0], 16):
            yield from self._exactly(size)
            self._line()
        # trailers may follow; nothing of ours is in them, and the connection ends here

    def _exactly(self, size_bytes: int) -> Iterator[bytes]:
        while size_bytes > 0:
            if not self._buffer and not self._fill():
                raise hung_up(self._path)
            piece, self._buffer = self._buffer[:size_bytes], self._buffer[size_bytes:]
            size_bytes -= len(piece)
            yield piece

    def _until_end(self) -> Iterator[bytes]:
        while self._buffer or self._fill():
            piece, self._buffer = self._buffer, b""
            yield piece

    def _line(self) -> str:
        while b"\n" not in self._buffer:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise GarbledAnswerError(self._path, "a header line without end")
            if not self._fill():
                raise hung_up(self._path)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r").decode("latin-1")

    def _number(self, text: str, base: int) -> int:
        try:
            return int(text, base)
        except ValueError:
            raise GarbledAnswerError(self._path, "a number was expected") from None

    def _fill(self) -> bool:
        self._wait()
        try:
            more = self._connection.recv(_CHUNK_BYTES)
        except ConnectionError:
            raise hung_up(self._path) from None
        self._buffer += more
        return bool(more)

    def _wait(self) -> None:
        started_at = time.monotonic()
        tick_s = FIRST_TICK_S
        while not self._poll.poll(tick_s * 1000):
            waited_s = time.monotonic() - started_at
            if self._patience_s is not None and waited_s >= self._patience_s:
                raise silent(self._path)
            if self._on_wait is not None:
                self._on_wait(waited_s)
            tick_s = TICK_S


def ask(  # noqa: PLR0913 - what a request has, and how long its answer may take
    path: str,
    method: str,
    target: str,
    *,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
    patience_s: float | None = PATIENCE_S,
    on_wait: OnWait | None = None,
) -> Answer:
    """Send one request and read the head of its answer.

    Args:
        path: the control socket.
        method: `GET` or `POST`.
        target: path and query, quoted.
        body: a JSON document, or None.
        headers: further headers; values without line ends.
        patience_s: seconds that each part of the answer may take; None waits for ever.
        on_wait: called while waiting; what it raises ends the wait.

    Returns:
        The answer, to be closed by the caller.

    Raises:
        DaemonUnreachableError: nobody answers there.
        KernelError: the socket may not be used.
        GarbledAnswerError: what answered does not speak HTTP.
    """
    content = b"" if body is None else body.encode()
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    try:
        connection = reach(path)
    except OSError as error:
        raise unreachable(path, error) from None
    try:
        connection.sendall(head + content)
    except BlockingIOError:
        connection.close()
        raise silent(path) from None
    except ConnectionError:
        # the daemon may have answered and closed before it read all; what it said still counts
        pass
    return Answer(path, connection, patience_s, on_wait)
