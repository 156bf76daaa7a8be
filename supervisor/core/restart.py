"""Decides whether and when a server that ended is started again, in Erlang's words.

`permanent` starts it always, `transient` after an abnormal exit, `temporary` never. More than
`intensity` restarts within `period_s` are no restarts but a loop: then the server has failed,
until its configuration changes or somebody starts it by hand. Each restart waits longer than the
one before (backoff); only a stretch of uptime makes the next wait short again, so that a server
which finishes its handshake and then exits cannot come back without pause.

Time and chance come in with the call. Instants are monotonic seconds.

Source: Erlang/OTP supervisor: restart intensity and period; design section 8.
"""

from dataclasses import dataclass, replace
from typing import Final

from supervisor.core.limits import RestartPolicy
from supervisor.core.report import CleanupReport

STEADY_S: Final = 60.0
"""Uptime after which a server counts as healthy, and its next wait is the shortest again."""

JITTER: Final = 0.25
"""A wait is shortened by up to this share, so that many servers do not come back in one instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is remembered of one server in one session, or of one fingerprint.

    Attributes:
        restarts: instants of the restarts that still count.
        failures: ends in a row without a steady run between them; the exponent of the backoff.
        exits: all ends, for people.
        next_at: when the next start is allowed, or None: at once.
    """

    restarts: tuple[float, ...] = ()
    failures: int = 0
    exits: int = 0
    next_at: float | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Start it again at this instant."""

    at: float


@dataclass(frozen=True, slots=True)
class Rest:
    """Leave it as it is: its policy does not ask for a restart."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It has failed: so many restarts in so many seconds were in vain."""

    restarts: int
    period_s: float


Decision = Again | Rest | GiveUp


def is_abnormal(report: CleanupReport) -> bool:
    """Whether the end of an instance counts as a failure: anything but its own exit with code 0."""
    return report.reason != "crash" or report.exit.code != 0


def plan_restart(
    history: History,
    policy: RestartPolicy,
    *,
    abnormal: bool,
    uptime_s: float,
    now: float,
    chance: float,
) -> tuple[History, Decision]:
    """Decide after an end that nobody had asked for.

    Args:
        history: what `plan_restart` returned last, or a new `History()`.
        policy: of the server.
        abnormal: see `is_abnormal`.
        uptime_s: how long the instance had lived.
        now: this instant.
        chance: a random number from 0 up to 1, for the jitter.

    Returns:
        The new history and what to do. `next_at` bounds starts on demand as well, whatever the
        policy says: a use shall not spin a server that cannot stay up.
    """
    failures = 1 if uptime_s >= STEADY_S else history.failures + 1
    at = now + backoff_s(policy, failures, chance)
    history = replace(history, failures=failures, exits=history.exits + 1, next_at=at)
    if policy.kind == "temporary" or (policy.kind == "transient" and not abnormal):
        return history, Rest()
    recent = tuple(then for then in history.restarts if then > now - policy.period_s)
    if len(recent) >= policy.intensity:
        return replace(history, restarts=recent), GiveUp(len(recent), policy.period_s)
    return replace(history, restarts=(*recent, now)), Again(at)


def backoff_s(policy: RestartPolicy, failures: int, chance: float) -> float:
    """The wait after so many failures in a row, in seconds."""
    # beyond 2**30 every maximum is reached, and a float would overflow
    doubled_s = policy.backoff_s * 2.0 ** min(max(failures, 1) - 1, 30)
    return min(policy.backoff_max_s, doubled_s) * (1 - JITTER * chance)
