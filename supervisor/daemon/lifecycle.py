"""One run of the daemon, from an open loop to its exit code.

Start: manager, sockets, API, ready. Stop: every instance within one budget while the API still
answers, then the closing summary, the event streams, the API, the sockets. A second SIGTERM or
SIGINT forces; it does not skip anything.
"""

import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from supervisor.api.app import create_app
from supervisor.api.metrics_listener import MetricsServer, bind_loopback
from supervisor.api.server import ApiServer
from supervisor.config.models import Configuration
from supervisor.core.errors import ConfigError
from supervisor.core.exits import DONE, OUR_BUG, UNCONFIRMED
from supervisor.core.launch import DEFAULT_DEADLINE_S
from supervisor.core.places import Places
from supervisor.daemon.ports import Manager, OpenManager
from supervisor.daemon.sockets import Sockets
from supervisor.gateway.serving import serve_session
from supervisor.linux.sd_notify import notify, watchdog_period_s
from supervisor.telemetry.events import EventLog

_CLIENT_BACKLOG: Final = 128

_SIGNALS: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGCHLD,
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one run is given.

    Attributes:
        configuration: the servers and settings.
        places: where sockets and files are; the directories exist.
        group: the gid that may use the sockets, or None.
        original_nofile: descriptor limits of children, soft and hard.
        original_umask: umask of children.
        on_ready: called once, when the sockets answer.
        look_every_s: seconds between two looks at the socket files.
    """

    configuration: Configuration
    places: Places
    group: int | None
    original_nofile: tuple[int, int]
    original_umask: int
    on_ready: Callable[[], None]
    look_every_s: float


async def serve(setting: Setting, events: EventLog, open_manager: OpenManager) -> int:
    """Run the daemon until it is asked to stop.

    Returns:
        The exit code: 0, 3 when a cleanup of the stop is unconfirmed, 101 after a bug of ours.

    Raises:
        SupervisorError: the start failed; nothing is left behind.
    """
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async with open_manager(
            setting.configuration,
            setting.places,
            events,
            original_nofile=setting.original_nofile,
            original_umask=setting.original_umask,
        ) as manager:
            sockets = Sockets(setting.places.runtime_dir, setting.group, events)
            try:
                control = sockets.bind(setting.places.control_socket)
                clients = sockets.bind(setting.places.mcp_socket)
                run = _Run(setting, events, manager, sockets)
                return await run.until_stopped(signals, control.socket, clients.socket)
            finally:
                sockets.remove()


def shutdown_budget_s(configuration: Configuration) -> float:
    """Seconds for the daemon's own stop: as configured, else the largest deadline in use."""
    configured = configuration.settings.shutdown_timeout_s
    if configured is not None:
        return configured
    servers = configuration.servers.values()
    deadlines = [server.launch.stop.deadline_s for server in servers if server.launch]
    return max(deadlines, default=DEFAULT_DEADLINE_S)


