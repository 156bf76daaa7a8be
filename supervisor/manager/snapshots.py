"""Makes the API's views of live objects: nothing here changes anything."""

import importlib.metadata
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from supervisor.config.models import Configuration, Server
from supervisor.core.ending import how_it_ended
from supervisor.core.places import Places
from supervisor.core.report import CleanupReport, ExitStatus
from supervisor.core.shutdown_events import Stage
from supervisor.core.views import (
    DaemonView,
    InstanceState,
    InstanceView,
    LimitsView,
    QueueView,
    ServerState,
    ServerView,
    SessionView,
    StatusView,
    StopView,
)
from supervisor.linux.limits import descriptors
from supervisor.process.custody import Held
from supervisor.process.instance import Instance
from supervisor.telemetry.events import utc_now
from supervisor.transport.channel import Channel

_RANK: Final[tuple[InstanceState, ...]] = (
    "unconfirmed",
    "stopping",
    "starting",
    "alive",
    "ready",
)
"""Which of several instances a server's state speaks of: the one that needs a look."""


class Daemon:
    """What a status says of the daemon itself."""

    def __init__(self, places: Places, run: str) -> None:
        self._places = places
        self._run = run
        self._started_at_utc = utc_now()
        self._started_at = anyio.current_time()
        self._version = importlib.metadata.version("mcp-supervisord")

    def status(  # noqa: PLR0913 - the parts of a status
        self,
        *,
        configuration: Configuration,
        servers: tuple[ServerView, ...],
        sessions: tuple[SessionView, ...],
        instances: tuple[InstanceView, ...],
        stopping: bool,
        fork_server_pid: int | None,
        starting: int,
        waiting: int,
    ) -> StatusView:
        """Put the parts together."""
        limit, opened = descriptors()
        settings = configuration.settings
        return StatusView(
            daemon=DaemonView(
                pid=os.getpid(),
                version=self._version,
                run=self._run,
                started_at_utc=self._started_at_utc,
                uptime_s=_since(self._started_at),
                stopping=stopping,
                config_file=configuration.file,
                runtime_dir=self._places.runtime_dir,
                state_dir=self._places.state_dir,
                fork_server_pid=fork_server_pid,
                config_files=configuration.files,
            ),
            servers=servers,
            sessions=sessions,
            instances=instances,
            queue=QueueView(starting=starting, waiting=waiting),
            limits=LimitsView(
                max_instances=settings.max_instances,
                instances=len(instances),
                start_concurrency=settings.start_concurrency,
                descriptors=limit,
                descriptors_open=opened,
            ),
        )


def instance(held: Held, channel: Channel | None) -> InstanceView:
    """One instance as it is now."""
    it, family = held.instance, held.family
    return InstanceView(
        id=it.id,
        server=it.server,
        session=it.session,
        state=_instance_state(held, channel),
        pid=None if family.server is None else family.server.pid,
        pgid=None if family.anchor is None else family.anchor.pid,
        relay_pid=family.relay_pid,
        anchor_pid=None if family.anchor is None else family.anchor.pid,
        started_at_utc=it.started_at_utc,
        uptime_s=_since(it.started_at),
        protocol_version=None if channel is None else channel.handshake.protocol_version,
        clients=0 if channel is None else channel.clients,
        calls_in_flight=0 if channel is None else channel.calls_in_flight,
        stop=_stop(it),
        quarantined=it.quarantined,
        stderr_tail=family.tail.lines(),
        stray_lines=0 if channel is None else channel.strays.count,
        first_stray_lines=() if channel is None else channel.strays.first(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often a server has ended by itself, how last, and when it is started again."""

    exits: int = 0
    last_exit: ExitStatus | None = None
    next_start_in_s: float | None = None


def server(
    record: Server,
    instances: Sequence[InstanceView],
    error: str | None,
    pace: Pace,
    *,
    failed: bool,
) -> ServerView:
    """One configured server and what has become of it."""
    problem = " ".join(record.problems) or None
    waiting = pace.next_start_in_s is not None
    state = server_state(record, instances, failed=failed or bool(problem), waiting=waiting)
    return ServerView(
        name=record.name,
        state=state,
        transport=record.transport,
        command=record.command,
        instances=tuple(instance.id for instance in instances),
        error=problem or error,
        exits=pace.exits,
        last_exit=pace.last_exit,
        next_start_in_s=pace.next_start_in_s,
    )


def death_sentence(report: CleanupReport) -> str:
    """Why an instance ended that nobody had asked to end, for people."""
    how = how_it_ended(report.reason, report.exit.code, report.exit.signal)
    last = f"; its last line on stderr: {report.last_stderr[-1]}" if report.last_stderr else ""
    return f"Server {report.server!r} {how}{last}."


def _instance_state(held: Held, channel: Channel | None) -> InstanceState:
    if held.instance.quarantined:
        return "unconfirmed"
    if held.instance.state.stage is not Stage.RUNNING:
        return "stopping"
    if held.family.server is None:
        return "starting"
    return "ready" if channel is not None and channel.handshake.ready else "alive"


def server_state(
    record: Server, instances: Sequence[InstanceView], *, failed: bool, waiting: bool
) -> ServerState:
    """The state of a server with these instances.

    Args:
        record: as configured.
        instances: all of them, or those of one session.
        failed: whether it is not started again by itself.
        waiting: whether it is, after a while.
    """
    states = {view.state for view in instances}
    for state in _RANK:
        if state in states:
            return state
    if not record.enabled:
        return "disabled"
    if failed:
        return "failed"
    return "backoff" if waiting else "idle"


def _stop(it: Instance) -> StopView | None:
    schedule = it.state.schedule
    if schedule is None:
        return None
    left_s = max(0.0, schedule.deadline_at - anyio.current_time())
    return StopView(stage=it.state.stage.value, deadline_in_s=round(left_s, 3))


def _since(at: float) -> float:
    return round(anyio.current_time() - at, 3)
