"""Brings the stderr of the server that serves a client to that client, whichever server it is.

A client of a named session is served by one process after another; its shim has one connection
for stderr. Both of its connections come from the same process, which is how they are matched.
"""

from collections import defaultdict
from collections.abc import Callable

from supervisor.core.ids import InstanceId
from supervisor.process.stderr_tail import StderrTail

_Whose = tuple[int, InstanceId]
"""A process of clients in another pid namespace is 0 to us, so the instance counts as well."""


class StderrTap:
    """One connection that wants the stderr of whatever serves its client."""

    def __init__(self, write: Callable[[bytes], None], tail: StderrTail) -> None:
        self._write = write
        self._tail = tail
        tail.follow(write)

    def move(self, tail: StderrTail) -> None:
        """Follow another server from now on."""
        if tail is not self._tail:
            self._tail.unfollow(self._write)
            self._tail = tail
            tail.follow(self._write)

    def close(self) -> None:
        """Follow no more."""
        self._tail.unfollow(self._write)


class StderrTaps:
    """The open ones, by the process that has opened them and the instance that it was told."""

    def __init__(self) -> None:
        self._taps: dict[_Whose, list[StderrTap]] = defaultdict(list)

    def open(self, whose: _Whose, write: Callable[[bytes], None], tail: StderrTail) -> StderrTap:
        """Begin to follow."""
        tap = StderrTap(write, tail)
        self._taps[whose].append(tap)
        return tap

    def move(self, whose: _Whose, tail: StderrTail) -> None:
        """The client of this process is served by another server."""
        for tap in self._taps.get(whose, ()):
            tap.move(tail)

    def close(self, whose: _Whose, tap: StderrTap) -> None:
        """The connection has ended."""
        tap.close()
        self._taps[whose].remove(tap)
        if not self._taps[whose]:
            del self._taps[whose]
