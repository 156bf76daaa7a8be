"""What stands beside us: the bare kernel, and the SDK's own client.

`Bare` is a process with two pipes and nobody to own it: what a spawn, an exit or a kill costs by
itself. `Sdk` is `mcp.client.stdio.stdio_client`, as MCP hosts in Python use it.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Final, Self, TextIO

import anyio
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from scripts.benchmarks.programs import ENV, PING
from scripts.benchmarks.surroundings import wait_readable
from supervisor.core.ids import Pid
from supervisor.linux.reaping import Exited, own_children, wait_pidfd
from supervisor.linux.signals import signal_pidfd
from supervisor.process.heirs import Heirs

BARE: Final = "bare process"
SDK: Final = "MCP SDK client"

PATIENCE_S: Final = 10.0
"""For what takes milliseconds: after this a measurement fails instead of hanging."""

READ_BYTES: Final = 65536


class Bare:
    """A process started by posix_spawn, its stdin and stdout piped to us.

    Args:
        argv: the command; the program is an absolute path.
        env: its whole environment.
        quiet: whether what it writes to stderr is thrown away; otherwise its stderr is ours.
        heirs: where custody runs in this process: it shall leave this child alone.

    Attributes:
        pid: the process.
        pidfd: readable when it has ended.
        stdin: write end, `stdout` read end.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = ENV,
        quiet: bool = False,
        heirs: Heirs | None = None,
    ) -> None:
        self._heirs = heirs
        seen, exec_pipe = os.pipe()  # close-on-exec: its end means that the exec has happened
        stdin_far, self.stdin = os.pipe()
        self.stdout, stdout_far = os.pipe()
        actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_DUP2, stdin_far, 0),
            (os.POSIX_SPAWN_DUP2, stdout_far, 1),
        ]
        if quiet:
            actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        try:
            self.pid: Final = os.posix_spawn(argv[0], list(argv), env, file_actions=actions)
        finally:
            for fd in (stdin_far, stdout_far, exec_pipe):
                os.close(fd)
        if heirs is not None:
            heirs.expect(Pid(self.pid))
        os.read(seen, 1)
        os.close(seen)
        self.pidfd: Final = os.pidfd_open(self.pid)

    def greet(self) -> None:
        """Write a line and wait until something comes back: then it really runs."""
        os.write(self.stdin, PING)
        wait_readable(self.stdout, PATIENCE_S)
        os.read(self.stdout, READ_BYTES)

    def close_stdin(self) -> None:
        """Ask it to leave. May be called twice."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def kill(self) -> None:
        """SIGKILL it."""
        signal_pidfd(self.pidfd, signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM it, and wait until it has ended; one that has is no error.

        Raises:
            TooLateError: it has not.
        """
        signal_pidfd(self.pidfd, signal.SIGTERM)
        self.wait_end()

    def wait_end(self) -> None:
        """Wait until it has ended.

        Raises:
            TooLateError: it has not.
        """
        wait_readable(self.pidfd, PATIENCE_S)

    def release(self) -> Exited:
        """Kill it if it still runs, reap it, close everything; return how it ended."""
        self.close_stdin()
        self.kill()
        exited = wait_pidfd(self.pidfd)
        if self._heirs is not None:
            self._heirs.dismiss(Pid(self.pid))
        os.close(self.stdout)
        os.close(self.pidfd)
        return exited


class Sdk:
    """A server behind the SDK's client: an async context, entered once it has answered.

    Args:
        argv: the server's command.
        heirs: custody in this process, which shall leave the SDK's child alone.

    Attributes:
        pid: the server, once entered.
        close_s: how long the SDK took to close, once left; seconds.
    """

    def __init__(self, argv: Sequence[str], heirs: Heirs) -> None:
        self._parameters = StdioServerParameters(command=argv[0], args=list(argv[1:]), env=ENV)
        self._heirs = heirs
        self._stack = AsyncExitStack()
        self.pid = Pid(0)
        self.close_s = 0.0

    async def __aenter__(self) -> Self:
        """Start the server and wait for its first message."""
        before = own_children()
        errors = self._stack.enter_context(_nowhere())
        self._read, write = await self._stack.enter_async_context(
            stdio_client(self._parameters, errors)
        )
        (self.pid,) = own_children() - before
        self._heirs.expect(self.pid)
        await write.send(SessionMessage(jsonrpc_message_adapter.validate_json(PING)))
        await self.receive()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let the SDK close the server, and take the time."""
        began_at = perf_counter()
        await self._stack.aclose()
        self.close_s = perf_counter() - began_at
        self._heirs.dismiss(self.pid)

    async def receive(self) -> None:
        """Wait for the next message, or for the end of the connection."""
        with suppress(anyio.EndOfStream):
            await self._read.receive()


@contextmanager
def _nowhere() -> Iterator[TextIO]:
    with Path(os.devnull).open("w", encoding="utf-8") as file:
        yield file
