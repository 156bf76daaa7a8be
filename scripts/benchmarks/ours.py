"""Our side: custody in this process, as the daemon runs it, and a whole daemon beside it."""

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from scripts.benchmarks.peers import PATIENCE_S, Bare
from scripts.benchmarks.programs import ENV, PING
from scripts.benchmarks.surroundings import TooLateError, directory
from supervisor.client.client import Client
from supervisor.core.ids import ServerName
from supervisor.core.launch import LaunchSpec, StopPolicy
from supervisor.core.places import Places
from supervisor.core.report import CleanupReport
from supervisor.process.custody import Custody, Held
from supervisor.process.instance import Instance
from supervisor.process.plumbing import Inheritance
from supervisor.process.records import Records

NOFILE: Final = resource.getrlimit(resource.RLIMIT_NOFILE)
"""As it was when this program started: servers get it back, as they do from the daemon."""

UMASK: Final = 0o022
SERVER: Final = ServerName("bench")
PROGRAMS: Final = Path(sys.executable).parent
"""Where the installed command-line programs are."""


class Owner:
    """Custody of the servers that are measured.

    Attributes:
        custody: the process layer itself.
    """

    def __init__(self, custody: Custody) -> None:
        self.custody: Final = custody
        self._verdict = anyio.Event()
        custody.on_verdict = self._judged

    async def spawn(self, argv: Sequence[str], policy: StopPolicy | None = None) -> Held:
        """Start one server; returns at its relay's `hello`."""
        spec = LaunchSpec(argv=tuple(argv), env=ENV, stop=policy or StopPolicy())
        return await self.custody.spawn(spec, SERVER, None)

    @staticmethod
    async def greet(held: Held) -> None:
        """Write a line and wait until something comes back: then it really runs."""
        came = anyio.Event()
        held.family.attach(lambda _data: came.set(), came.set)
        held.family.stdin.write(PING)
        with anyio.fail_after(PATIENCE_S):
            await came.wait()

    @staticmethod
    async def stop(held: Held) -> CleanupReport:
        """Stop a server and wait for the verdict."""
        held.instance.request_stop("stop")
        return await held.instance.wait_settled()

    async def wait_let_go(self, held: Held) -> None:
        """Wait until an instance is confirmed gone, after an unconfirmed verdict as well."""
        while held.instance.id in self.custody.held:
            self._verdict = anyio.Event()
            await self._verdict.wait()

    async def stop_all(self) -> None:
        """End whatever a failed measurement has left."""
        for held in tuple(self.custody.held.values()):
            held.instance.request_stop("stop", force=True)
            await held.instance.wait_settled()

    def _judged(self, _instance: Instance) -> None:
        self._verdict.set()


@asynccontextmanager
async def open_owner(*, use_fork_server: bool = True) -> AsyncIterator[Owner]:
    """Custody for the time of the block, with its records in a directory of their own."""
    async with AsyncExitStack() as stack:
        runtime_dir = stack.enter_context(directory())
        custody = Custody(
            Records(runtime_dir), Inheritance(NOFILE, UMASK), use_fork_server=use_fork_server
        )
        signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGCHLD))
        await stack.enter_async_context(custody.open())
        owner = Owner(custody)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(_heed_children, signals, custody)
        try:
            yield owner
        finally:
            with anyio.CancelScope(shield=True):
                await owner.stop_all()
            tasks.cancel_scope.cancel()


async def _heed_children(signals: AsyncIterator[signal.Signals], custody: Custody) -> None:
    # as the daemon does: reaping is part of what a stop costs it
    async for _ in signals:
        custody.children_changed()


@dataclass(frozen=True, slots=True)
class Daemon:
    """A real daemon in a temporary directory.

    Attributes:
        process: `mcp-supervisord run`.
        client: its control API.
        environ: the whole environment of its programs: where everything is.
    """

    process: Bare
    client: Client
    environ: Mapping[str, str]

    def start(self, name: str) -> tuple[int, int, int]:
        """Start a configured server.

        Returns:
            The pids of the server, its anchor and its relay.
        """
        found = self.client.start(ServerName(name), None, lambda _waited_s: None)
        instance = found.value["instance"]
        pids = (instance["pid"], instance["anchor_pid"], instance["relay_pid"])
        server, anchor, relay = (pid or 0 for pid in pids)
        return server, anchor, relay


@contextmanager
def open_daemon(servers: Mapping[str, Mapping[str, Any]]) -> Iterator[Daemon]:
    """Run a daemon for the time of the block, and stop it with all its servers at the end.

    Args:
        servers: the records of `mcpServers`.

    Raises:
        TooLateError: it did not become ready, or did not stop.
    """
    with directory() as found:
        at = Path(found)
        places = Places(str(at / "config.json"), str(at / "state"), str(at / "runtime"))
        Path(places.config_file).write_text(json.dumps({"mcpServers": servers}), "utf-8")
        environ = {
            **ENV,
            "MCP_SUPERVISOR_CONFIG": places.config_file,
            "MCP_SUPERVISOR_STATE_DIR": places.state_dir,
            "MCP_SUPERVISOR_RUNTIME_DIR": places.runtime_dir,
            "NOTIFY_SOCKET": str(at / "notify"),
        }
        argv = (str(PROGRAMS / "mcp-supervisord"), "run", "--log-level", "error")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(environ.pop("NOTIFY_SOCKET"))
            ready.settimeout(PATIENCE_S)
            process = Bare(argv, env={**environ, "NOTIFY_SOCKET": ready.getsockname()})
            try:
                _wait_ready(ready)
                yield Daemon(process, Client(places.control_socket), environ)
                process.terminate()  # killed, it would leave its relays to finish behind us
            finally:
                process.release()


def _wait_ready(ready: socket.socket) -> None:
    try:
        while b"READY=1" not in ready.recv(4096):
            pass
    except TimeoutError:
        message = f"the daemon was not ready within {PATIENCE_S:g} s"
        raise TooLateError(message) from None


def record(argv: Sequence[str], *, deadline_s: float | None = None) -> dict[str, Any]:
    """A server's record in the configuration file."""
    stop = {} if deadline_s is None else {"stop": {"deadlineMs": deadline_s * 1000}}
    return {"command": argv[0], "args": list(argv[1:]), "env": {"PATH": os.defpath}, **stop}
