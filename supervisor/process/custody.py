"""Custody: the daemon's hold of all its families. Spawn here, stop here, look here.

Nothing of an instance is reused before it is confirmed gone: an instance leaves `instances` at a
confirmed verdict, or when an operator gives it up.
"""

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import anyio
from anyio.abc import TaskGroup

from supervisor.core.attribution import Identity
from supervisor.core.errors import InternalError, KernelError, UnknownInstanceError
from supervisor.core.ids import InstanceId, Pid, ServerName, SessionKey
from supervisor.core.launch import LaunchSpec
from supervisor.core.launch_failure import launch_failure
from supervisor.core.report import CleanupReport
from supervisor.core.shutdown_events import Stage
from supervisor.linux.reaping import become_subreaper
from supervisor.linux.spawning import start_relay
from supervisor.process.family import Family
from supervisor.process.fork_server import ForkServer
from supervisor.process.hearing import Failed, Hearing
from supervisor.process.heirs import Heirs
from supervisor.process.instance import Instance
from supervisor.process.plumbing import Inheritance, launch_order, lay
from supervisor.process.records import Record, Records
from supervisor.process.reporting import write_report
from supervisor.process.scanning import Scanner
from supervisor.process.stderr_tail import StderrTail
from supervisor.relay import message
from supervisor.telemetry.events import utc_now
from supervisor.telemetry.server_logs import ServerLogs

SPAWN_PATIENCE_S: Final = 10.0
"""How long from the fork to `hello`: 3 ms as a rule, but an exec may wait for a network disk."""


@dataclass(frozen=True, slots=True)
class Held:
    """An instance with its hands, for the layer above: data pipes and stderr are the family's."""

    instance: Instance
    family: Family


