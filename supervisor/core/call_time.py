"""Decides how long one call may take: its limit from the start, extended by progress if allowed.

With `reset_on_progress` each progress gives the call its limit anew, from then on. Whatever the
progress, `max_total_timeout_s` from the start is the end; without it a call that goes on reporting
may go on for ever, which is what the operator asked for.

Instants are monotonic seconds and come in with the call.

Source: MCP 2025-11-25, lifecycle, timeouts; design section 10.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from supervisor.core.limits import CallLimits

Setting = Literal["requestTimeoutMs", "maxTotalTimeoutMs"]

REQUEST: Final[Setting] = "requestTimeoutMs"
TOTAL: Final[Setting] = "maxTotalTimeoutMs"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """The time of one call.

    Attributes:
        started_at: when the request was sent.
        deadline_at: when it is given up, as things stand.
        limits: of its server, as they were at the start.
    """

    started_at: float
    deadline_at: float
    limits: CallLimits

    @property
    def total_at(self) -> float | None:
        """The instant that no progress moves, or None: there is none."""
        total_s = self.limits.max_total_timeout_s
        return None if total_s is None else self.started_at + total_s

    @property
    def setting(self) -> Setting:
        """The key of the server's record to raise where the deadline comes too early."""
        return TOTAL if self.deadline_at == self.total_at else REQUEST

    @property
    def limit_s(self) -> float:
        """What `setting` allows, in seconds."""
        total_s = self.limits.max_total_timeout_s
        if self.setting == TOTAL and total_s is not None:
            return total_s
        return self.limits.request_timeout_s


def begin(limits: CallLimits, now: float) -> CallTime:
    """The call was sent at `now`."""
    fresh = CallTime(started_at=now, deadline_at=now, limits=limits)
    return replace(fresh, deadline_at=_capped(fresh, now + limits.request_timeout_s))


def progressed(time: CallTime, now: float) -> CallTime:
    """The server reported progress at `now`; the deadline never moves back, nor once it is over."""
    if not time.limits.reset_on_progress or now >= time.deadline_at:
        return time
    return replace(time, deadline_at=_capped(time, now + time.limits.request_timeout_s))


def remaining_s(time: CallTime, now: float) -> float:
    """Seconds that the call has left; 0 when it is over."""
    return max(0.0, time.deadline_at - now)


def _capped(time: CallTime, deadline_at: float) -> float:
    return deadline_at if time.total_at is None else min(deadline_at, time.total_at)
