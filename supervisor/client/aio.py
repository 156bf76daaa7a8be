"""The control API for authors of agents: typed, async, under asyncio and trio alike.

    async with AsyncClient.from_environment() as client:
        async with await client.open_session("chat-1", ["git"]) as session:
            print((await session.call("git__git_status", {"repo_path": "."})).text)

Every method may raise `DaemonUnreachableError`, `KernelError`, `GarbledAnswerError` and
`ProblemError` (the daemon refused or failed, with `problem` as its code, and fields). All are safe
to cancel: the request is closed, and the daemon cancels what it asked a server for.

`mcpctl` does not use this: it takes longer to load than a command may last.
"""

import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar, cast

import anyio
from httpx2 import ServerSentEvent

from supervisor.client import bodies
from supervisor.client.client import quote
from supervisor.client.errors import GarbledAnswerError, GivenUpError, ProblemError, silent
from supervisor.client.exchange import Exchange, Result
from supervisor.client.where import locate
from supervisor.client.wire import PATIENCE_S
from supervisor.core.errors import DaemonUnreachableError
from supervisor.core.tool_filter import ToolFilter

__all__ = [
    "AsyncClient",
    "CallResult",
    "DaemonUnreachableError",
    "GarbledAnswerError",
    "GivenUpError",
    "ProblemError",
    "Result",
    "SessionHandle",
    "ToolFilter",
]

Body = TypeVar("Body")

AWAY_S: Final = 30.0
"""How long a followed daemon may be away: a restart takes as long as its slowest server stops."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
"""Between two looks for a daemon that is away; doubled each time."""

CLOSE_WITHIN_S: Final = 120.0
"""For the end of a session, which cannot be cancelled: beyond any stop, against a stuck daemon."""

_FOLLOW: Final = "/v1/events?follow=true"

_FROM_THE_START: Final = "-"
"""No event has this id, so the daemon answers with a `gap` and then with all that it has kept."""


@dataclass(frozen=True, slots=True)
class CallResult(Result[bodies.CallResult]):
    """What a tool answered."""

    @property
    def text(self) -> str:
        """All parts of it that are text, joined by newlines."""
        parts = self.value.get("content", ())
        return "\n".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")

    @property
    def structured(self) -> object:
        """`structuredContent`, in the form of the tool's `outputSchema`; None without."""
        return self.value.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether the tool says that it failed; its text says why."""
        return self.value.get("isError") is True


class AsyncClient:
    """Asks the daemon behind one control socket; used inside `async with`, by any number of tasks.

    Args:
        control_socket: its path.
        patience_s: seconds that a snapshot may take; starts, stops and calls have no limit here.
    """

    def __init__(self, control_socket: str, *, patience_s: float = PATIENCE_S) -> None:
        self._exchange: Final = Exchange(control_socket)
        self._patience_s: Final = patience_s

    @classmethod
    def from_environment(cls, *, patience_s: float = PATIENCE_S) -> Self:
        """The client of the daemon that `mcpctl` would talk to, by the same variables."""
        return cls(locate().control_socket, patience_s=patience_s)

    @property
    def path(self) -> str:
        """The control socket."""
        return self._exchange.path

    async def __aenter__(self) -> Self:
        await self._exchange.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._exchange.__aexit__(kind, error, trace)

    async def status(self) -> bodies.Status:
        """Daemon, servers, sessions, instances, queue and limits in one snapshot."""
        patience_s = self._patience_s
        return (
            await self._exchange.ask(bodies.Status, "GET", "/v1/status", patience_s=patience_s)
        ).value

    async def open_session(
        self,
        key: str,
        servers: Sequence[str] | None = None,
        tool_filter: ToolFilter | None = None,
        idle_timeout_s: float | None = None,
    ) -> "SessionHandle":
        """Create a session, or make the one of this key as it is asked for; starts no server.

        Args:
            key: 1 to 128 of `A-Z a-z 0-9 . _ : @ -`; the same key gives the same servers.
            servers: their names; None for all that are enabled.
            tool_filter: what is offered of their tools; None for all.
            idle_timeout_s: seconds without use after which it is forgotten, 0 for never; None as
                configured.
        """
        wanted = {
            "servers": None if servers is None else list(servers),
            "toolFilter": None if tool_filter is None else tool_filter.as_json(),
            "idleTimeoutMs": None if idle_timeout_s is None else idle_timeout_s * 1000,
        }
        target = f"/v1/sessions/{quote(key)}"
        opened = await self._exchange.ask(bodies.OpenedSession, "PUT", target, _dump(wanted))
        return SessionHandle(self._exchange, opened.value)

    async def probe(self, name: str) -> bodies.Probe:
        """Start a server for itself, ask what it offers, and stop it."""
        return (
            await self._exchange.ask(bodies.Probe, "POST", f"/v1/servers/{quote(name)}/probe")
        ).value

    async def start(self, name: str, session: str | None = None) -> bodies.Started:
        """Ensure one instance; without a session, in the daemon's default one."""
        body = _dump({} if session is None else {"session": session})
        target = f"/v1/servers/{quote(name)}/start"
        return (await self._exchange.ask(bodies.Started, "POST", target, body)).value

    async def stop(
        self, name: str, session: str | None = None, *, force: bool = False, verify: bool = False
    ) -> bodies.Stopped:
        """Stop a server's instances, or the one of a session; answers when all are judged.

        Args:
            name: the server.
            session: only there.
            force: begin with SIGKILL.
            verify: look at those that could not be confirmed once more.
        """
        body: dict[str, object] = {"force": force, "verify": verify}
        if session is not None:
            body["session"] = session
        target = f"/v1/servers/{quote(name)}/stop"
        return (await self._exchange.ask(bodies.Stopped, "POST", target, _dump(body))).value

    @asynccontextmanager
    async def events(
        self, after: str | None = None, *, away_s: float = AWAY_S
    ) -> AsyncIterator[AsyncIterator[bodies.Event]]:
        """What happens, from the entry of the block on; also across a restart of the daemon.

        What the daemon did not keep for as long as that is told by an event named `gap`.

        Args:
            after: the id of the last event that is known; None begins now.
            away_s: seconds that the daemon may be away before `DaemonUnreachableError` is raised.
        """
        async with (
            self._exchange.follow(_FOLLOW, after) as first,
            aclosing(self._events(first, after, away_s)) as events,
        ):
            yield events

    async def _events(
        self, first: AsyncIterator[ServerSentEvent], after: str | None, away_s: float
    ) -> AsyncGenerator[bodies.Event, None]:
        """Those of the first stream, and of as many more as it takes."""
        pause_s, away_until = FIRST_PAUSE_S, math.inf
        stream: AbstractAsyncContextManager[AsyncIterator[ServerSentEvent]] = nullcontext(first)
        while True:
            try:
                async with stream as messages:
                    away_until = math.inf
                    async for message in messages:
                        after, pause_s = message.id, FIRST_PAUSE_S
                        yield cast("bodies.Event", self._exchange.parse(message.data))
            except DaemonUnreachableError:
                if anyio.current_time() >= away_until:
                    raise
            away_until = min(away_until, anyio.current_time() + away_s)
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            after = after or _FROM_THE_START
            stream = self._exchange.follow(_FOLLOW, after)


