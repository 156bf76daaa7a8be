"""One instance: the shell around the shutdown machine, from spawn to the last word on its end.

The shell waits for an event or for the instant that the machine asked for, feeds it, and carries
out what comes back. It decides nothing: who may hurry a stop, when helpers are given up and what
the verdict is stands in `core/shutdown.py`.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, assert_never

import anyio
import structlog
from anyio.abc import TaskGroup

from supervisor.core import shutdown, stages
from supervisor.core import shutdown_events as e
from supervisor.core.ids import InstanceId, ServerName, SessionKey
from supervisor.core.launch import StopPolicy
from supervisor.core.report import CleanupReport, FactName, FactState, Reason
from supervisor.core.shutdown import Shutdown
from supervisor.process.ports import FamilyPort
from supervisor.relay import message
from supervisor.telemetry.events import utc_now

if TYPE_CHECKING:
    from supervisor.core.attribution import Identity

_log = structlog.get_logger(__name__)

Reporter = Callable[["Instance"], CleanupReport]
"""Writes the report of an instance whose verdict is in."""


class Instance:
    """One family of processes and how far it has got.

    Attributes:
        state: what the machine says; assigned by `_feed` only.
        report: the verdict, once there is one; replaced when it is amended.
        found: living processes of the family that the last scan found.
        on_verdict: called with the instance at each verdict, the amended one included.
    """

    def __init__(  # noqa: PLR0913 - identity, hands and the two callbacks of one value
        self,
        instance: InstanceId,
        server: ServerName,
        session: SessionKey | None,
        policy: StopPolicy,
        family: FamilyPort,
        *,
        write_report: Reporter,
        on_verdict: Callable[["Instance"], None],
    ) -> None:
        self.id: Final = instance
        self.server: Final = server
        self.session: Final = session
        self.policy: Final = policy
        self.family: Final = family
        self.started_at_utc: Final = utc_now()
        self.started_at: Final = anyio.current_time()
        self.requested_at = 0.0
        self.requested_at_utc = ""
        self.settled_at = 0.0
        self.state = Shutdown()
        self.report: CleanupReport | None = None
        self.found: tuple[tuple[Identity, str], ...] = ()
        self._write_report = write_report
        self._on_verdict = on_verdict
        self._inbox: deque[e.Event] = deque()
        self._news = anyio.Event()
        self._stopping = anyio.Event()
        self._verdict = anyio.Event()
        self._wake_at = float("inf")
        self._over = False

    def post(self, event: e.Event) -> None:
        """Hand an event to the shell; it acts at its next turn."""
        self._inbox.append(event)
        self._news.set()

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested and no verdict is in."""
        return self.state.schedule is not None and self.report is None

    @property
    def quarantined(self) -> bool:
        """Whether the verdict was unconfirmed and nobody has given the instance up."""
        return self.state.stage is e.Stage.UNCONFIRMED and not self._over

    def request_stop(
        self,
        reason: Reason,
        *,
        force: bool = False,
        verify: bool = False,
        budget_at: float | None = None,
    ) -> None:
        """Begin a stop or join the one under way; see `wait_settled` for its end."""
        self.post(
            e.StopRequested(
                at=anyio.current_time(),
                reason=reason,
                policy=self.policy,
                force=force,
                verify=verify,
                budget_at=budget_at,
            )
        )

    async def wait_settled(self) -> CleanupReport:
        """Wait for the verdict.

        Returns:
            The report as it is now: a later amendment is not waited for.

        Blocks: until the deadline of the stop at most, once one is requested. Cancel-safe: the
        stop goes on without the waiter.
        """
        while self.report is None:
            await self._verdict.wait()
        return self.report

    async def wait_stopping(self) -> None:
        """Wait until a stop has begun, whoever asked for it."""
        await self._stopping.wait()

    def give_up(self, report: CleanupReport) -> None:
        """End custody on an operator's word; the shell ends at its next turn."""
        self.report = report
        self._over = True
        self._news.set()

    async def run(self, tasks: TaskGroup) -> None:
        """Feed events until the family is confirmed gone or given up."""
        while not self._over:
            if not self._inbox:
                with anyio.CancelScope(deadline=self._wake_at):
                    await self._news.wait()
            self._news = anyio.Event()
            if not self._inbox and anyio.current_time() >= self._wake_at:
                self._wake_at = float("inf")
                self._inbox.append(e.TimerFired(at=anyio.current_time()))
            while self._inbox and not self._over:
                self._feed(self._inbox.popleft(), tasks)

    def _feed(self, event: e.Event, tasks: TaskGroup) -> None:
        self.state, effects = shutdown.step(self.state, event)
        if self.state.schedule is not None and not self._stopping.is_set():
            self.requested_at = self.state.schedule.requested_at
            self.requested_at_utc = utc_now()
            self._stopping.set()
        self.family.schedule = self.state.schedule
        for effect in effects:
            self._carry_out(effect, tasks)

    def _carry_out(self, effect: e.Effect, tasks: TaskGroup) -> None:  # noqa: C901, PLR0912 - one arm an effect
        match effect:
            case e.WakeAt(at):
                self._wake_at = at
            case e.AskForStop(reason):
                self.request_stop(reason)
            case e.CloseStdin():
                self.family.close_stdin()
            case e.TellSchedule(schedule):
                self._tell_schedule(schedule)
            case e.Nudge(retire):
                self.family.wake_relay()
                self.family.tell(message.ADVANCE, stage=stages.TERM)
                self.family.tell(message.RETIRE if retire else message.PING)
                self.family.tell(message.PING)
            case e.Ping():
                self.family.tell(message.PING)
            case e.LookAtGroup():
                look = self.family.look_at_group()
                self.post(
                    e.GroupSeen(
                        at=anyio.current_time(),
                        living=look.living,
                        beyond_anchor=look.beyond_anchor,
                    )
                )
            case e.KillGroup():
                self.family.kill_group()
                self.family.wake_relay()
            case e.KillRelay():
                self.family.kill_relay()
            case e.Drain():
                self.family.drain()
            case e.ProbeGroup():
                probe = self.family.probe_group()
                self._learn("group_gone", probe.state, probe.evidence)
            case e.Scan(judge):
                tasks.start_soon(self._scan, judge)
            case e.LastLook():
                self.family.last_look()
                self.post(e.LastLookDone(at=anyio.current_time()))
            case e.Report():
                self._settle()
            case _:
                assert_never(effect)

    def _tell_schedule(self, schedule: stages.Schedule) -> None:
        requested, term, kill, deadline = map(message.to_ns, schedule.instants())
        self.family.tell(message.STOP, requested=requested, term=term, kill=kill, deadline=deadline)

    async def _scan(self, judge: bool) -> None:
        try:
            result = await self.family.scan()
        except OSError as error:  # out of files: nothing was learned, and no other stop may suffer
            _log.warning("scan_failed", server=self.server, instance=self.id, errno=error.errno)
            return
        self.found = result.found
        if not judge:
            return
        if result.found:
            pids = sorted(identity.pid for identity, _ in result.found)
            self._learn("scan_clean", "contradicted", f"alive: {pids}")
        else:
            self._learn("scan_clean", "confirmed", "psutil finds no process of this family")

    def _learn(
        self,
        fact: FactName,
        state: FactState,
        evidence: str,
    ) -> None:
        self.post(e.FactSeen(at=anyio.current_time(), fact=fact, state=state, evidence=evidence))

    def _settle(self) -> None:
        self.settled_at = anyio.current_time()
        self.report = self._write_report(self)
        self._over = self.state.stage is e.Stage.CONFIRMED
        self._verdict.set()
        self._on_verdict(self)
