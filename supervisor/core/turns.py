"""Decides which calls to one server may run at the same time.

In parallel: any calls, if the server's record says `supportsParallelToolCalls`; calls of tools that
carry `readOnlyHint`, among each other. All others run alone. First come, first served: who may not
run waits, and whoever comes later waits behind him, even a reader while readers run. Else readers
without end would keep a writer waiting for ever.

Time plays no part here. Tickets are numbers that the caller makes, each used once.

Source: design section 10; MCP 2025-11-25, tool annotations (the hint is trusted as far as order).
"""

from dataclasses import dataclass, replace
from typing import NewType

Ticket = NewType("Ticket", int)
"""One call's place in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that runs or waits.

    Attributes:
        ticket: its own.
        read_only: whether its tool carries `readOnlyHint`.
    """

    ticket: Ticket
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The calls to one server.

    Attributes:
        parallel: whether its record says `supportsParallelToolCalls`.
        running: calls that have their turn.
        waiting: the others, in the order in which they came.
    """

    parallel: bool = False
    running: tuple[Call, ...] = ()
    waiting: tuple[Call, ...] = ()


Started = tuple[Ticket, ...]
"""The calls whose turn has come, in order."""


def arrived(turns: Turns, call: Call) -> tuple[Turns, Started]:
    """A call wants its turn."""
    return _start(replace(turns, waiting=(*turns.waiting, call)))


def left(turns: Turns, ticket: Ticket) -> tuple[Turns, Started]:
    """A call ended, or was cancelled while it waited; an unknown ticket changes nothing."""
    running = tuple(call for call in turns.running if call.ticket != ticket)
    waiting = tuple(call for call in turns.waiting if call.ticket != ticket)
    return _start(replace(turns, running=running, waiting=waiting))


def allowed(turns: Turns, *, parallel: bool) -> tuple[Turns, Started]:
    """The record changed; what runs goes on."""
    return _start(replace(turns, parallel=parallel))


def _start(turns: Turns) -> tuple[Turns, Started]:
    started = list[Ticket]()
    while turns.waiting and _may_run(turns, turns.waiting[0]):
        first, *rest = turns.waiting
        turns = replace(turns, running=(*turns.running, first), waiting=tuple(rest))
        started.append(first.ticket)
    return turns, tuple(started)


def _may_run(turns: Turns, call: Call) -> bool:
    if turns.parallel or not turns.running:
        return True
    return call.read_only and all(other.read_only for other in turns.running)
