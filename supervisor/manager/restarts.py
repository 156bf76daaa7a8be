"""Starts servers of sessions again after an end that nobody had asked for, and paces all starts.

`core/restart.py` decides; here are the timers. The old family is confirmed gone before anything
is planned, so that a restart never stands beside the descendants of the one before. A stop during
the wait cancels it, a start by hand does not wait.
"""

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from supervisor.core.errors import LaunchFailedError, ServerBackingOffError, SupervisorError
from supervisor.core.ids import ServerName, SessionKey
from supervisor.core.launch_failure import WILL_NOT_MEND
from supervisor.core.report import CleanupReport, ExitStatus
from supervisor.core.restart import Again, GiveUp, History, backoff_s, is_abnormal, plan_restart
from supervisor.manager.snapshots import Pace

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager

PATIENCE_S: Final = 5.0
"""A start on demand waits so long for its turn after a crash; beyond that it is refused, with the
time of the next try."""

Key = tuple[SessionKey | None, ServerName]
"""Private instances of one server share a key: each client would else begin at zero."""


@dataclass(slots=True)
class _Track:
    history: History = field(default_factory=History)
    last_exit: ExitStatus | None = None
    waiting: anyio.CancelScope | None = None
    cwd: str | None = None
    """The directory of the clients that it served: in another one it would not be theirs."""


@dataclass(frozen=True, slots=True)
class _InVain:
    """Starts in a row that failed, of whichever session, and when the next one may be tried."""

    failures: int = 0
    next_at: float = 0.0


class Restarts:
    """What is remembered of ends, and the restarts that are due."""

    def __init__(self, manager: "Manager", tasks: TaskGroup) -> None:
        self._manager = manager
        self._tasks = tasks
        self._tracks: dict[Key, _Track] = {}
        self._in_vain: dict[ServerName, _InVain] = {}

    def ended(
        self, key: Key, report: CleanupReport, uptime_s: float, cwd: str | None = None
    ) -> None:
        """An instance is confirmed gone that nobody had asked to end."""
        track = self._tracks.setdefault(key, _Track())
        track.cwd = cwd
        track.last_exit = report.exit
        self._plan(key, track, abnormal=is_abnormal(report), uptime_s=uptime_s)

    def due(self, name: ServerName) -> set[SessionKey]:
        """The sessions that wait for this server to be started again."""
        return {
            key[0]
            for key, track in self._tracks.items()
            if key[1] == name and key[0] is not None and track.waiting is not None
        }

    def cancel(self, key: Key) -> None:
        """Somebody stopped the server: no restart is due any more."""
        track = self._tracks.get(key)
        if track is not None and track.waiting is not None:
            track.waiting.cancel()
            track.waiting = None

    def cancel_all(self, name: ServerName, session: SessionKey | None) -> None:
        """The same for one session of a server, or for all."""
        for key in self._tracks:
            if key[1] == name and session in {None, key[0]}:
                self.cancel(key)

    def forget(self, name: ServerName) -> None:
        """Its configuration has changed, or somebody starts it by hand: begin at zero."""
        self._in_vain.pop(name, None)
        for key in [key for key in self._tracks if key[1] == name]:
            self.cancel(key)
            del self._tracks[key]

    def forget_session(self, session: SessionKey) -> None:
        """A session has ended: nothing of it is started again."""
        for key in [key for key in self._tracks if key[0] == session]:
            self.cancel(key)
            del self._tracks[key]

    def pace(self, name: ServerName) -> Pace | None:
        """What people want to know of a server that has ended by itself: the latest of its keys."""
        tracks = [track for key, track in self._tracks.items() if key[1] == name]
        if not tracks:
            return None
        now = anyio.current_time()
        due = [t.history.next_at for t in tracks if t.waiting and t.history.next_at]
        return Pace(
            exits=sum(track.history.exits for track in tracks),
            last_exit=tracks[-1].last_exit,
            next_start_in_s=round(max(0.0, min(due) - now), 3) if due else None,
        )

    def start_failed(self, name: ServerName) -> None:
        """A server could not be started or did not get ready; no session tries before its time."""
        record = self._manager.configuration.servers.get(name)
        if record is not None:
            failures = self._in_vain.get(name, _InVain()).failures + 1
            chance = random.random()  # noqa: S311 - spreads restarts, guards nothing
            wait_s = backoff_s(record.restart, failures, chance)
            self._in_vain[name] = _InVain(failures, anyio.current_time() + wait_s)

    def got_ready(self, name: ServerName) -> None:
        """A server with this configuration has answered: it can be started."""
        self._in_vain.pop(name, None)

    async def wait_turn(self, key: Key) -> None:
        """Let a start on demand wait for the backoff of an earlier end, or of a failed start.

        Raises:
            ServerBackingOffError: the wait would be too long.
        """
        track = self._tracks.get(key)
        ended_at = None if track is None else track.history.next_at
        next_at = max(ended_at or 0.0, self._in_vain.get(key[1], _InVain()).next_at)
        if not next_at:
            return
        left_s = next_at - anyio.current_time()
        if left_s > PATIENCE_S:
            why = self._manager.errors.get(key[1], "it ended by itself")
            raise ServerBackingOffError(key[1], left_s, why)
        await anyio.sleep(max(0.0, left_s))

    def _plan(self, key: Key, track: _Track, *, abnormal: bool, uptime_s: float) -> None:
        session, name = key
        record = self._manager.configuration.servers.get(name)
        if record is None:
            return
        now = anyio.current_time()
        track.history, decision = plan_restart(
            track.history,
            record.restart,
            abnormal=abnormal,
            uptime_s=uptime_s,
            now=now,
            chance=random.random(),  # noqa: S311 - spreads restarts, guards nothing
        )
        if session is None:
            return  # a client that has lost its server connects again, or does not
        match decision:
            case Again(at):
                self._manager.events.record(
                    "restart_scheduled",
                    server=name,
                    session=session,
                    in_s=round(at - now, 3),
                    exits=track.history.exits,
                )
                self.cancel(key)
                track.waiting = anyio.CancelScope()  # at once, so that a stop finds it
                self._tasks.start_soon(self._start_at, session, name, track, at)
            case GiveUp(restarts, period_s):
                self._manager.failed.add(name)
                self._manager.events.record(
                    "restarts_given_up",
                    level="error",
                    server=name,
                    session=session,
                    restarts=restarts,
                    period_s=period_s,
                )
            case _:
                pass  # its policy lets it rest

    async def _start_at(
        self, session: SessionKey, name: ServerName, track: _Track, at: float
    ) -> None:
        scope = track.waiting
        if scope is None:
            return  # cancelled before its first step
        with scope:
            await anyio.sleep_until(at)
        if scope.cancelled_caught or track.waiting is not scope:
            return
        track.waiting = None
        try:
            await self._manager.start_again(name, session, track.cwd)
            self._manager.metrics.restarted(name)
        except LaunchFailedError as error:
            if error.step not in WILL_NOT_MEND:
                self._plan((session, name), track, abnormal=True, uptime_s=0.0)
        except SupervisorError as error:
            self._manager.events.record(
                "restart_refused",
                level="warning",
                server=name,
                session=session,
                reason=str(error),
            )
