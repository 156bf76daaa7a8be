"""Keeps the daemon's two sockets where clients look for them.

A cleaner of temporary files may remove them, or somebody the whole directory. What is gone is
made again with one log line; what stands in its place is left alone and reported once.
"""

from collections.abc import Mapping
from typing import Final

import anyio

from supervisor.core.errors import KernelError
from supervisor.daemon.ports import Listen
from supervisor.linux.unix_socket import BoundSocket, bind_private, ensure_private_dir
from supervisor.telemetry.events import EventLog

LOOK_EVERY_S: Final = 5.0
"""Two lstat calls: too cheap to measure, and soon enough for a person who wonders."""


class Sockets:
    """The sockets of one runtime directory, by path."""

    def __init__(self, runtime_dir: str, group: int | None, events: EventLog) -> None:
        self._runtime_dir = runtime_dir
        self._group = group
        self._events = events
        self._bound: dict[str, BoundSocket] = {}
        self._old: list[BoundSocket] = []
        self._lost: dict[str, str] = {}  # path -> the sentence that was logged

    def bind(self, path: str) -> BoundSocket:
        """Bind at `path`, with one log line when a stale socket had to go.

        Raises:
            KernelError: see `bind_private`.
        """
        bound = bind_private(path, mode=0o600 if self._group is None else 0o660, group=self._group)
        if bound.replaced:
            self._events.record("stale_socket_replaced", path=path)
        self._bound[path] = bound
        return bound

    async def keep_in_place(self, listeners: Mapping[str, Listen], every_s: float) -> None:
        """Look after the sockets until cancelled.

        Args:
            listeners: for each path, who takes a socket that was made again.
            every_s: seconds between two looks.
        """
        while True:
            await anyio.sleep(every_s)
            for path, listen in listeners.items():
                if not self._bound[path].is_in_place():
                    await self._restore(path, listen)

    def remove(self) -> None:
        """Close all sockets and remove the files that are still theirs."""
        for bound in (*self._bound.values(), *self._old):
            bound.remove()

    async def _restore(self, path: str, listen: Listen) -> None:
        before = self._bound[path]
        try:
            ensure_private_dir(self._runtime_dir, group=self._group)
            restored = self.bind(path)
        except KernelError as error:
            if self._lost.get(path) != str(error):  # once, not every few seconds
                self._lost[path] = str(error)
                self._events.record("socket_lost", level="error", path=path, reason=str(error))
            return
        self._lost.pop(path, None)
        # its clients go on; only its name is gone
        self._old.append(before)
        await listen(restored.socket)
        self._events.record("socket_restored", level="warning", path=path)
