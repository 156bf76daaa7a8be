"""Which calls to one server run at the same time, and in which order the others follow."""

import hypothesis.strategies as st
from hypothesis import given

from supervisor.core.turns import Call, Ticket, Turns, allowed, arrived, left

READ, WRITE = True, False


def queue(*kinds: bool, parallel: bool = False) -> Turns:
    """Calls 0, 1, 2 ... that arrived in this order."""
    turns = Turns(parallel=parallel)
    for number, read_only in enumerate(kinds):
        turns, _ = arrived(turns, Call(ticket=Ticket(number), read_only=read_only))
    return turns


def running(turns: Turns) -> list[int]:
    """Whose turn it is."""
    return [call.ticket for call in turns.running]


def test_calls_run_one_after_another() -> None:
    """A server that does not say otherwise may not be made for more."""
    turns = queue(WRITE, WRITE, WRITE)
    assert running(turns) == [0]
    turns, started = left(turns, Ticket(0))
    assert (running(turns), started) == ([1], (1,))


def test_a_record_that_allows_parallel_calls_lets_all_run() -> None:
    """`supportsParallelToolCalls` is the operator's word."""
    assert running(queue(WRITE, READ, WRITE, parallel=True)) == [0, 1, 2]


def test_readers_run_together_and_writers_alone() -> None:
    """`readOnlyHint` on all involved tools."""
    turns = queue(READ, READ, WRITE)
    assert running(turns) == [0, 1]
    turns, _ = left(turns, Ticket(0))
    assert running(turns) == [1]
    turns, _ = left(turns, Ticket(1))
    assert running(turns) == [2]
    assert running(queue(WRITE, READ)) == [0]


def test_a_reader_does_not_overtake_a_writer_that_waits() -> None:
    """Readers without end would keep it waiting for ever."""
    turns = queue(READ, WRITE, READ, READ)
    assert running(turns) == [0]
    turns, _ = left(turns, Ticket(0))
    assert running(turns) == [1]
    turns, started = left(turns, Ticket(1))
    assert started == (2, 3)


def test_a_writer_that_gives_up_lets_the_readers_behind_it_in() -> None:
    """Its caller cancelled; nobody else has a reason to wait."""
    turns, started = left(queue(READ, WRITE, READ), Ticket(1))
    assert started == (2,)
    assert running(turns) == [0, 2]


def test_a_changed_record_applies_to_those_who_wait() -> None:
    """And takes no turn away."""
    turns, started = allowed(queue(WRITE, WRITE, WRITE), parallel=True)
    assert started == (1, 2)
    turns, _ = allowed(turns, parallel=False)
    assert running(turns) == [0, 1, 2]


@given(
    st.booleans(),
    st.lists(st.one_of(st.booleans(), st.integers(0, 30)), max_size=40),
)
def test_whatever_happens_the_promises_hold(parallel: bool, happenings: list[bool | int]) -> None:
    """Writers are alone, the order is that of arrival, and nobody waits for an idle server."""
    turns, arrivals, begun = Turns(parallel=parallel), list[Ticket](), list[Ticket]()
    gone = set[Ticket]()
    for happening in happenings:
        if isinstance(happening, bool):
            ticket = Ticket(len(arrivals))
            arrivals.append(ticket)
            turns, started = arrived(turns, Call(ticket=ticket, read_only=happening))
        else:
            gone.add(Ticket(happening))
            turns, started = left(turns, Ticket(happening))
        begun += started
        if not parallel and len(turns.running) > 1:
            assert all(call.read_only for call in turns.running)
        assert turns.running or not turns.waiting
        assert begun == sorted(begun)
    while turns.running:
        turns, started = left(turns, turns.running[0].ticket)
        begun += started
    assert not turns.waiting
    assert set(begun) >= set(arrivals) - gone
