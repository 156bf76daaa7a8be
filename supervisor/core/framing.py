"""Cuts the bytes of a byte channel into lines.

A message is one line: JSON-RPC over stdio ends each with a newline and has none inside. This module
knows lines and nothing of JSON. Time is linear in the bytes for any chunking, since each byte is
searched once and copied a fixed number of times; memory is bounded by the line limit and one
chunk. CRLF, blank lines and a byte order mark at the start are tolerated, because servers on the
market send them.

Sizes are bytes, without the line's ending.

Source: design section 9; MCP 2025-11-25, transports, stdio.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

KEPT_BYTES: Final = 4096
"""What is kept of each end of a line that is too long: the id of its message stands there."""

ENDLESS_FACTOR: Final = 4
"""How many times the limit an unfinished line may reach before nobody believes in its end."""

_SMALL_BYTES: Final = 4096
"""Chunks below this are collected, so that a line of single bytes costs bytes and not objects."""

_COLLECTED_BYTES: Final = 65536
"""How much is collected before it counts as one chunk: the size of a pipe's buffer."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_CARRIAGE_RETURN: Final = ord("\r")
_HEAD_BYTES: Final = KEPT_BYTES + len(_BYTE_ORDER_MARK)

Line: TypeAlias = bytes
"""One line that is not blank, without its ending; not necessarily JSON, nor UTF-8."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """What is left of a line over the limit.

    Attributes:
        head: its first 4 KiB.
        tail: its last 4 KiB; the two overlap where the limit is small.
        length: of the whole line, in bytes.
    """

    head: bytes
    tail: bytes
    length: int


class LineSplitter:
    """Bytes in, lines out; one for each direction of a byte channel.

    Args:
        max_line_bytes: the longest line that is delivered whole.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._limit = max_line_bytes
        self._at_start = True
        self._chunks: list[bytes] = []
        self._small = bytearray()
        self._length = 0
        self._head: bytes | None = None
        """The head of a line that is over the limit; None while the line fits."""
        self._tail = bytearray()

    def limit(self, max_line_bytes: int) -> None:
        """Take another limit from the next line on."""
        self._limit = max_line_bytes

    def feed(self, data: bytes) -> list[Line | TooLong]:
        """Take what was read and return the lines that it completes, in order."""
        lines: list[Line | TooLong] = []
        if self._length:
            first, newline, data = data.partition(b"\n")
            self._keep(first)
            if not newline:
                return lines
            self._complete(lines)
        at = 0
        # not `split`: it looks at each byte itself, while `find` leaves that to memchr
        while (end := data.find(b"\n", at)) >= 0:
            line, at = data[at:end], end + 1
            if self._at_start or len(line) > self._limit:
                self._keep(line)
                self._complete(lines)
            elif line and not line.isspace():
                lines.append(line[:-1] if line[-1] == _CARRIAGE_RETURN else line)
        if at < len(data):
            self._keep(data[at:])
        return lines

    def end(self) -> list[Line | TooLong]:
        """Return the last line, where the stream ended without a newline; nothing is kept."""
        lines: list[Line | TooLong] = []
        self._complete(lines)
        return lines

    @property
    def endless(self) -> bool:
        """Whether the unfinished line is over four times the limit."""
        return self._length > ENDLESS_FACTOR * self._limit

    @staticmethod
    def is_utf8(line: bytes) -> bool:
        """Whether `line` is UTF-8; checked line by line, so that one bad byte spoils one line."""
        if line.isascii():
            return True
        try:
            line.decode()
        except UnicodeDecodeError:
            return False
        return True

    def _keep(self, data: bytes) -> None:
        self._length += len(data)
        if self._head is not None:
            if len(self._head) < _HEAD_BYTES:  # only where the limit itself is smaller
                self._head += data[: _HEAD_BYTES - len(self._head)]
            self._keep_end(data)
            return
        if len(data) < _SMALL_BYTES:
            self._small += data
            if len(self._small) >= _COLLECTED_BYTES:
                self._flush()
        else:
            self._flush()
            self._chunks.append(data)
        # The slack is for a carriage return and a byte order mark, which do not count.
        if self._length > self._limit + 1 + len(_BYTE_ORDER_MARK):
            line = self._take()
            self._head = line[:_HEAD_BYTES]
            self._keep_end(line)

    def _keep_end(self, data: bytes) -> None:
        self._tail += data[-KEPT_BYTES - 1 :]
        if len(self._tail) > _COLLECTED_BYTES:
            del self._tail[: -KEPT_BYTES - 1]

    def _flush(self) -> None:
        if self._small:
            self._chunks.append(bytes(self._small))
            self._small.clear()

    def _take(self) -> bytes:
        """Hand over all that was kept of a line, joined once."""
        self._flush()
        chunks, self._chunks = self._chunks, []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _complete(self, lines: list[Line | TooLong]) -> None:
        """End the line that is kept and add it, unless it is blank."""
        line, length, head = self._take(), self._length, self._head
        tail = bytes(self._tail)
        self._length, self._head = 0, None
        self._tail.clear()
        mark = len(_BYTE_ORDER_MARK)
        if self._at_start and (line if head is None else head).startswith(_BYTE_ORDER_MARK):
            line, head, length = line[mark:], None if head is None else head[mark:], length - mark
        self._at_start = False
        if head is not None:
            if tail.endswith(b"\r"):
                tail, length = tail[:-1], length - 1
        else:
            line = line.removesuffix(b"\r")
            if len(line) <= self._limit:
                if line and not line.isspace():
                    lines.append(line)
                return
            head, tail, length = line, line, len(line)
        kept = min(KEPT_BYTES, length)
        lines.append(TooLong(head[:kept], tail[-kept:], length))
