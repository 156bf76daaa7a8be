"""Decides when a connection is left in peace: after `THRESHOLD` failures in a row, for `PAUSE_S`.

A failure is a request that got no answer: the transport broke, or the answer was not there in time.
Not a failure: an error that the server answered, a result with `isError`, the caller's own
cancellation, a refusal by this breaker.

After the pause requests flow again, all of them. But the count stays until one succeeds, so that a
single further failure pauses at once. A new connection starts with a new `Breaker()`.

Instants are monotonic seconds and come in with the call.

Source: design section 10; the values are OpenClaw's.
"""

from dataclasses import dataclass, replace
from typing import Final

from supervisor.core.call_errors import CallError, ChannelClosedError, RpcError
from supervisor.core.errors import SupervisorError

THRESHOLD: Final = 3
PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What is remembered of one connection.

    Attributes:
        failures: in a row, since the last success.
        until_at: end of the pause, or None: no pause was needed since the last success.
    """

    failures: int = 0
    until_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """No request is sent now.

    Attributes:
        failures: in a row.
        retry_at: when requests flow again.
        retry_in_s: seconds until then.
    """

    failures: int
    retry_at: float
    retry_in_s: float


def is_failure(error: SupervisorError) -> bool:
    """Whether a request that ended so got no answer; an error that the server gave is one."""
    return isinstance(error, CallError) and not isinstance(error, RpcError | ChannelClosedError)


def admit(breaker: Breaker, now: float) -> Paused | None:
    """Whether a request may be sent at `now`: None, or why not and when."""
    if breaker.until_at is None or now >= breaker.until_at:
        return None
    return Paused(
        failures=breaker.failures,
        retry_at=breaker.until_at,
        retry_in_s=breaker.until_at - now,
    )


def succeeded(breaker: Breaker) -> Breaker:
    """The server answered, with a result or an error of its own.

    Also the late answer to a request from before the pause ends it: the server is well.
    """
    return breaker if breaker == _CLOSED else _CLOSED


def failed(breaker: Breaker, now: float) -> Breaker:
    """A request got no answer, as was found out at `now`.

    What was in flight when the pause began and fails in it does not make it longer: it is old news.
    """
    failures = breaker.failures + 1
    if failures < THRESHOLD or admit(breaker, now) is not None:
        return replace(breaker, failures=failures)
    return Breaker(failures=failures, until_at=now + PAUSE_S)


_CLOSED: Final = Breaker()
