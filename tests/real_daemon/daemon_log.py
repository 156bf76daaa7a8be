"""Reads the daemon's log as it is written, and waits for what it says."""

import json
import threading
import time
from typing import IO, Any, Final

Json = dict[str, Any]

_ENDS_WITHIN_S: Final = 10.0

_SHOWN_LINES: Final = 25
_SHOWN_CHARS: Final = 240
"""What an error shows of the log; reports are long."""


class DaemonLog:
    """The lines of one daemon's standard error, read to the end by a thread of its own."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._thread: threading.Thread | None = None

    def read(self, stream: IO[bytes]) -> None:
        """Begin to read; the stream is closed at its end."""
        self._thread = threading.Thread(target=self._read, args=(stream,), name="daemon-log")
        self._thread.start()

    def join(self) -> None:
        """Wait until the last line is read: the daemon and all that held its stderr are gone."""
        if self._thread is not None:
            self._thread.join(_ENDS_WITHIN_S)
            assert not self._thread.is_alive(), "somebody holds the daemon's stderr open"

    def place(self) -> int:
        """How many lines there are now: where to begin when looking for what comes."""
        with self._news:
            return len(self._lines)

    def text(self) -> str:
        """The last lines, cut to a readable length."""
        with self._news:
            return self._shown()

    def bugs(self) -> list[str]:
        """The lines that hold a traceback of the daemon: there must be none, whatever is tested."""
        with self._news:
            return [line for line in self._lines if _is_bug(line)]

    def events(self, name: str, after: int = 0, **fields: object) -> list[Json]:
        """The lines with that event name and those fields, from line `after` on."""
        with self._news:
            return self._find((name,), after, fields)

    def wait_for(
        self, *names: str, within_s: float = 15.0, after: int = 0, **fields: object
    ) -> Json:
        """Wait for a line with one of these event names and all of these fields.

        Raises:
            TimeoutError: it did not come.
            EOFError: the daemon ended without it.
        """
        deadline_at = time.monotonic() + within_s
        with self._news:
            while True:
                found = self._find(names, after, fields)
                if found:
                    return found[0]
                if self._ended:
                    message = f"the log ended without {names} {fields}:\n{self._shown()}"
                    raise EOFError(message)
                left_s = deadline_at - time.monotonic()
                if left_s <= 0 or not self._news.wait(left_s):
                    message = f"no {names} {fields} in {within_s} s:\n{self._shown()}"
                    raise TimeoutError(message)

    def _shown(self) -> str:
        last = self._lines[-_SHOWN_LINES:]
        return "\n".join(line.rstrip()[:_SHOWN_CHARS] for line in last)

    def _find(self, names: tuple[str, ...], after: int, fields: Json) -> list[Json]:
        found = []
        for text in self._lines[after:]:
            try:
                line = json.loads(text)
            except ValueError:
                continue  # a sentence for people
            if line.get("event") in names and fields.items() <= line.items():
                found.append(line)
        return found

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                with self._news:
                    self._lines.append(line.decode(errors="replace"))
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


def _is_bug(text: str) -> bool:
    try:
        line = json.loads(text)
    except ValueError:
        return "Traceback" in text or "bug of mcp-supervisord" in text
    return "exception" in line  # a report may quote a server's traceback; that is no bug of ours
