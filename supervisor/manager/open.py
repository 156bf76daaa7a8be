"""Opens the manager: last heir, fork server, sweep of what an earlier run left."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from supervisor.config.models import Configuration
from supervisor.core.places import Places
from supervisor.linux.unix_socket import ensure_private_dir
from supervisor.manager.installation import installation_key
from supervisor.manager.manager import Manager
from supervisor.process.custody import Custody
from supervisor.process.plumbing import Inheritance
from supervisor.process.records import Records
from supervisor.process.sweep import sweep
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.server_logs import ServerLogs


@asynccontextmanager
async def open_manager(
    configuration: Configuration,
    places: Places,
    events: EventLog,
    *,
    original_nofile: tuple[int, int],
    original_umask: int,
) -> AsyncIterator[Manager]:
    """A manager for the time of the context.

    Args:
        configuration: the servers and settings.
        places: where the records of instances are; the runtime directory exists.
        events: takes what happens.
        original_nofile: descriptor limits that servers get, soft and hard.
        original_umask: the umask that they get.

    Raises:
        KernelError: the directory of records cannot be used.
    """
    ensure_private_dir(places.instances_dir)
    records = Records(places.instances_dir)
    inheritance = Inheritance(original_nofile, original_umask)
    logs = ServerLogs(f"{places.state_dir}/logs/servers")
    custody = Custody(records, inheritance, logs=logs)
    async with logs.running(), custody.open(), anyio.create_task_group() as tasks:
        manager = Manager(
            configuration,
            places,
            events,
            custody,
            tasks,
            logs,
            fingerprint_key=installation_key(places.state_dir),
        )

        async def sweep_then_start() -> None:
            manager.take_swept(await sweep(records))
            await manager.start_wanted()

        tasks.start_soon(sweep_then_start)
        yield manager
        tasks.cancel_scope.cancel()
