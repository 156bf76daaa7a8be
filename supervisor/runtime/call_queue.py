"""Lets calls to one server take turns; `core/turns.py` decides whose turn it is.

The queue does not bound waiting: the caller's deadline does, and it shows how many wait.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import anyio

from supervisor.core.turns import Call, Started, Ticket, Turns, allowed, arrived, left


class CallQueue:
    """The calls to one server."""

    def __init__(self, *, parallel: bool = False) -> None:
        self._turns = Turns(parallel=parallel)
        self._tickets = count(1)
        # of those that wait; set when their turn has come
        self._doors: dict[Ticket, anyio.Event] = {}

    @property
    def running(self) -> int:
        """Calls that have their turn."""
        return len(self._turns.running)

    @property
    def waiting(self) -> int:
        """Calls that wait for theirs."""
        return len(self._turns.waiting)

    def allow_parallel(self, *, parallel: bool) -> None:
        """Apply a changed record; what runs goes on."""
        turns, started = allowed(self._turns, parallel=parallel)
        self._apply(turns, started)

    @asynccontextmanager
    async def turn(self, *, read_only: bool) -> AsyncIterator[None]:
        """Wait for the turn, and hold it.

        Args:
            read_only: whether the tool carries `readOnlyHint`.

        Cancel-safe: yes; who is cancelled while waiting leaves the queue.
        """
        ticket = Ticket(next(self._tickets))
        door = self._doors[ticket] = anyio.Event()
        try:
            self._apply(*arrived(self._turns, Call(ticket=ticket, read_only=read_only)))
            await door.wait()
            yield
        finally:
            self._doors.pop(ticket, None)
            self._apply(*left(self._turns, ticket))

    def _apply(self, turns: Turns, started: Started) -> None:
        self._turns = turns
        for ticket in started:
            self._doors[ticket].set()
