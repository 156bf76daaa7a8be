"""Reads the configuration again and moves only what has changed; all of it, or nothing."""

import os
import pwd
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from supervisor.config.load import load_configuration
from supervisor.config.models import Configuration
from supervisor.config.states import state_of
from supervisor.core.errors import ConfigError, SupervisorError
from supervisor.core.ids import ServerName, SessionKey
from supervisor.core.reload import ReloadPlan, plan_reload
from supervisor.core.report import CleanupReport
from supervisor.core.views import ReloadAnswer
from supervisor.process.custody import Held
from supervisor.telemetry.masking import add_secrets

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager


class Reloader:
    """Reloads for one manager, one at a time: a second request waits, then looks afresh."""

    def __init__(self, manager: "Manager", config_file: str) -> None:
        self._manager = manager
        self._config_file = config_file
        self._key: Final = os.urandom(32)
        self._turn: Final = anyio.Lock()

    async def reload(self) -> ReloadAnswer:
        """Read, compare, apply.

        Raises:
            ConfigError: the files are wrong; the running configuration stays as it is.
        """
        async with self._turn:
            try:
                fresh = await anyio.to_thread.run_sync(self._read)
            except ConfigError as error:
                self._manager.events.record(
                    "reload_refused", level="error", problems=list(error.problems)
                )
                raise
            plan = self._compare(fresh)
            reports = await self._apply(fresh, plan)
        self._manager.events.record(
            "configuration_reloaded",
            unchanged=list(plan.unchanged),
            changed=list(plan.changed),
            retuned=list(plan.retuned),
            added=list(plan.added),
            removed=list(plan.removed),
        )
        return ReloadAnswer(
            unchanged=plan.unchanged,
            changed=plan.changed,
            retuned=plan.retuned,
            added=plan.added,
            removed=plan.removed,
            warnings=fresh.warnings,
            reports=reports,
        )

    def _read(self) -> Configuration:
        home = pwd.getpwuid(os.geteuid()).pw_dir
        return load_configuration(self._config_file, os.environ, home=home)

    def _compare(self, fresh: Configuration) -> ReloadPlan:
        before = self._manager.configuration.servers
        return plan_reload(
            {name: state_of(server, self._key) for name, server in before.items()},
            {name: state_of(server, self._key) for name, server in fresh.servers.items()},
        )

    async def _apply(self, fresh: Configuration, plan: ReloadPlan) -> tuple[CleanupReport, ...]:
        manager = self._manager
        for server in fresh.servers.values():
            if server.launch is not None:
                add_secrets(server.launch.secrets)
        manager.take_configuration(fresh)
        # a restart that was due is not lost with the failures that it waited for
        kept = (*plan.changed, *plan.retuned)
        sessions = {(session, name) for name in kept for session in manager.restarts.due(name)}
        for name in (*kept, *plan.added, *plan.removed):
            manager.forget_failures(name)
        replaced = [
            held
            for held in manager.held()
            if held.instance.server in {*plan.changed, *plan.removed}
        ]
        sessions |= {
            (held.instance.session, held.instance.server)
            for held in replaced
            if held.instance.session is not None and held.instance.server in plan.changed
        }
        await self._let_calls_end(replaced)
        stopped = await manager.stop_held(replaced, "reload")
        for session, name in sorted(sessions):
            await self._start(name, session)
        return stopped.reports

    async def _let_calls_end(self, replaced: Iterable[Held]) -> None:
        """Wait until nothing is in flight on what goes, each for its stop's deadline at most."""

        async def wait(held: Held) -> None:
            channel = self._manager.channels.get(held.instance.id)
            if channel is not None:
                with anyio.move_on_after(held.instance.policy.deadline_s):
                    await channel.wait_quiet()

        async with anyio.create_task_group() as tasks:
            for held in replaced:
                tasks.start_soon(wait, held)

    async def _start(self, name: ServerName, session: SessionKey) -> None:
        try:
            await self._manager.start(name, session)
        except SupervisorError as error:
            self._manager.events.record(
                "start_after_reload_failed",
                level="warning",
                server=name,
                session=session,
                reason=str(error),
            )
