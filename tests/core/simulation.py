"""A shell of the shutdown machine in virtual time: carries out effects with scripted answers."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TypeVar, assert_never

from core.stopping import POLICY, RELAY_GONE
from supervisor.core import shutdown_events as e
from supervisor.core.report import FactName, FactState
from supervisor.core.shutdown import Shutdown, step

NEVER = float("inf")
_T = TypeVar("_T")


@dataclass(kw_only=True)
class World:
    """How everything outside answers; every tuple is used up in order, then its last one stays.

    Attributes:
        probes: what each probe of the group says.
        scans: what each scan says, and after how many seconds.
        looks: members of the group that live, and those of them that are not the anchor.
        relay_dies_after_s: how long a killed relay takes to be reaped, NEVER if it does not die.
        drained_after_s: how long a drain takes.
    """

    probes: tuple[FactState, ...] = ("confirmed",)
    scans: tuple[tuple[FactState, float], ...] = (("confirmed", 0.02),)
    looks: tuple[tuple[int, int], ...] = ((0, 0),)
    relay_dies_after_s: float = 0.0
    drained_after_s: float = 0.0


@dataclass(frozen=True)
class Moment:
    """One step: the state before and after, the event, what came back."""

    before: Shutdown
    event: e.Event
    after: Shutdown
    effects: tuple[e.Effect, ...]


@dataclass
class Simulation:
    """Runs one machine over a script of outside events until nothing more can happen.

    Attributes:
        moments: every step, in order.
        reported_at: when a verdict was given, in virtual seconds.
    """

    world: World
    script: list[e.Event]
    moments: list[Moment] = field(default_factory=list)
    reported_at: list[float] = field(default_factory=list)
    now: float = 0.0
    state: Shutdown = field(default_factory=Shutdown)

    def __post_init__(self) -> None:
        self._wake_at = NEVER
        self._inbox: deque[e.Event] = deque()
        self._script = sorted(self.script, key=lambda event: event.at)
        self._probes = _lasting(self.world.probes)
        self._scans = _lasting(self.world.scans)
        self._looks = _lasting(self.world.looks)

    def run(self, until: float, max_steps: int) -> "Simulation":
        """Go on until CONFIRMED, until `until`, or for `max_steps` at most."""
        while self.state.stage is not e.Stage.CONFIRMED and len(self.moments) < max_steps:
            if not self._inbox:
                next_at = min(self._wake_at, self._script[0].at if self._script else NEVER)
                if next_at > until:
                    break
                self.now = max(self.now, next_at)
                if not self._take_script():
                    self._wake_at = NEVER
                    self._inbox.append(e.TimerFired(at=self.now))
            self._feed(replace(self._inbox.popleft(), at=self.now))
        return self

    def _take_script(self) -> bool:
        """Move what has happened by now to the inbox; whether there was anything."""
        due = [event for event in self._script if event.at <= self.now]
        self._script = self._script[len(due) :]
        self._inbox.extend(due)
        return bool(due)

    def _feed(self, event: e.Event) -> None:
        before = self.state
        self.state, effects = step(before, event)
        self.moments.append(Moment(before, event, self.state, effects))
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: e.Effect) -> None:  # noqa: C901, PLR0912 - one arm an effect
        match effect:
            case e.WakeAt(at):
                self._wake_at = at
            case e.AskForStop(reason):
                self._inbox.append(e.StopRequested(at=self.now, reason=reason, policy=POLICY))
            case e.LookAtGroup():
                living, beyond = next(self._looks)
                self._inbox.append(
                    e.GroupSeen(at=self.now, living=living, beyond_anchor=min(living, beyond))
                )
            case e.KillRelay():
                self._later(self.world.relay_dies_after_s, *RELAY_GONE)
            case e.Drain():
                self._later(self.world.drained_after_s, "descendants_gone")
            case e.ProbeGroup():
                self._later(0.0, "group_gone", state=next(self._probes))
            case e.Scan(judge):
                state, after_s = next(self._scans) if judge else ("missing", NEVER)
                self._later(after_s, "scan_clean", state=state)
            case e.LastLook():
                self._take_script()
                self._inbox.append(e.LastLookDone(at=self.now))
            case e.Report():
                self.reported_at.append(self.now)
            case e.CloseStdin() | e.TellSchedule() | e.Nudge() | e.Ping() | e.KillGroup():
                pass  # what they lead to is in the script
            case _:
                assert_never(effect)

    def _later(self, after_s: float, *facts: FactName, state: FactState = "confirmed") -> None:
        events = [
            e.FactSeen(at=self.now + after_s, fact=fact, state=state, evidence="simulated")
            for fact in facts
        ]
        if after_s == 0.0:
            self._inbox.extend(events)
        elif after_s < NEVER:
            self._script = sorted([*self._script, *events], key=lambda event: event.at)


def _lasting(answers: Iterable[_T]) -> Iterator[_T]:
    """All answers, then the last one for ever."""
    last = None
    for last in answers:
        yield last
    assert last is not None
    yield from repeat(last)
