"""What is kept of lines on stdout that are no JSON-RPC: how many there were, and the first few.

A banner or a log line on stdout is the classic fault of a server. It shall not stop anything, and
people shall see it.

Source: design section 9; ECMA-48 for the escape sequences that are left out.
"""

import re
from collections.abc import Iterable
from typing import Final

from supervisor.core.redaction import mask

KEPT_LINES: Final = 5
"""Enough to recognise what writes them."""

KEPT_CHARS: Final = 200

_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])"
)


class Strays:
    """The stray lines of one server process.

    Attributes:
        count: how many there were.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self.count = 0
        self._secrets = tuple(secrets)
        self._first: list[str] = []

    def add(self, line: bytes) -> None:
        """Count one line, and keep it if it is among the first."""
        self.count += 1
        if len(self._first) < KEPT_LINES:
            self._first.append(harmless(line, self._secrets))

    def first(self) -> tuple[str, ...]:
        """The first of them, printable and with known secrets masked."""
        return tuple(self._first)


def harmless(line: bytes, secrets: Iterable[str]) -> str:
    """A line of bytes for people: colours left out, control characters replaced, secrets masked."""
    text = _ESCAPES.sub("", line[: 4 * KEPT_CHARS].decode("utf-8", "replace"))
    masked = mask(text.strip(), secrets)
    shown = "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in masked)
    return shown if len(shown) <= KEPT_CHARS else shown[: KEPT_CHARS - 1] + "…"
