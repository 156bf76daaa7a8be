"""The manager: which instance serves which session, who may start, and what was reported.

Work on one (session, server) is serialised: a start that meets a stop waits for its verdict, and
the old family is confirmed gone before the new one starts. Different keys do not wait for each
other, but for the turns that bound cold starts.
"""

import importlib.metadata
import socket
from collections.abc import Iterable, Mapping
from typing import Final

import anyio
from anyio.abc import TaskGroup

from supervisor.config.models import Configuration, Server
from supervisor.core.errors import (
    NotQuarantinedError,
    UnknownInstanceError,
    UnknownServerError,
)
from supervisor.core.ids import SHARED, InstanceId, ServerName, SessionKey
from supervisor.core.places import Places
from supervisor.core.report import CleanupReport, Outcome, Reason
from supervisor.core.views import (
    InstanceView,
    ReloadAnswer,
    RestartAnswer,
    ServerState,
    ServerView,
    StartAnswer,
    StatusView,
    StopAnswer,
    StopSummary,
)
from supervisor.linux.sampling import Sampler
from supervisor.manager import clients, snapshots
from supervisor.manager.archive import Archive
from supervisor.manager.measuring import metrics_text
from supervisor.manager.reloading import Reloader
from supervisor.manager.restarts import Restarts
from supervisor.manager.runtimes import Runtimes
from supervisor.manager.session_channels import SessionChannels
from supervisor.manager.starts import Starts
from supervisor.manager.stderr_taps import StderrTaps
from supervisor.manager.stops import Stops
from supervisor.manager.verdicts import Verdicts
from supervisor.process.custody import Custody, Held
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.metrics import Metrics
from supervisor.telemetry.server_logs import ServerLogs
from supervisor.transport.channel import Channel


