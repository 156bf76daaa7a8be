"""Starts instances: who may, in whose turn, and what is kept of a start that fails."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from supervisor.config.models import Server
from supervisor.core.errors import (
    CleanupUnconfirmedError,
    LaunchFailedError,
    ServerDisabledError,
    ServerRecordError,
    ShuttingDownError,
    SupervisorError,
    TooManyInstancesError,
)
from supervisor.core.ids import SHARED, ServerName, SessionKey
from supervisor.core.launch import LaunchSpec
from supervisor.process.custody import Held

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager


class Starts:
    """The starts of one manager.

    Attributes:
        turns: bounds how many run at a time.
        swept: set once what an earlier run left is dealt with; no start comes before.
    """

    def __init__(self, manager: "Manager", concurrency: int) -> None:
        self.turns = anyio.CapacityLimiter(concurrency)
        self.swept = anyio.Event()
        self._manager = manager
        self._starting = 0

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
        manager = self._manager
        await self.swept.wait()
        began_at = anyio.current_time()
        await manager.restarts.wait_turn((session, record.name))
        if session is not None:
            await self._make_way(record.name, session)
        self._startable(record)
        try:
            async with self._turn():
                record = manager.record(record.name)  # a reload may have changed it meanwhile
                launch = self._startable(record)
                if cwd is not None and not record.cwd_given:
                    launch = replace(launch, cwd=cwd)
                held = await manager.custody.spawn(launch, record.name, session)
        except LaunchFailedError as error:
            manager.errors[record.name] = str(error)
            manager.failed.add(record.name)
            manager.metrics.start_failed(record.name)
            manager.events.record(
                "start_failed",
                level="warning",
                server=record.name,
                session=session,
                step=error.step,
                errno=error.errno,
                reason=str(error),
            )
            raise
        manager.errors.pop(record.name, None)
        manager.failed.discard(record.name)
        manager.metrics.started(record.name, anyio.current_time() - began_at)
        server = held.family.server
        manager.events.record(
            "instance_started",
            server=record.name,
            instance=held.instance.id,
            session=session,
            pid=None if server is None else server.pid,
        )
        return held

    async def start_wanted(self) -> None:
        """Start the shared servers that are to run from the daemon's start on."""
        manager = self._manager

        async def start(name: ServerName) -> None:
            try:
                await manager.start_again(name, SHARED)
            except SupervisorError as error:
                manager.events.record(
                    "autostart_failed", level="warning", server=name, reason=str(error)
                )

        async with anyio.create_task_group() as tasks:
            for name, record in manager.configuration.servers.items():
                if record.autostart and record.enabled and record.scope == "shared":
                    tasks.start_soon(start, name)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for a turn; who waits counts as an instance, so that the limit holds."""
        self._starting += 1
        try:
            await self.turns.acquire()
        finally:
            self._starting -= 1  # from here on custody counts it
        try:
            yield
        finally:
            self.turns.release()

    def _startable(self, record: Server) -> LaunchSpec:
        manager = self._manager
        if manager.stopping:
            raise ShuttingDownError
        if not record.enabled:
            raise ServerDisabledError(record.name)
        if record.launch is None:
            raise ServerRecordError(record.name, *record.problems)
        limit = manager.configuration.settings.max_instances
        if len(manager.custody.held) + self._starting >= limit:
            raise TooManyInstancesError(record.name, limit)
        return record.launch

    async def _make_way(self, name: ServerName, session: SessionKey) -> None:
        """Wait for stops under way; refuse while a cleanup is unconfirmed."""
        ending = [
            held
            for held in self._manager.held(name, session)
            if held.instance.stopping or held.instance.quarantined
        ]
        for held in ending:
            report = await held.instance.wait_settled()
            if report.outcome == "unconfirmed" and not report.released:
                alive = tuple(f"{s.pid} ({s.command})" for s in report.survivors)
                raise CleanupUnconfirmedError(name, held.instance.id, alive)
