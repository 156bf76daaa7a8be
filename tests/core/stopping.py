"""Drives the shutdown machine in tests: events by short names, effects as plain values."""

from collections.abc import Iterable
from typing import Final

from supervisor.core.launch import StopPolicy
from supervisor.core.report import FactName, FactState, Reason
from supervisor.core.shutdown import Shutdown, step
from supervisor.core.shutdown_events import (
    CloseStdin,
    Effect,
    Event,
    FactSeen,
    GroupSeen,
    HelperHeard,
    LastLookDone,
    StopRequested,
    TellSchedule,
    TimerFired,
    WakeAt,
)

POLICY: Final = StopPolicy(deadline_s=5.0, term_after_s=2.0, kill_after_s=4.0)
"""The default: SIGTERM after 2 s, SIGKILL after 4 s, the verdict after 5 s."""

BY_THE_RELAY: Final[tuple[FactName, ...]] = (
    "server_exited",
    "stdout_eof",
    "stderr_eof",
    "lineage_eof",
    "closing_receipt",
    "anchor_exited",
    "descendants_gone",
    "control_closed",
    "relay_exited",
)
"""What is seen, in this order, when a relay ends its family and leaves."""

DATA_PIPES: Final[tuple[FactName, ...]] = ("stdout_eof", "stderr_eof", "lineage_eof")
RELAY_GONE: Final[tuple[FactName, ...]] = ("control_closed", "relay_exited")

PROBED: Final[tuple[FactName, ...]] = ("group_gone",)


def asked(
    at: float = 0.0,
    *,
    reason: Reason = "stop",
    policy: StopPolicy = POLICY,
    force: bool = False,
    verify: bool = False,
    budget_at: float | None = None,
) -> StopRequested:
    """Somebody asks for a stop."""
    return StopRequested(
        at=at, reason=reason, policy=policy, force=force, verify=verify, budget_at=budget_at
    )


def seen(at: float, *facts: FactName, state: FactState = "confirmed") -> list[Event]:
    """The kernel or a receipt says these facts, one after the other."""
    return [FactSeen(at=at, fact=fact, state=state, evidence="seen") for fact in facts]


def heard(at: float) -> HelperHeard:
    """The relay says something."""
    return HelperHeard(at=at)


def fired(at: float) -> TimerFired:
    """The timer fires."""
    return TimerFired(at=at)


def group(at: float, living: int, beyond_anchor: int) -> GroupSeen:
    """The group was counted."""
    return GroupSeen(at=at, living=living, beyond_anchor=beyond_anchor)


def looked(at: float) -> LastLookDone:
    """Every source was asked once more."""
    return LastLookDone(at=at)


def run(*events: Event | Iterable[Event], state: Shutdown | None = None) -> Shutdown:
    """Feed events to a new machine, or to `state`; return what it became."""
    return traced(*events, state=state)[0]


def traced(
    *events: Event | Iterable[Event], state: Shutdown | None = None
) -> tuple[Shutdown, list[Effect]]:
    """The same with every effect in order, but for the timer: `wake_at` knows that."""
    state, effects = state or Shutdown(), list[Effect]()
    for given in events:
        for event in given if isinstance(given, Iterable) else [given]:
            state, more = step(state, event)
            effects += [effect for effect in more if not isinstance(effect, WakeAt)]
    return state, effects


def wake_at(state: Shutdown, event: Event) -> float | None:
    """When the machine wants to be woken after `event`, or None: the last one counts."""
    wakes = [effect.at for effect in step(state, event)[1] if isinstance(effect, WakeAt)]
    return wakes[-1] if wakes else None


def instants(state: Shutdown) -> tuple[float, float, float, float]:
    """Request, SIGTERM, SIGKILL, deadline."""
    assert state.schedule is not None
    return state.schedule.instants()


def told(effects: Iterable[Effect]) -> list[tuple[float, float, float, float]]:
    """The schedules that the relay is told, in order."""
    return [e.schedule.instants() for e in effects if isinstance(e, TellSchedule)]


def without_schedules(effects: Iterable[Effect]) -> list[Effect]:
    """The effects besides what every request brings."""
    return [e for e in effects if not isinstance(e, TellSchedule | CloseStdin)]