class Manager:
    """One per daemon.

    Attributes:
        custody: holds the processes.
        errors: the sentence of the last failed start, or of the last crash, by server.
        archive: the cleanup reports that are kept.
        channels: the byte channel of each instance.
        sessions: the instances of named sessions.
        runtimes: the sessions as their clients see them.
        taps: who reads the stderr of which server.
    """

    def __init__(  # noqa: PLR0913 - what one daemon has
        self,
        configuration: Configuration,
        places: Places,
        events: EventLog,
        custody: Custody,
        tasks: TaskGroup,
        logs: ServerLogs | None = None,
        *,
        fingerprint_key: bytes,
    ) -> None:
        self.configuration = configuration
        self.custody: Final = custody
        self.logs = logs
        self.errors: Final[dict[ServerName, str]] = {}
        self.failed: Final[set[ServerName]] = set()
        self.events: Final = events
        self.metrics: Final = Metrics(
            configuration.servers, version=importlib.metadata.version("mcp-supervisord")
        )
        self._sampler: Final = Sampler()
        self.restarts: Final = Restarts(self, tasks)
        self._reloader: Final = Reloader(self, places.config_file)
        self._daemon: Final = snapshots.Daemon(places, events.run)
        self.archive: Final = Archive()
        self._stops: Final = Stops(self)
        self._verdicts: Final = Verdicts(self)
        self._starts: Final = Starts(self, configuration.settings.start_concurrency)
        self.channels: Final[dict[InstanceId, Channel]] = {}
        self.sessions: Final = SessionChannels(self, tasks)
        self.runtimes: Final = Runtimes(
            self, tasks, fingerprint_key, configuration.settings.start_concurrency
        )
        self.taps: Final = StderrTaps()
        self._tasks: Final = tasks
        self.stopping = False
        custody.on_verdict = self._verdicts.judged

    # What is

    def status(self) -> StatusView:
        """The daemon and all that it holds, as it is now."""
        turns, cold = self._starts.turns, self.runtimes.cold_starts
        return self._daemon.status(
            configuration=self.configuration,
            servers=self.servers(),
            instances=self.instances(),
            stopping=self.stopping,
            fork_server_pid=self.custody.fork_server_pid,
            sessions=self.runtimes.views(),
            starting=max(turns.borrowed_tokens, cold.borrowed_tokens),
            waiting=turns.statistics().tasks_waiting + cold.statistics().tasks_waiting,
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
        instances = [self._view(held) for held in self.held(name)]
        pace = self.restarts.pace(name) or snapshots.Pace()
        failed = name in self.failed
        return snapshots.server(record, instances, self.errors.get(name), pace, failed=failed)

    def state_in_session(self, name: ServerName, session: SessionKey) -> ServerState:
        """The state of a server in one session, as it was observed."""
        record, where = self.record(name), self._where(name, session)
        views = [self._view(held) for held in self.held(name, where)]
        waiting = where in self.restarts.due(name)
        return snapshots.server_state(record, views, failed=name in self.failed, waiting=waiting)

    def instances(self, *, quarantined: bool | None = None) -> tuple[InstanceView, ...]:
        """The families that are not confirmed gone, sorted by server and id."""
        views = map(self._view, self.held())
        return tuple(v for v in views if quarantined is None or v.quarantined == quarantined)

    def instance(self, instance: InstanceId) -> InstanceView:
        """One of them.

        Raises:
            UnknownInstanceError: it is not listed (any more).
        """
        return self._view(self._find(instance))

    def reports(self, *, outcome: Outcome | None = None) -> tuple[CleanupReport, ...]:
        """The cleanup reports that are kept, oldest first."""
        return self.archive.reports(outcome)

    def report(self, instance: InstanceId) -> CleanupReport:
        """The report of an instance whose stop was decided.

        Raises:
            UnknownInstanceError: it has none (yet), or none that was kept.
        """
        return self.archive.report(instance)

    async def settled_report(self, instance: InstanceId) -> CleanupReport:
        """The same; while the instance is stopping, wait for the decision."""
        held = self.custody.held.get(instance)
        if held is not None and held.instance.stopping:
            await held.instance.wait_settled()
        return self.archive.report(instance)

    # Start

    async def start(self, name: ServerName, session: SessionKey) -> StartAnswer:
        """Ensure one instance.

        Raises:
            SupervisorError: it cannot be started; every subclass says why.
        """
        self.record(name)
        self.forget_failures(name)  # a start by hand tries at once
        return await self.start_again(name, session)

    async def start_wanted(self) -> None:
        """Start the shared servers that are to run from the daemon's start on."""
        await self._starts.start_wanted()

    async def start_again(
        self, name: ServerName, session: SessionKey, cwd: str | None = None
    ) -> StartAnswer:
        """The same for a restart that was due, which keeps count; `cwd` is that of its clients."""
        session = self._where(name, session)
        async with self.sessions.lock(session, name):
            for held in self.held(name, session):
                if not held.instance.stopping and not held.instance.quarantined:
                    return StartAnswer(instance=self.instance(held.instance.id), started=False)
            channel = await self.spawn(self.record(name), session, cwd)
            return StartAnswer(instance=self._view(channel.held), started=True)

    async def spawn(
        self, record: Server, session: SessionKey | None, cwd: str | None = None
    ) -> Channel:
        """Start a new instance: of a session, or a private one; see `Starts.spawn`.

        Returns:
            Its channel, open.
        """
        held = await self._starts.spawn(record, session, cwd)
        now = self.configuration.servers.get(record.name, record)
        channel = Channel(held, now.calls, self.events, self.metrics, private=session is None)
        self.channels[held.instance.id] = channel
        channel.handshake.on_ready = lambda: self._got_ready(record.name)
        with anyio.CancelScope(shield=True):  # an instance without a channel would be nobody's
            await self._tasks.start(channel.run)
        if session is not None:
            self.sessions.add(channel, cwd)
        if held.instance.id not in self.custody.held:  # it has come and gone meanwhile
            self.channels.pop(held.instance.id, None)
            self.sessions.forget(held.instance.id)
        return channel

    # Stop

    async def stop(
        self, name: ServerName, session: SessionKey | None, *, force: bool, verify: bool
    ) -> StopAnswer:
        """Stop all instances of a server, or those of one session; answers when decided.

        Raises:
            UnknownServerError: there is no such server.
        """
        where = None if session is None else self._where(name, session)
        self.record(name)
        self.restarts.cancel_all(name, where)
        try:
            held = self.held(name, where)
            return await self._stops.stop(held, "stop", force=force, verify=verify)
        finally:  # a stop that joined the end of a crash: that one is not made good for either
            self.restarts.cancel_all(name, where)

    async def stop_held(self, held: Iterable[Held], reason: Reason) -> StopAnswer:
        """Stop these instances in parallel; answers when all are decided."""
        return await self._stops.stop(held, reason, force=False, verify=False)

    async def stop_instance(self, instance: InstanceId, *, force: bool, verify: bool) -> StopAnswer:
        """Stop one instance; answers when decided.

        Raises:
            UnknownInstanceError: it is not listed.
        """
        held = self._find(instance)
        try:
            return await self._stops.stop([held], "stop", force=force, verify=verify)
        finally:
            self.restarts.cancel((held.instance.session, held.instance.server))

    async def restart(
        self, name: ServerName, session: SessionKey, *, force: bool, verify: bool
    ) -> RestartAnswer:
        """Stop the instance of one session, and start a new one once the old is gone.

        Raises:
            SupervisorError: the new one cannot be started.
        """
        held = self.held(name, self._where(name, session))
        stopped = await self._stops.stop(held, "restart", force=force, verify=verify)
        if stopped.outcome == "unconfirmed":
            return RestartAnswer(outcome="unconfirmed", reports=stopped.reports, instance=None)
        started = await self.start(name, session)
        self.metrics.restarted(name)
        return RestartAnswer(
            outcome=stopped.outcome, reports=stopped.reports, instance=started.instance
        )

    async def stop_all(self, reason: Reason, *, budget_s: float) -> StopSummary:
        """Stop every instance in parallel; answers within `budget_s` seconds."""
        self.stopping = True
        return await self._stops.stop_all(reason, budget_s=budget_s)

    def force_stops(self) -> None:
        """Hurry every stop that is under way: SIGKILL is due now."""
        self._stops.force()

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
        self.archive.keep(report)
        self.metrics.stopped(report)
        self.events.record(
            "instance_released",
            level="warning",
            server=held.instance.server,
            instance=instance,
            survivors=[survivor.pid for survivor in report.survivors],
        )
        return report

    # Configuration and metrics

    async def reload(self) -> ReloadAnswer:
        """Read the configuration again and move only what has changed.

        Raises:
            ConfigError: the files are wrong; the running configuration stays as it is.
        """
        return await self._reloader.reload()

    def take_configuration(self, fresh: Configuration) -> None:
        """What is started from now on follows `fresh`."""
        self.configuration = fresh
        for channel in self.channels.values():
            record = fresh.servers.get(channel.server)
            if record is not None:
                channel.limits = record.calls
        self.sessions.look_again()
        self._starts.turns.total_tokens = fresh.settings.start_concurrency
        self.runtimes.cold_starts.total_tokens = fresh.settings.start_concurrency
        self.metrics.know_servers(fresh.servers)

    def forget_failures(self, name: ServerName) -> None:
        """Its configuration has changed, or somebody starts it by hand: begin at zero."""
        self.restarts.forget(name)
        self.failed.discard(name)
        self.errors.pop(name, None)

    async def metrics_text(self) -> bytes:
        """What Prometheus reads."""
        return await metrics_text(self, self._sampler)

    # What happened

    async def serve_clients(
        self, listener: socket.socket, greetings: Mapping[str, clients.Greeted]
    ) -> None:
        """Serve the clients of `mcp.sock` until cancelled; see `clients.serve`."""
        await clients.serve(listener, self, greetings)

    def children_changed(self) -> None:
        """SIGCHLD came: some child of ours has changed its state."""
        self.custody.children_changed()

    def take_swept(self, swept: Iterable[CleanupReport]) -> None:
        """Keep what the sweep of an earlier run found; starts may begin."""
        self._verdicts.take_swept(swept)
        self._starts.swept.set()

    def _got_ready(self, name: ServerName) -> None:
        self.restarts.got_ready(name)
        self.errors.pop(name, None)

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

    def held(self, name: ServerName | None = None, session: SessionKey | None = None) -> list[Held]:
        """Every instance that is not confirmed gone, or those of a server or a session; sorted."""
        found = [
            held
            for held in self.custody.held.values()
            if name in {None, held.instance.server} and session in {None, held.instance.session}
        ]
        return sorted(found, key=lambda held: (held.instance.server, held.instance.id))

    def _where(self, name: ServerName, session: SessionKey) -> SessionKey:
        """Under which key the instance of a session is held: of a shared server, that of all."""
        return SHARED if self.record(name).scope == "shared" else session

    def _view(self, held: Held) -> InstanceView:
        return snapshots.instance(held, self.channels.get(held.instance.id))

    def _find(self, instance: InstanceId) -> Held:
        held = self.custody.held.get(instance)
        if held is None:
            raise UnknownInstanceError(instance)
        return held
