"""The instants of a stop: one table that relay, anchor and daemon share.

No import at all: every helper process loads this file. Instants are seconds on CLOCK_MONOTONIC,
which all processes of a machine read alike, so an instant can be handed from one to another.

The deadline never moves once a schedule exists. Stages may be pulled forward, never back.
"""

CLOSE = 0
"""Stdin is closed; the server may leave by itself."""

TERM = 1
"""SIGTERM went to the group and to what escaped from it."""

KILL = 2
"""SIGKILL likewise."""

OVER = 3
"""The deadline has passed. Custody goes on, but the verdict is due."""

LAST_WORD_S = 0.12
"""How long before the deadline the relay names what is left and the daemon looks for it: a scan
of /proc takes 10 to 50 ms on a machine with hundreds of processes."""

RETRY_S = 0.005
"""How soon signals are tried again after SIGKILL is due: a process that forks faster than it is
found needs many tries. Only while something is left, and only until the deadline."""

CUSTODY_RETRY_S = 0.25
"""The same after the deadline: what could not be ended is still tried, at leisure."""


class Schedule:
    """The absolute instants of one stop, in monotonic seconds."""

    __slots__ = ("deadline_at", "kill_at", "requested_at", "term_at")

    def __init__(
        self, requested_at: float, term_at: float, kill_at: float, deadline_at: float
    ) -> None:
        self.requested_at = requested_at
        self.term_at = term_at
        self.kill_at = kill_at
        self.deadline_at = deadline_at

    def instants(self) -> "tuple[float, float, float, float]":
        """The four instants in order."""
        return self.requested_at, self.term_at, self.kill_at, self.deadline_at


def plan(
    requested_at: float, term_after_s: float, kill_after_s: float, deadline_s: float
) -> Schedule:
    """The schedule of a stop that was first requested at `requested_at`."""
    return Schedule(
        requested_at,
        requested_at + term_after_s,
        requested_at + kill_after_s,
        requested_at + deadline_s,
    )


def stage_at(schedule: Schedule, now: float) -> int:
    """The stage that is due at `now`: CLOSE, TERM, KILL or OVER."""
    if now >= schedule.deadline_at:
        return OVER
    if now >= schedule.kill_at:
        return KILL
    if now >= schedule.term_at:
        return TERM
    return CLOSE


def next_instant(schedule: Schedule, now: float) -> "float | None":
    """When the next stage is due, or None after the deadline."""
    for at in (schedule.term_at, schedule.kill_at, schedule.deadline_at):
        if now < at:
            return at
    return None


def pull_forward(schedule: Schedule, now: float, stage: int) -> Schedule:
    """Let `stage` (TERM or KILL) be due at `now` if it is not yet; the deadline stays."""
    term_at = min(schedule.term_at, now)
    kill_at = min(schedule.kill_at, now) if stage == KILL else schedule.kill_at
    return Schedule(schedule.requested_at, term_at, kill_at, schedule.deadline_at)


def nearer(schedule: Schedule, deadline_at: float) -> Schedule:
    """The schedule squeezed under an earlier deadline, its stages in the same proportion.

    Only the daemon's own shutdown budget may ask for that. Stages that are past stay past.
    """
    if deadline_at >= schedule.deadline_at:
        return schedule
    whole_s = schedule.deadline_at - schedule.requested_at
    left_s = max(0.0, deadline_at - schedule.requested_at)
    share = left_s / whole_s if whole_s > 0 else 0.0
    return Schedule(
        schedule.requested_at,
        schedule.requested_at + (schedule.term_at - schedule.requested_at) * share,
        schedule.requested_at + (schedule.kill_at - schedule.requested_at) * share,
        deadline_at,
    )


def silent_at(schedule: Schedule) -> float:
    """When a helper that has said nothing is no longer waited for: half-way from SIGKILL on."""
    return schedule.kill_at + (schedule.deadline_at - schedule.kill_at) / 2


def last_word_at(schedule: Schedule) -> float:
    """When what is left is named, so that the judgement at the deadline has the names."""
    room_s = (schedule.deadline_at - schedule.kill_at) / 2
    return schedule.deadline_at - min(LAST_WORD_S, room_s)


def pause_s(schedule: Schedule, now: float) -> float:
    """Seconds until the relay has something to do that no signal announces: a stage, or a retry."""
    if now >= schedule.deadline_at:
        return CUSTODY_RETRY_S
    if now >= schedule.kill_at:
        return RETRY_S
    until = schedule.term_at if now < schedule.term_at else schedule.kill_at
    return max(0.0, until - now)
