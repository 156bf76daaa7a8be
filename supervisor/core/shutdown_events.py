"""The words between the shutdown machine and its shell: stages, events, effects.

Events are what the shell has seen, effects what it has to do next. `core/shutdown.py` says which
follow from which.
"""

from dataclasses import dataclass
from enum import Enum

from supervisor.core import stages
from supervisor.core.launch import StopPolicy
from supervisor.core.report import FactName, FactState, Reason


class Stage(Enum):
    """How far a stop has got."""

    RUNNING = "running"
    CLOSING = "closing"
    TERMINATING = "terminating"
    KILLING = "killing"
    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"


# Events: what the shell has seen.


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    """Someone wants the family gone; `budget_at` is the deadline of the daemon's own stop."""

    at: float
    reason: Reason
    policy: StopPolicy
    force: bool = False
    verify: bool = False
    budget_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSeen:
    """Something was learned about a fact."""

    at: float
    fact: FactName
    state: FactState
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperHeard:
    """The relay said something: it is neither stopped nor stuck."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorLost:
    """The anchor died although nobody had retired it."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """How many members of the group can still run, and whether one is not the anchor."""

    at: float
    living: int
    beyond_anchor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The instant asked for with `WakeAt` has come."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLookDone:
    """Every source was asked once more; all it said has come as events before this one."""

    at: float


Event = StopRequested | FactSeen | HelperHeard | AnchorLost | GroupSeen | TimerFired | LastLookDone


# Effects: what the shell has to do next, in order.


@dataclass(frozen=True, slots=True)
class AskForStop:
    """Feed `StopRequested` with this reason and the instance's own policy."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class CloseStdin:
    """Close the server's standard input, whatever is still queued for it."""


@dataclass(frozen=True, slots=True)
class TellSchedule:
    """Hand the instants to the relay, or to the drain where the relay is gone."""

    schedule: stages.Schedule


@dataclass(frozen=True, slots=True)
class Nudge:
    """Wake the relay, ask for a word, let SIGTERM be due now; `retire` an idle anchor as well."""

    retire: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """Ask the relay for a word."""


@dataclass(frozen=True, slots=True)
class LookAtGroup:
    """Count the group's members and feed `GroupSeen`."""


@dataclass(frozen=True, slots=True)
class KillGroup:
    """SIGKILL to the group, whose id the unreaped anchor pins, and SIGCONT to the relay."""


@dataclass(frozen=True, slots=True)
class KillRelay:
    """SIGKILL to the relay by its pidfd: what it held comes to the daemon."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Begin to end and reap what came to the daemon from this family."""


@dataclass(frozen=True, slots=True)
class ProbeGroup:
    """Ask whether the group and every known identity are gone; feed `group_gone`."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Look through all processes for this family and keep the names.

    With `judge`, all else is known: feed `scan_clean` as well.
    """

    judge: bool


@dataclass(frozen=True, slots=True)
class LastLook:
    """Ask every source once without waiting, feed what it says, then `LastLookDone`."""


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict is in, or has changed for the better."""


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send `TimerFired` at this monotonic instant; it replaces any earlier `WakeAt`."""

    at: float


Effect = (
    AskForStop
    | CloseStdin
    | TellSchedule
    | Nudge
    | Ping
    | LookAtGroup
    | KillGroup
    | KillRelay
    | Drain
    | ProbeGroup
    | Scan
    | LastLook
    | Report
    | WakeAt
)
