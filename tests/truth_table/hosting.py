"""Drives `custody_host.py` from a test, and breaks its helpers."""

import itertools
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from process_table import kill_pinned, open_pidfd

HERE: Final = Path(__file__).parent
ANSWER_WITHIN_S: Final = 30.0

SPANS: Final = {"term_after_s": 0.2, "kill_after_s": 0.5, "deadline_s": 1.5}
"""The stop of every cell: short, but longer than what a busy machine may delay a process. As in the
default policy, a quarter of a second is left at the end where a helper hangs: it is given up
half-way from SIGKILL to the deadline, and forced out 0.25 s later."""


class Host:
    """One process that owns families; killed at the end if it is still there."""

    def __init__(self, records: Path, mode: str, prefix: tuple[str, ...] = ()) -> None:
        program = [*prefix, sys.executable, str(HERE / "custody_host.py"), str(records), mode]
        self._process = subprocess.Popen(  # noqa: S603 - the process under test
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._tags = itertools.count()
        self._rest = b""
        self.namespaced: Final = bool(prefix)
        self.verdicts: dict[str, dict[str, Any]] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self.ready = self._read_until(lambda body: "ready" in body)
        self.pid: Final[int] = self.ready["ready"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def outside(self, pid: int) -> int:
        """The pid of a process of the host as this test sees it; 0 when there is none any more."""
        if not self.namespaced:
            return pid
        namespace = _namespace(self._process.pid, "pid_for_children")
        numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        here = (n for n in numbers if pids_of(n)[1:] == [pid])
        return next((n for n in here if _namespace(n, "pid") == namespace), 0)

    def close(self) -> None:
        """End the host by the end of its stdin; wait for it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def kill(self) -> None:
        """SIGKILL, as a daemon that dies."""
        self._process.kill()
        self._process.wait()

    def ask(self, **command: object) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        return self.answer(self.send(**command))

    def send(self, **command: object) -> int:
        """Send a command; `answer` waits for what comes back."""
        tag = next(self._tags)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"tag": tag, **command}).encode() + b"\n")
        return tag

    def answer(self, tag: int) -> dict[str, Any]:
        """Wait for the answer to one command."""
        if tag not in self._answers:
            self._read_until(lambda body: body.get("tag") == tag)
        return self._answers.pop(tag)

    def verdict(self, instance: str) -> dict[str, Any]:
        """Wait for a verdict that was not asked for."""
        if instance not in self.verdicts:
            self._read_until(lambda body: body.get("verdict", {}).get("instance") == instance)
        return self.verdicts.pop(instance)

    def _read_until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline_at = time.monotonic() + ANSWER_WITHIN_S
        while True:
            body = self._read_line(deadline_at)
            if "tag" in body:
                self._answers[body["tag"]] = body
            if "verdict" in body:
                self.verdicts[body["verdict"]["instance"]] = body["verdict"]
            if wanted(body):
                return body

    def _read_line(self, deadline_at: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left_s = max(0.0, deadline_at - time.monotonic())
            if not select.select([fd], [], [], left_s)[0]:
                message = f"no answer within {ANSWER_WITHIN_S} s"
                raise TimeoutError(message)
            chunk = os.read(fd, 65536)
            if not chunk:
                message = "the host has died"
                raise EOFError(message)
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Hang:
    """Holds a process deaf, see `hang.py`, until it is gone or the test ends."""

    def __init__(self, pid: int) -> None:
        self._tracer = subprocess.Popen(  # noqa: S603 - a tool of this test
            [sys.executable, "-S", "-E", str(HERE / "hang.py"), str(pid)], stdout=subprocess.PIPE
        )
        assert self._tracer.stdout is not None
        said = self._tracer.stdout.readline()
        self.refused = said == b"refused\n"
        """Whether this machine does not let us; a process that is gone cannot hang either."""

    def close(self) -> None:
        """Let go of what still lives."""
        self._tracer.kill()
        self._tracer.wait()
        assert self._tracer.stdout is not None
        self._tracer.stdout.close()


def kill(pid: int) -> None:
    """SIGKILL to one process of the test's host, by pidfd; one that is gone already may be."""
    try:
        pidfd = open_pidfd(pid)
    except (ProcessLookupError, OSError):
        return
    try:
        kill_pinned(pidfd)
    finally:
        os.close(pidfd)


def _namespace(pid: int, kind: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return ""


def pids_of(pid: int) -> list[int]:
    """The pids of a process in our namespace and those below, outermost first, proc(5) NSpid."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return []
    line = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return [int(number) for number in line.split()[1:]]
