"""The daemon's log while it is written: JSON lines through a FIFO, kept in memory."""

import fcntl
import json
import os
import select
from pathlib import Path
from typing import Any, Final

from scripts.systemd_trial.allowed import COMMAND_S, TrialError

PIPE_BYTES: Final = 1 << 20
"""The whole log of a trial is some 50 KiB: the daemon never waits for us to read it."""


class DaemonLog:
    """Reads what any run of the daemon writes into the FIFO that it makes at `path`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # both ends, so that the pipe outlives a daemon's restart
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._heard = b""
        self._lines = list[dict[str, Any]]()

    def close(self) -> None:
        """Give the FIFO up."""
        os.close(self._fd)

    def place(self) -> int:
        """How many lines there are by now; what comes later is after this place."""
        while self._read(within_s=0):
            pass
        return len(self._lines)

    def wait_for(self, event: str, *, after: int, count: int = 1) -> list[dict[str, Any]]:
        """The first `count` lines of that event after a place.

        Raises:
            TrialError: the log fell silent before them.
        """
        while True:
            found = [line for line in self._lines[after:] if line.get("event") == event]
            if len(found) >= count:
                return found[:count]
            if not self._read(COMMAND_S):
                message = f"no {event} in the daemon's log, which was silent for {COMMAND_S:g} s"
                raise TrialError(message)

    def tail(self) -> list[str]:
        """The last lines."""
        self.place()
        return [json.dumps(line) for line in self._lines[-20:]]

    def _read(self, within_s: float) -> bool:
        """Take what has come; whether there was anything."""
        if not select.select([self._fd], [], [], within_s)[0]:
            return False
        *whole, self._heard = (self._heard + os.read(self._fd, PIPE_BYTES)).split(b"\n")
        self._lines += [_parsed(raw) for raw in whole]
        return True


def _parsed(raw: bytes) -> dict[str, Any]:
    if not raw.startswith(b"{"):
        return {"event": raw.decode("utf-8", "replace")}  # a sentence before the log began
    line: dict[str, Any] = json.loads(raw)
    return line
