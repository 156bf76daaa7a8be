"""The manager: which instance serves which session, who may start, and what was reported.

Work on one (session, server) is serialised: a start that meets a stop waits for its verdict, and
the old family is confirmed gone before the new one starts. Different keys do not wait for each
other, but for the turns that bound cold starts.
"""

import contextlib
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from typing import Final

import anyio

from supervisor.config.models import Configuration, Server
from supervisor.core.errors import (
    CleanupUnconfirmedError,
    LaunchFailedError,
    NotQuarantinedError,
    ServerDisabledError,
    ServerRecordError,
    ShuttingDownError,
    TooManyInstancesError,
    UnknownInstanceError,
    UnknownServerError,
)
from supervisor.core.ids import InstanceId, ServerName, SessionKey
from supervisor.core.launch import LaunchSpec
from supervisor.core.places import Places
from supervisor.core.report import CleanupReport, Outcome, Reason
from supervisor.core.shutdown_events import Stage
from supervisor.core.views import (
    InstanceView,
    RestartAnswer,
    ServerView,
    StartAnswer,
    StatusView,
    StopAnswer,
)
from supervisor.manager import clients, snapshots
from supervisor.manager.archive import Archive
from supervisor.process.custody import Custody, Held
from supervisor.process.instance import Instance
from supervisor.process.sweep import Swept
from supervisor.telemetry.events import EventLog

LAST_WORD_PATIENCE_S: Final = 0.1
"""How much longer than the budget the daemon waits for verdicts that are due at its end."""


@dataclass(frozen=True, slots=True)
class StopSummary:
    """How the daemon's own stop ended, in instances."""

    confirmed: int
    unconfirmed: int


