"""MCP clients of the real daemon: raw bytes through `mcpctl connect`, and the SDK's client."""

import json
import os
import select
import subprocess  # noqa: TID251 - the shim is run as a client runs it
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import anyio
from mcp import Client, StdioServerParameters

from real_daemon.daemon_fixture import GONE_WITHIN_S, MCPCTL, Daemon
from real_daemon.daemon_log import Json

Mode = Literal["legacy", "auto"]

MODES: Final[tuple[Mode, ...]] = ("legacy", "auto")
"""How an SDK client finds the protocol version: `initialize` only, or `server/discover` first."""

READ_WITHIN_S: Final = 20.0
CHUNK_BYTES: Final = 65536
CONVERSATION_WITHIN_S: Final = 60


class Shim:
    """One client: `mcpctl connect NAME` and the test at its three standard streams.

    Args:
        daemon: whose server it wants.
        words: the name, and options.
        command: of mcpctl; `serve` is another one.
        cwd: its working directory.
    """

    def __init__(
        self,
        daemon: Daemon,
        *words: str,
        command: str = "connect",
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - the command is the test's own
            [MCPCTL, command, *words],
            env={**os.environ, **daemon.places, **(environ or {})},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(GONE_WITHIN_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def send(self, data: bytes) -> None:
        """Write so little that it fits into a pipe."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def exchange(self, data: bytes, count: int) -> bytes:
        """Write all of `data` and read `count` bytes at the same time, as neither may wait."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        stdin, stdout = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(stdin, False)
        poll = select.poll()
        poll.register(stdin, select.POLLOUT)
        if count:
            poll.register(stdout, select.POLLIN)
        unsent, got = memoryview(data), bytearray()
        deadline_at = time.monotonic() + READ_WITHIN_S
        while unsent or len(got) < count:
            if not unsent:
                poll.modify(stdin, 0)
            ready = dict(poll.poll(max(0.0, deadline_at - time.monotonic()) * 1000))
            if not ready:
                message = f"{len(got)} of {count} bytes came, {len(unsent)} were not taken"
                raise TimeoutError(message)
            if unsent and ready.get(stdin, 0) & select.POLLOUT:
                with suppress(BlockingIOError):
                    unsent = unsent[os.write(stdin, unsent[:CHUNK_BYTES]) :]
            if stdout in ready and len(got) < count:
                more = os.read(stdout, min(CHUNK_BYTES, count - len(got)))
                if not more:
                    break
                got += more
        os.set_blocking(stdin, True)
        return bytes(got)

    def read(self, count: int) -> bytes:
        """Read so many bytes, or less at the end."""
        return self.exchange(b"", count)

    def read_line(self) -> bytes:
        """Read one line, byte by byte: what follows it is not ours yet."""
        line = b""
        while not line.endswith(b"\n"):
            more = self.read(1)
            if not more:
                break
            line += more
        return line

    def ask(self, method: str, **params: Any) -> Json:  # noqa: ANN401 - JSON
        """Send one request and read its answer."""
        self.send(request_line(method, **params))
        answer: Json = json.loads(self.read_line())
        return answer

    def leave(self) -> None:
        """Close stdin, as a client does that has had enough."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def finish(self, within_s: float = READ_WITHIN_S) -> tuple[int, bytes, str]:
        """Read both outputs to their ends; exit code, the rest of stdout, stderr."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        streams = {self.process.stdout.fileno(): b"", self.process.stderr.fileno(): b""}
        poll = select.poll()
        for fd in streams:
            poll.register(fd, select.POLLIN)
        waiting = set(streams)
        deadline_at = time.monotonic() + within_s
        while waiting:
            ready = poll.poll(max(0.0, deadline_at - time.monotonic()) * 1000)
            if not ready:
                message = f"the shim did not end within {within_s} s; so far: {streams}"
                raise TimeoutError(message)
            for fd, _ in ready:
                more = os.read(fd, CHUNK_BYTES)
                streams[fd] += more
                if not more:
                    poll.unregister(fd)
                    waiting.discard(fd)
        code = self.process.wait(GONE_WITHIN_S)
        out, err = streams.values()
        return code, out, err.decode(errors="replace")


def request_line(method: str, **params: Any) -> bytes:  # noqa: ANN401 - JSON
    """A JSON-RPC request with the id 1, as one line."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def note_line(text: str = "note") -> bytes:
    """A JSON-RPC notification as one line; `cat` as a server sends it back."""
    message = {"jsonrpc": "2.0", "method": "notifications/note", "params": {"text": text}}
    return json.dumps(message).encode() + b"\n"


@asynccontextmanager
async def sdk_client(
    daemon: Daemon,
    name: str,
    mode: Mode,
    **options: Any,  # noqa: ANN401 - handed on
) -> AsyncIterator[Client]:
    """The official client, with `mcpctl connect NAME` as its server; bounded in time."""
    async with _sdk_client(daemon, ("connect", name), mode, options) as client:
        yield client


@asynccontextmanager
async def sdk_client_of_session(
    daemon: Daemon,
    key: str,
    mode: Mode,
    **options: Any,  # noqa: ANN401 - handed on
) -> AsyncIterator[Client]:
    """The official client, with `mcpctl serve --session KEY` as its server; bounded in time."""
    async with _sdk_client(daemon, ("serve", "--session", key), mode, options) as client:
        yield client


@asynccontextmanager
async def _sdk_client(
    daemon: Daemon, words: tuple[str, ...], mode: Mode, options: Mapping[str, Any]
) -> AsyncIterator[Client]:
    shim = StdioServerParameters(command=MCPCTL, args=list(words), env=daemon.places)
    with anyio.fail_after(CONVERSATION_WITHIN_S):
        async with Client(shim, mode=mode, **options) as client:
            yield client