class Custody:
    """Holds every family of this daemon.

    Attributes:
        held: every instance whose end is not confirmed, by id.
        heirs: the daemon's children; `heirs.look()` after every SIGCHLD.
        on_verdict: called at each verdict, the amended ones included.
    """

    def __init__(
        self,
        records: Records,
        inheritance: Inheritance,
        *,
        logs: ServerLogs | None = None,
        use_fork_server: bool = True,
    ) -> None:
        self.held: Final[dict[InstanceId, Held]] = {}
        self.heirs: Final = Heirs()
        self.on_verdict: Callable[[Instance], None] = lambda _instance: None
        self._records = records
        self._inheritance = inheritance
        self._logs = logs
        self._scanner = Scanner()
        self._use_fork_server = use_fork_server
        self._fork_server: ForkServer | None = None
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Custody"]:
        """Become the last heir, start the fork server, run until the block ends.

        What is still held at the end of the block is left to its relays, which stop it.
        """
        become_subreaper()
        self._ensure_fork_server()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self.heirs.run)
                try:
                    yield self
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            for held in self.held.values():
                held.family.close()
            if self._fork_server is not None:
                self._dismiss_fork_server(self._fork_server)

    def log_dropped_bytes(self) -> Mapping[ServerName, int]:
        """What servers wrote on stderr that no log file took, by server."""
        return {} if self._logs is None else self._logs.dropped_bytes()

    @property
    def fork_server_pid(self) -> int | None:
        """The pid of the fork server, or None where there is none."""
        server = self._fork_server
        return None if server is None or not server.alive else server.pid

    def children_changed(self) -> None:
        """A child of the daemon changed its state: reap, drain, replace the fork server."""
        self.heirs.look_soon()
        self._ensure_fork_server()

    async def spawn(
        self,
        spec: LaunchSpec,
        server: ServerName,
        session: SessionKey | None,
    ) -> Held:
        """Start one server in a family of its own.

        Returns:
            The instance; its stdout waits until somebody attaches to it.

        Raises:
            LaunchFailedError: why there is no server; nothing of the attempt is left, or the
                instance is in `held`, quarantined.
            KernelError: out of descriptors, or the runtime directory cannot be written.

        Cancel-safe: yes; a spawn that nobody waits for any more is stopped.
        """
        held, record, started = self._prepare(spec, server, session)
        try:
            failed = await self._start(held, started)
        except BaseException:  # nobody waits for it any more, which is no fault of the server
            held.instance.request_stop("disconnect")
            raise
        if failed is None:
            self._complete(record, held.family)
            return held
        held.instance.request_stop("start_failed")
        await held.instance.wait_settled()
        raise launch_failure(server, failed.step, failed.errno, failed.path, spec.env)

    def _prepare(
        self, spec: LaunchSpec, server: ServerName, session: SessionKey | None
    ) -> tuple[Held, Record, "_Started"]:
        """Register the owner of the cleanup, before there is anything to clean up."""
        instance_id = InstanceId(secrets.token_hex(8))
        try:
            record, receipt = self._records.create(
                instance_id,
                server,
                session,
                deadline_s=spec.stop.deadline_s,
                kill_after_s=spec.stop.kill_after_s,
            )
            plumbing = lay(launch_order(spec, instance_id, self._inheritance), receipt)
        except OSError as error:
            self._records.remove(instance_id)
            text = f"Server {server!r} cannot be started: {error.strerror}."
            raise KernelError(text) from error
        tail = StderrTail(spec.secrets)
        if self._logs is not None:
            log = self._logs.open(server, instance_id, spec.secrets)
            tail.keep_log(log.feed, log.end)
        family = Family(instance_id, plumbing, tail, self.heirs, self._scanner)
        started = _Started()
        hearing = Hearing(family, started.set)
        instance = Instance(
            instance_id,
            server,
            session,
            spec.stop,
            family,
            write_report=lambda i: write_report(i, family, hearing.heard, spec.secrets),
            on_verdict=self._judged,
        )
        started.on_failed = lambda: instance.request_stop("start_failed")
        family.open(instance.post, hearing.hear, started.set_silent)
        held = Held(instance, family)
        self.held[instance_id] = held
        self._running().start_soon(instance.run, self._running())
        return held, record, started

    async def _start(self, held: Held, started: "_Started") -> Failed | None:
        """Have a relay forked or exec'd, and wait for its first word."""
        family = held.family
        self.heirs.spawning += 1
        try:
            # a relay is on its way whoever gives up waiting for it, and must become known
            with anyio.CancelScope(shield=True):
                pid = await self._fork(family)
        except OSError as error:
            family.without_relay()
            return Failed("relay", error.errno or 0, error.strerror or "")
        else:
            if pid is not None:
                family.hold_relay(pid)
        finally:
            family.plumbing.close_far()
            self.heirs.spawning -= 1
            self.heirs.look()
        with anyio.move_on_after(SPAWN_PATIENCE_S):
            return await started.wait()
        return Failed("relay", 0, f"no word from it for {SPAWN_PATIENCE_S:.0f} s")

    async def _fork(self, family: Family) -> Pid | None:
        server = self._ensure_fork_server()
        if server is not None:
            with contextlib.suppress(KernelError):
                return await server.fork(family.plumbing.far)
            self._ensure_fork_server()
        return start_relay(family.plumbing.far, message.FIRST_FD)

    def _complete(self, record: Record, family: Family) -> None:
        complete = replace(
            record,
            relay=_pair(family.relay),
            anchor=_pair(family.anchor),
            process=_pair(family.server),
        )
        with contextlib.suppress(OSError):  # an incomplete record is swept by its mark
            self._records.write(complete)

    def _judged(self, instance: Instance) -> None:
        if instance.state.stage is Stage.CONFIRMED:
            self._let_go(instance.id)
        self.on_verdict(instance)

    def release(self, instance_id: InstanceId) -> CleanupReport:
        """Give a quarantined instance up on an operator's word; its processes are left alone."""
        held = self.held.get(instance_id)
        if held is None or held.instance.report is None:
            raise UnknownInstanceError(instance_id)
        report = replace(held.instance.report, released=True, amended_at_utc=utc_now())
        held.instance.give_up(report)
        self._let_go(instance_id)
        return report

    def _let_go(self, instance_id: InstanceId) -> None:
        held = self.held.pop(instance_id)
        held.family.close()
        self._records.remove(instance_id)

    def _ensure_fork_server(self) -> ForkServer | None:
        if not self._use_fork_server:
            return None
        server = self._fork_server
        if server is not None and not server.alive:
            self._dismiss_fork_server(server)
            server = self._fork_server = None
        if server is None:
            with contextlib.suppress(OSError):
                server = self._fork_server = ForkServer()
                self.heirs.expect(server.pid)
        return server

    def _dismiss_fork_server(self, server: ForkServer) -> None:
        server.close()
        self.heirs.dismiss(server.pid)

    def _running(self) -> TaskGroup:
        if self._tasks is None:
            why = "custody is not open"
            raise InternalError(why)
        return self._tasks


class _Started:
    """How a spawn ended: the first word wins; `on_failed` is called at once if it is bad."""

    def __init__(self) -> None:
        self.on_failed: Callable[[], None] = lambda: None
        self._event = anyio.Event()
        self._failed: Failed | None = None

    def set(self, failed: Failed | None) -> None:
        """The relay said `hello` (None), or why there is no server."""
        if not self._event.is_set():
            self._failed = failed
            self._event.set()
            if failed is not None:
                # before the relay's end, which follows, is taken for a loss of its own
                self.on_failed()

    def set_silent(self) -> None:
        """The relay is gone; if that is the first that is heard of it, the spawn has failed."""
        self.set(Failed("relay", 0, "it ended before its server ran"))

    async def wait(self) -> Failed | None:
        """Wait for either."""
        await self._event.wait()
        return self._failed


def _pair(identity: Identity | None) -> tuple[int, int] | None:
    return None if identity is None else (identity.pid, identity.start)
