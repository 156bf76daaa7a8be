"""The last lines of a server's stderr, made harmless, and those who follow it.

stderr is always drained. Kept are whole lines without control characters and with known secrets
masked; followers (the shim of a connected client) get the bytes as they came.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from supervisor.core.redaction import mask

TAIL_LINES: Final = 20
"""As many as a person reads in an error message."""

LINE_CHARS: Final = 400
PARTIAL_BYTES: Final = 65536
"""A line longer than this is cut; without newlines memory would grow without bound."""


def _nothing() -> None:
    """There is no log, or it has ended."""


class StderrTail:
    """Collects one server's stderr.

    Attributes:
        secrets: texts that are masked.
    """

    def __init__(self, secrets: frozenset[str]) -> None:
        self.secrets = secrets
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._partial = b""
        self._followers: list[Callable[[bytes], None]] = []
        self._end_log: Callable[[], None] = _nothing

    def feed(self, data: bytes) -> None:
        """Take what the server wrote."""
        for follower in tuple(self._followers):
            follower(data)
        *whole, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > PARTIAL_BYTES:
            whole.append(self._partial)
            self._partial = b""
        for line in whole[-TAIL_LINES:]:
            self._keep(line)

    def keep_log(self, feed: Callable[[bytes], None], end: Callable[[], None]) -> None:
        """Hand everything to a log file as well, and say when the end has come."""
        self.follow(feed)
        self._end_log = end

    def end(self) -> None:
        """Keep a last line that has no newline. May be called twice."""
        if self._partial:
            self._keep(self._partial)
            self._partial = b""
        self._end_log()
        self._end_log = _nothing

    def lines(self) -> tuple[str, ...]:
        """What is kept, oldest first."""
        return tuple(self._lines)

    def follow(self, follower: Callable[[bytes], None]) -> None:
        """Hand everything that comes from now on to `follower` as well."""
        self._followers.append(follower)

    def unfollow(self, follower: Callable[[bytes], None]) -> None:
        """Hand it nothing any more."""
        if follower in self._followers:
            self._followers.remove(follower)

    def _keep(self, line: bytes) -> None:
        text = mask(line.decode("utf-8", "replace").rstrip("\r"), self.secrets)
        harmless = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)
        if harmless.strip():
            self._lines.append(harmless[:LINE_CHARS])