class Manager:
    """One per daemon.

    Attributes:
        custody: holds the processes.
        errors: the sentence of the last failed start, or of the last crash, by server.
        clients: how many clients are attached, by instance.
    """

    def __init__(
        self, configuration: Configuration, places: Places, events: EventLog, custody: Custody
    ) -> None:
        self.configuration: Final = configuration
        self.custody: Final = custody
        self.errors: Final[dict[ServerName, str]] = {}
        self.failed: Final[set[ServerName]] = set()
        self.clients: Final[dict[InstanceId, int]] = defaultdict(int)
        self.events: Final = events
        self._daemon: Final = snapshots.Daemon(configuration, places, events.run)
        self._archive: Final = Archive()
        self._turns: Final = anyio.CapacityLimiter(configuration.settings.start_concurrency)
        self._keys: Final[dict[tuple[SessionKey, ServerName], anyio.Lock]] = {}
        self._starting = 0
        self._swept = anyio.Event()
        self._stopping = False
        custody.on_verdict = self._judged

    # What is

    def status(self) -> StatusView:
        """The daemon and all that it holds, as it is now."""
        return self._daemon.status(
            servers=self.servers(),
            instances=self.instances(),
            stopping=self._stopping,
            fork_server_pid=self.custody.fork_server_pid,
            starting=self._turns.borrowed_tokens,
            waiting=self._turns.statistics().tasks_waiting,
        )

    def servers(self) -> tuple[ServerView, ...]:
        """All configured servers, sorted by name."""
        return tuple(self.server(name) for name in sorted(self.configuration.servers))

    def server(self, name: ServerName) -> ServerView:
        """One of them.

        Raises:
            UnknownServerError: there is no such server.
        """
        record = self.record(name)
        held = [h.instance for h in self._held(name)]
        failed = name in self.failed
        return snapshots.server(record, held, self.errors.get(name), failed=failed)

    def instances(self, *, quarantined: bool | None = None) -> tuple[InstanceView, ...]:
        """The families that are not confirmed gone, sorted by server and id."""
        views = (snapshots.instance(held, self.clients[held.instance.id]) for held in self._held())
        return tuple(v for v in views if quarantined is None or v.quarantined == quarantined)

    def instance(self, instance: InstanceId) -> InstanceView:
        """One of them.

        Raises:
            UnknownInstanceError: it is not listed (any more).
        """
        return snapshots.instance(self._find(instance), self.clients[instance])

    def reports(self, *, outcome: Outcome | None = None) -> tuple[CleanupReport, ...]:
        """The cleanup reports that are kept, oldest first."""
        return self._archive.reports(outcome)

    def report(self, instance: InstanceId) -> CleanupReport:
        """The report of an instance whose stop was decided.

        Raises:
            UnknownInstanceError: it has none (yet), or none that was kept.
        """
        return self._archive.report(instance)

    async def settled_report(self, instance: InstanceId) -> CleanupReport:
        """The same; while the instance is stopping, wait for the decision."""
        held = self.custody.held.get(instance)
        if held is not None and held.instance.stopping:
            await held.instance.wait_settled()
        return self._archive.report(instance)

    # Start

    async def start(self, name: ServerName, session: SessionKey) -> StartAnswer:
        """Ensure one instance.

        Raises:
            SupervisorError: it cannot be started; every subclass says why.
        """
        async with self._key(session, name):
            for held in self._held(name, session):
                if not held.instance.stopping and not held.instance.quarantined:
                    return StartAnswer(instance=self.instance(held.instance.id), started=False)
            held = await self.spawn(self.record(name), session)
            held.family.discard_output()
            return StartAnswer(instance=self.instance(held.instance.id), started=True)

    async def spawn(
        self, record: Server, session: SessionKey | None, cwd: str | None = None
    ) -> Held:
        """Start a new instance: of a session, or a private one (None).

        Args:
            record: the configured server.
            session: whose instance it is to be; work on that key is the caller's to serialise.
            cwd: directory of a client, used where the record names none.

        Raises:
            SupervisorError: it cannot be started; every subclass says why.
        """
        await self._swept.wait()
        if session is not None:
            await self._make_way(record.name, session)
        launch = self._startable(record)
        if cwd is not None and not record.cwd_given:
            launch = replace(launch, cwd=cwd)
        self._starting += 1
        try:
            async with self._turns:
                if self._stopping:
                    raise ShuttingDownError
                held = await self.custody.spawn(launch, record.name, session)
        except LaunchFailedError as error:
            self.errors[record.name] = str(error)
            self.failed.add(record.name)
            self.events.record(
                "start_failed",
                level="warning",
                server=record.name,
                session=session,
                step=error.step,
                errno=error.errno,
                reason=str(error),
            )
            raise
        finally:
            self._starting -= 1
        self.errors.pop(record.name, None)
        self.failed.discard(record.name)
        server = held.family.server
        self.events.record(
            "instance_started",
            server=record.name,
            instance=held.instance.id,
            session=session,
            pid=None if server is None else server.pid,
        )
        return held

    def _startable(self, record: Server) -> LaunchSpec:
        if self._stopping:
            raise ShuttingDownError
        if not record.enabled:
            raise ServerDisabledError(record.name)
        if record.launch is None:
            raise ServerRecordError(record.name, *record.problems)
        limit = self.configuration.settings.max_instances
        if len(self.custody.held) + self._starting >= limit:
            raise TooManyInstancesError(record.name, limit)
        return record.launch

    async def _make_way(self, name: ServerName, session: SessionKey) -> None:
        """Wait for a stop under way; refuse while its cleanup is unconfirmed."""
        for held in self._held(name, session):
            report = await held.instance.wait_settled()
            if report.outcome == "unconfirmed" and not report.released:
                alive = tuple(f"{s.pid} ({s.command})" for s in report.survivors)
                raise CleanupUnconfirmedError(name, held.instance.id, alive)

    # Stop

    async def stop(
        self, name: ServerName, session: SessionKey | None, *, force: bool, verify: bool
    ) -> StopAnswer:
        """Stop all instances of a server, or those of one session; answers when decided.

        Raises:
            UnknownServerError: there is no such server.
        """
        self.record(name)
        held = self._held(name, session)
        return await self._stop(held, "stop", force=force, verify=verify)

    async def stop_instance(self, instance: InstanceId, *, force: bool, verify: bool) -> StopAnswer:
        """Stop one instance; answers when decided.

        Raises:
            UnknownInstanceError: it is not listed.
        """
        return await self._stop([self._find(instance)], "stop", force=force, verify=verify)

    async def restart(
        self, name: ServerName, session: SessionKey, *, force: bool, verify: bool
    ) -> RestartAnswer:
        """Stop the instance of one session, and start a new one once the old is gone.

        Raises:
            SupervisorError: the new one cannot be started.
        """
        self.record(name)
        held = self._held(name, session)
        stopped = await self._stop(held, "restart", force=force, verify=verify)
        if stopped.outcome == "unconfirmed":
            return RestartAnswer(outcome="unconfirmed", reports=stopped.reports, instance=None)
        started = await self.start(name, session)
        return RestartAnswer(
            outcome=stopped.outcome, reports=stopped.reports, instance=started.instance
        )

    async def stop_all(self, reason: Reason, *, budget_s: float) -> StopSummary:
        """Stop every instance in parallel; answers within `budget_s` seconds."""
        self._stopping = True
        budget_at = anyio.current_time() + budget_s
        asked = self._held()
        for held in asked:
            held.instance.request_stop(reason, budget_at=budget_at)
        with anyio.move_on_at(budget_at + LAST_WORD_PATIENCE_S):
            for held in asked:
                await held.instance.wait_settled()
        unconfirmed = len(self._held())
        return StopSummary(confirmed=len(asked) - unconfirmed, unconfirmed=unconfirmed)

    def force_stops(self) -> None:
        """Hurry every stop that is under way: SIGKILL is due now."""
        for held in self._held():
            if held.instance.stopping:
                held.instance.request_stop(held.instance.state.reason, force=True)

    async def _stop(
        self, held: Iterable[Held], reason: Reason, *, force: bool, verify: bool
    ) -> StopAnswer:
        asked = [h.instance for h in held]
        for instance in asked:
            if not instance.stopping:
                self.events.record(
                    "stop_requested",
                    server=instance.server,
                    instance=instance.id,
                    session=instance.session,
                    reason=reason,
                )
            instance.request_stop(reason, force=force, verify=verify)
        reports = tuple([await instance.wait_settled() for instance in asked])
        if not reports:
            return StopAnswer(outcome="nothing_running", reports=())
        confirmed = all(report.outcome == "confirmed" for report in reports)
        return StopAnswer(outcome="confirmed" if confirmed else "unconfirmed", reports=reports)

    async def release(self, instance: InstanceId) -> CleanupReport:
        """Give a quarantined instance up; answers the amended report.

        Raises:
            UnknownInstanceError: it is not listed.
            NotQuarantinedError: it is not quarantined.
        """
        held = self._find(instance)
        if not held.instance.quarantined:
            raise NotQuarantinedError(instance)
        report = self.custody.release(instance)
        self._archive.keep(report)
        self.events.record(
            "instance_released",
            level="warning",
            server=held.instance.server,
            instance=instance,
            survivors=[survivor.pid for survivor in report.survivors],
        )
        return report

    # What happened

    async def serve_clients(self, listener: socket.socket) -> None:
        """Serve the clients of `mcp.sock` on a listening, non-blocking socket until cancelled."""
        await clients.serve(listener, self)

    def children_changed(self) -> None:
        """SIGCHLD came: some child of ours has changed its state."""
        self.custody.children_changed()

    def take_swept(self, swept: Iterable[Swept]) -> None:
        """Keep what the sweep of an earlier run found; starts may begin."""
        for found in swept:
            self._archive.keep(found.report)
            self.events.record(
                "instance_swept",
                level="info" if found.report.outcome == "confirmed" else "warning",
                server=ServerName(found.report.server),
                instance=InstanceId(found.report.instance),
                outcome=found.report.outcome,
                missing=list(found.report.missing),
                ended=[leftover.pid for leftover in found.report.leftovers_ended],
            )
        self._swept.set()

    def _judged(self, instance: Instance) -> None:
        report = instance.report
        if report is None:
            return
        amended = report.amended_at_utc is not None
        self._archive.keep(report)
        if instance.state.stage is Stage.CONFIRMED:
            self.clients.pop(instance.id, None)
        if report.reason in {"crash", "output_closed", "relay_lost", "anchor_lost"}:
            self.errors[instance.server] = snapshots.death_sentence(report)
        name = "cleanup_amended" if amended else f"cleanup_{report.outcome}"
        self.events.record(
            name,
            level="info" if report.outcome == "confirmed" else "error",
            server=instance.server,
            instance=instance.id,
            session=instance.session,
            report=report.as_json(),
        )

    # Finding

    def record(self, name: ServerName) -> Server:
        """The record of a configured server.

        Raises:
            UnknownServerError: there is no such server.
        """
        found = self.configuration.servers.get(name)
        if found is None:
            raise UnknownServerError(name, tuple(sorted(self.configuration.servers)))
        return found

    def _held(
        self, name: ServerName | None = None, session: SessionKey | None = None
    ) -> list[Held]:
        found = [
            held
            for held in self.custody.held.values()
            if name in {None, held.instance.server} and session in {None, held.instance.session}
        ]
        return sorted(found, key=lambda held: (held.instance.server, held.instance.id))

    def _find(self, instance: InstanceId) -> Held:
        held = self.custody.held.get(instance)
        if held is None:
            raise UnknownInstanceError(instance)
        return held

    @contextlib.asynccontextmanager
    async def _key(self, session: SessionKey, name: ServerName) -> AsyncIterator[None]:
        async with self._keys.setdefault((session, name), anyio.Lock()):
            yield
