"""When a connection is left in peace, and until when."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from supervisor.core.breaker import (
    PAUSE_S,
    THRESHOLD,
    Breaker,
    Paused,
    admit,
    failed,
    is_failure,
    succeeded,
)
from supervisor.core.call_errors import (
    BadAnswerError,
    CallTimedOutError,
    ChannelClosedError,
    RpcError,
    ServerGoneError,
)
from supervisor.core.errors import SupervisorError
from supervisor.core.tool_errors import ServerPausedError


def after_failures(count: int, at: float) -> Breaker:
    """So many in a row, all found out at one instant."""
    state = Breaker()
    for _ in range(count):
        state = failed(state, at)
    return state


def test_the_third_failure_in_a_row_pauses_for_a_minute() -> None:
    """A server that does not answer is not asked again and again."""
    assert admit(after_failures(2, 10.0), 10.0) is None
    state = after_failures(3, 10.0)
    assert admit(state, 30.0) == Paused(failures=3, retry_at=70.0, retry_in_s=40.0)
    assert admit(state, 69.9) is not None
    assert admit(state, 70.0) is None


def test_a_success_between_failures_resets_the_count() -> None:
    """Only failures in a row say that the connection is of no use."""
    state = succeeded(after_failures(2, 10.0))
    state = failed(failed(state, 11.0), 12.0)
    assert admit(state, 12.0) is None


def test_after_the_pause_one_failure_pauses_at_once_and_one_success_ends_it() -> None:
    """The first request after the pause tells whether the server has recovered."""
    state = after_failures(3, 10.0)
    again = failed(state, 75.0)
    assert admit(again, 75.0) == Paused(failures=4, retry_at=135.0, retry_in_s=60.0)
    assert succeeded(state) == Breaker()


def test_failures_of_requests_from_before_the_pause_do_not_prolong_it() -> None:
    """Ten calls that time out one after the other would else mean ten pauses."""
    state = failed(after_failures(3, 10.0), 40.0)
    assert admit(state, 69.9) is not None
    assert admit(state, 70.0) is None


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ServerGoneError("files", "exited with code 1"), True),
        (CallTimedOutError("files", 60.0, "requestTimeoutMs"), True),
        (BadAnswerError("files", "tools/call", "no object"), True),
        (RpcError("files", "tools/call", -32602, "no such tool"), False),
        (ChannelClosedError("files"), False),
    ],
)
def test_an_error_that_the_server_answered_is_an_answer(
    error: SupervisorError, *, counts: bool
) -> None:
    """A server that refuses nonsense politely works."""
    assert is_failure(error) is counts


def test_the_message_gives_the_time_of_the_next_try() -> None:
    """Who reads it knows whether waiting is worth it."""
    error = ServerPausedError("files", 3, 41.6, "2026-03-01T10:00:42Z")
    assert str(error) == (
        "Server 'files' is paused, since the last 3 requests in a row to it failed; the next try "
        "is possible at 2026-03-01T10:00:42Z, in 42 s."
    )


@given(st.lists(st.tuples(st.sampled_from("sf"), st.integers(0, 40)), max_size=40))
def test_whatever_happens_the_promises_hold(happenings: list[tuple[str, int]]) -> None:
    """A pause needs the failures in a row, never lasts longer than a minute, and ends by itself."""
    state, now, in_a_row = Breaker(), 0.0, 0
    for what, wait_s in happenings:
        now += wait_s
        state = succeeded(state) if what == "s" else failed(state, now)
        in_a_row = 0 if what == "s" else in_a_row + 1
        paused = admit(state, now)
        assert state.failures == in_a_row
        if paused is not None:
            assert in_a_row >= THRESHOLD
            assert 0 < paused.retry_in_s <= PAUSE_S
            assert admit(state, paused.retry_at) is None
        if what == "f" and in_a_row >= THRESHOLD:
            assert paused is not None