class _Run:
    """The state of one run; guarded by the event loop."""

    def __init__(
        self, setting: Setting, events: EventLog, manager: Manager, sockets: Sockets
    ) -> None:
        self._setting = setting
        self._events = events
        self._manager = manager
        self._sockets = sockets
        self._stop_asked = anyio.Event()
        self._force_asked = anyio.Event()
        self._api_ended = anyio.Event()
        self._ready = False
        self._failed = False
        self._api = ApiServer(
            create_app(
                manager,
                events,
                lambda: self._ready,
                request_shutdown=self.request_stop,
                shutdown_budget_s=lambda: shutdown_budget_s(manager.configuration),
                metrics=manager.metrics_text,
                logs=manager.logs,
                runtimes=manager.runtimes,
            )
        )
        self._metrics = MetricsServer(manager.metrics_text)

    async def until_stopped(
        self,
        signals: AsyncIterator[signal.Signals],
        control: socket.socket,
        clients: socket.socket,
    ) -> int:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._guarded, "signals", lambda: self._heed(signals))
            await tasks.start(self._serve_api, control)
            await self._serve_clients(tasks, clients)
            tasks.start_soon(self._guarded, "sockets", lambda: self._watch_sockets(tasks))
            tasks.start_soon(self._guarded, "watchdog", _feed_watchdog)
            if self._setting.configuration.settings.metrics_listen is not None:
                listener = bind_loopback(self._setting.configuration.settings.metrics_listen)
                serve = self._metrics.run_until_stopped
                tasks.start_soon(self._guarded, "metrics", lambda: serve(listener))
            self._become_ready()
            await self._stop_asked.wait()
            code = await self._stop()
            tasks.cancel_scope.cancel()
        return code

    def request_stop(self, *, force: bool, caller: str) -> None:
        """Begin the stop, or hurry one that has begun; returns at once."""
        self._events.record("shutdown_requested", caller=caller, force=force)
        self._stop_asked.set()
        if force:
            self._force_asked.set()

    def _become_ready(self) -> None:
        self._ready = not self._stop_asked.is_set()
        places = self._setting.places
        self._events.record(
            "daemon_ready", control_socket=places.control_socket, mcp_socket=places.mcp_socket
        )
        self._setting.on_ready()
        notify("READY=1", f"STATUS={len(self._setting.configuration.servers)} servers configured")

    async def _stop(self) -> int:
        self._ready = False
        budget_s = shutdown_budget_s(self._manager.configuration)
        notify("STOPPING=1", f"STATUS=Stopping all servers within {budget_s:g} s")
        async with anyio.create_task_group() as hurry:
            hurry.start_soon(self._force_when_asked)
            summary = await self._manager.stop_all("shutdown", budget_s=budget_s)
            hurry.cancel_scope.cancel()
        self._events.record(
            "daemon_stopped",
            level="info" if summary.unconfirmed == 0 else "error",
            confirmed=summary.confirmed,
            unconfirmed=summary.unconfirmed,
        )
        self._events.close()  # first: a follower must not hold the API's own stop
        if self._manager.logs is not None:
            self._manager.logs.end_follows()
        self._metrics.stop()
        self._api.stop()
        await self._api_ended.wait()
        if self._failed:
            return OUR_BUG
        return DONE if summary.unconfirmed == 0 else UNCONFIRMED

    async def _force_when_asked(self) -> None:
        await self._force_asked.wait()
        self._manager.force_stops()

    async def _reload(self) -> None:
        with contextlib.suppress(ConfigError):  # it is an event, and nothing has changed
            await self._manager.reload()

    async def _heed(self, signals: AsyncIterator[signal.Signals]) -> None:
        async with anyio.create_task_group() as reloads:
            await self._heed_each(signals, reloads)

    async def _heed_each(self, signals: AsyncIterator[signal.Signals], reloads: TaskGroup) -> None:
        async for number in signals:
            match number:
                case signal.SIGTERM | signal.SIGINT:
                    again = self._stop_asked.is_set()
                    self.request_stop(force=again, caller=number.name)
                case signal.SIGHUP:
                    reloads.start_soon(self._reload)
                case signal.SIGUSR1:
                    _log.info("state_dumped", status=asdict(self._manager.status()))
                case signal.SIGCHLD:
                    self._manager.children_changed()
                case _:
                    pass  # no other is received

    async def _serve_api(self, control: socket.socket, *, task_status: TaskStatus[None]) -> None:
        try:
            await self._guarded(
                "api", lambda: self._api.run_until_stopped(control, on_serving=task_status.started)
            )
        finally:
            self._api_ended.set()

    async def _serve_clients(self, tasks: TaskGroup, listener: socket.socket) -> None:
        listener.listen(_CLIENT_BACKLOG)

        async def serve() -> None:
            await self._manager.serve_clients(listener, {"serve": serve_session})

        tasks.start_soon(self._guarded, "clients", serve)

    async def _watch_sockets(self, tasks: TaskGroup) -> None:
        places = self._setting.places
        listeners = {
            places.control_socket: self._api.listen,
            places.mcp_socket: lambda listener: self._serve_clients(tasks, listener),
        }
        await self._sockets.keep_in_place(listeners, self._setting.look_every_s)

    async def _guarded(self, task: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except Exception:  # noqa: BLE001 - a bug in one part still ends with every server stopped
            _log.exception("daemon_task_failed", task=task)
            self._failed = True
            self._stop_asked.set()


async def _feed_watchdog() -> None:
    """Show the service manager that the loop turns, if it wants to know."""
    period_s = watchdog_period_s()
    while period_s is not None:
        notify("WATCHDOG=1")
        await anyio.sleep(period_s)
