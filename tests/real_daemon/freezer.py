"""Freezes one process so that nobody can end it, and lets it go again.

Only the freezer of cgroup v1 does that: what cgroup v2 has frozen still dies of SIGKILL.

Source: Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst.
"""

import os
import select
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.005
_WITHIN_S: Final = 10.0


@lru_cache(maxsize=1)
def freezer_mount() -> Path | None:
    """Where this user can make freezers, or None."""
    for line in Path("/proc/self/mounts").read_text("utf-8").splitlines():
        _, mount, kind, options = line.split()[:4]
        if kind == "cgroup" and "freezer" in options.split(",") and os.access(mount, os.W_OK):
            return Path(mount)
    return None


class Freezer:
    """A cgroup that is frozen or not."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def freeze(self, pid: int) -> None:
        """Put a process in, and wait until it cannot move."""
        (self._directory / "cgroup.procs").write_text(f"{pid}\n", "ascii")
        self._become("FROZEN")

    def thaw(self) -> None:
        """Let it go on: a SIGKILL that was sent meanwhile ends it."""
        self._become("THAWED")

    def _become(self, state: str) -> None:
        file = self._directory / "freezer.state"
        file.write_text(state, "ascii")
        # no descriptor announces the state
        for _ in range(int(_WITHIN_S / _POLL_S)):
            if file.read_text("ascii").strip() == state:
                return
            select.select([], [], [], _POLL_S)
        message = f"{self._directory} did not become {state}"
        raise TimeoutError(message)


@contextmanager
def freezing() -> Iterator[Freezer]:
    """A freezer that is thawed and removed at the end, whatever happens."""
    mount = freezer_mount()
    assert mount is not None
    directory = mount / f"mcp-freeze-{uuid.uuid4().hex[:12]}"
    directory.mkdir()
    freezer = Freezer(directory)
    try:
        yield freezer
    finally:
        freezer.thaw()
        # what is in it goes back, as a cgroup with members cannot be removed
        for pid in (directory / "cgroup.procs").read_text("ascii").split():
            (mount / "cgroup.procs").write_text(f"{pid}\n", "ascii")
        directory.rmdir()
