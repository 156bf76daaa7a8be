"""Makes lines for a log out of what a server writes to stderr: whole, harmless, without secrets.

Source: design section 9.
"""

from collections.abc import Iterator
from typing import Final

from supervisor.telemetry.masking import mask_text

LINE_BYTES: Final = 16384
"""A longer line is cut into several; without newlines memory would grow without bound."""

_CONTINUATION: Final = 0x80
_CONTINUATION_BITS: Final = 0xC0


class LineMaker:
    """Cuts one server's stderr into lines.

    Args:
        secrets: what must not be shown; a long line is not cut inside one of them.
    """

    def __init__(self, secrets: frozenset[str]) -> None:
        self._secrets = tuple(secret.encode("utf-8", "replace") for secret in secrets if secret)
        self._partial = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that `data` completes, without their newlines."""
        *whole, partial = (self._partial + data).split(b"\n")
        self._partial = b""
        for line in whole:
            *parts, last = self._cut(line)
            yield from map(_harmless, parts)
            yield _harmless(last)
        *parts, self._partial = self._cut(partial)
        yield from map(_harmless, parts)

    def end(self) -> Iterator[str]:
        """What is left without a newline."""
        partial, self._partial = self._partial, b""
        if partial:
            yield _harmless(partial)

    def _cut(self, line: bytes) -> Iterator[bytes]:
        start = 0
        while len(line) - start > LINE_BYTES + self._longest:
            end = self._place(line, start, start + LINE_BYTES)
            yield line[start:end]
            start = end
        yield line[start:]

    @property
    def _longest(self) -> int:
        return max(map(len, self._secrets), default=0)

    def _place(self, line: bytes, start: int, wanted: int) -> int:
        """Where to cut: not inside a secret that is shorter than a line, nor in a character."""
        place = wanted
        while (begins := self._secret_over(line, place)) is not None:
            place = begins
        while place > start and line[place] & _CONTINUATION_BITS == _CONTINUATION:
            place -= 1
        return place if place > start else wanted

    def _secret_over(self, line: bytes, place: int) -> int | None:
        """Where a secret begins that goes on over `place`."""
        for secret in self._secrets:
            found = line.find(secret, max(0, place - len(secret) + 1), place + len(secret) - 1)
            if found >= 0:
                return found
        return None


def _harmless(line: bytes) -> str:
    text = mask_text(line.decode("utf-8", "replace").rstrip("\r"))
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)