class SessionHandle:
    """A session of a client: tools, prompts and resources of its servers under unique names.

    The first use of a server starts it. As an async context manager, its end deletes the session;
    without, the session stays until it is closed or has been idle for long enough.

    Attributes:
        opened: what the daemon said when it was opened: key, fingerprint, reused, servers and
            diagnostics.
    """

    def __init__(self, exchange: Exchange, opened: bodies.OpenedSession) -> None:
        self.opened: Final = opened
        self._exchange: Final = exchange
        self._target: Final = f"/v1/sessions/{quote(opened['key'])}"

    @property
    def key(self) -> str:
        """Its key."""
        return self.opened["key"]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # who is cancelled must not leave servers behind; the daemon bounds each stop
        with anyio.move_on_after(CLOSE_WITHIN_S, shield=True):
            try:
                await self.close()
            except ProblemError as error:
                if error.problem != "unknown_session":  # closed before, or forgotten
                    raise
            return
        raise silent(self._exchange.path)

    async def tools(self) -> bodies.Tools:
        """The tools of all servers; one that failed is a diagnostic."""
        return await self._get(bodies.Tools, "tools")

    async def prompts(self) -> bodies.Prompts:
        """The prompts of all servers, likewise."""
        return await self._get(bodies.Prompts, "prompts")

    async def resources(self) -> bodies.Resources:
        """The resources and resource templates of all servers, likewise."""
        return await self._get(bodies.Resources, "resources")

    async def call(
        self,
        full_name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        limit_s: float | None = None,
    ) -> CallResult:
        """Call one tool. It is never repeated, whatever happens.

        Args:
            full_name: as `tools` names it.
            arguments: a mapping that JSON can spell, or a JSON object that is passed on byte for
                byte.
            limit_s: seconds from now; None leaves it to the server's record.

        Raises:
            GivenUpError: `limit_s` was over; it is a TimeoutError too.
        """
        given = arguments if isinstance(arguments, bytes) else _dump(arguments or {})
        body = b'{"arguments":%b}' % given
        with anyio.move_on_after(limit_s):
            result = await self._post(bodies.CallResult, f"tools/{quote(full_name)}", body)
            return CallResult(result.raw, result.value)
        raise GivenUpError(full_name, limit_s or 0.0)

    async def get_prompt(
        self, full_name: str, arguments: Mapping[str, str] | None = None
    ) -> Result[bodies.Prompt]:
        """Get one prompt, by the name that `prompts` gives it."""
        body = _dump({"arguments": dict(arguments or {})})
        return await self._post(bodies.Prompt, f"prompts/{quote(full_name)}", body)

    async def read_resource(self, uri: str) -> Result[bodies.ResourceContents]:
        """Read one resource from the server that lists it, or whose template fits."""
        return await self._post(bodies.ResourceContents, "resources/read", _dump({"uri": uri}))

    async def close(self) -> bodies.Stopped:
        """Stop all that the session holds, and forget it; answers when all is judged."""
        return (await self._exchange.ask(bodies.Stopped, "DELETE", self._target)).value

    async def _get(self, kind: type[Body], what: str) -> Body:
        return (await self._exchange.ask(kind, "GET", f"{self._target}/{what}")).value

    async def _post(self, kind: type[Body], what: str, body: bytes) -> Result[Body]:
        return await self._exchange.ask(kind, "POST", f"{self._target}/{what}", body)


def _dump(value: Mapping[str, object]) -> bytes:
    """Compact JSON in UTF-8; what JSON cannot spell (NaN among it) is refused here."""
    text = json.dumps(dict(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()
