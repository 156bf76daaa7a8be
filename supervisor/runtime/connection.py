"""One server in one session, for those who call its tools through the daemon.

Opened by its first use: instance, handshake, first listing, under one time limit. It lives as long
as its server process; after a death the first call is reported failed, and the next use opens it
again. Nothing is ever repeated on its own.

Source: design sections 8 and 10.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, cast

import anyio
from pydantic import JsonValue

from supervisor.core import breaker, call_time
from supervisor.core.breaker import Breaker
from supervisor.core.call_errors import (
    BadAnswerError,
    CallError,
    CallQueuedTooLongError,
    CallTimedOutError,
    ChannelClosedError,
    ServerGoneError,
)
from supervisor.core.ending import UNASKED
from supervisor.core.errors import RequestError, SupervisorError
from supervisor.core.ids import ServerName, SessionKey
from supervisor.core.json_spans import find_span
from supervisor.core.limits import CallLimits
from supervisor.core.listing import Listing, ListingKind
from supervisor.core.negotiation import Handshake
from supervisor.core.tool_errors import SchemaUnusableError, ServerPausedError, UnknownToolError
from supervisor.runtime.call_queue import CallQueue
from supervisor.runtime.catalogue import Catalogue
from supervisor.runtime.opener import Live, Opener
from supervisor.runtime.opening import Opens
from supervisor.runtime.schemas import Unchecked
from supervisor.telemetry.events import utc_now
from supervisor.transport.caller import OnProgress, dump, result_of
from supervisor.transport.handshake import own_envelope

Tool = Mapping[str, JsonValue]

MAX_CHECKED_BYTES: Final = 4 * 1024 * 1024
"""What is larger is not checked: reading it alone would hold up everybody else."""


class _Opening:
    """A connection that is being opened, and what comes of it."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.error: SupervisorError | None = None


class Connection:
    """A session's connection to one server.

    Attributes:
        name: of the server.
        queue: the calls that run and wait.
    """

    def __init__(
        self,
        name: ServerName,
        session: SessionKey,
        opens: Opens,
        on_changed: Callable[[ListingKind], None],
    ) -> None:
        self.name: Final = name
        self.queue: Final = CallQueue(parallel=False)
        self._session: Final = session
        self._opens: Final = opens
        self._on_changed: Final = on_changed
        self._opener: Final = Opener(name, session, opens, on_changed)
        self._opening: _Opening | None = None
        self._retired = False
        self._live: Live | None = None
        self._lost: ServerGoneError | None = None
        # of the last process, for what it offered
        self._catalogue: Catalogue | None = None
        self._breaker = Breaker()

    @property
    def handshake(self) -> Handshake | None:
        """The handshake of the server that is there now."""
        live = self._alive()
        return None if live is None else live.handshake

    @property
    def instructions(self) -> str | None:
        """What the server says about its use."""
        return None if self.handshake is None else self.handshake.instructions

    def allows(self, tool: str) -> bool:
        """Whether the filter of the server's record lets a tool pass."""
        return self._opens.record(self.name).tool_filter.allows(tool)

    def close(self) -> None:
        """Let go of the server; what is in flight is cancelled."""
        live, self._live = self._live, None
        if live is not None:
            live.caller.close()
            live.schemas.close()

    def retire(self) -> None:
        """The session has no use for this server any more: nothing is opened again."""
        self._retired = True
        self.close()

    # Use

    async def listing(self, kind: ListingKind) -> Listing:
        """List what the server has; opens the connection where it is not open.

        Raises:
            SupervisorError: it cannot be opened, or the server does not list.
        """
        live = await self._open()
        with self._opens.in_use(live.opened, self._session):
            return await live.catalogue.listing(kind, limit_s=self._limits().request_timeout_s)

    async def call(
        self, tool: str, arguments: bytes | None, *, on_progress: OnProgress | None = None
    ) -> bytes:
        """Call one tool by the server's own name.

        Args:
            tool: its name.
            arguments: a JSON object, passed on byte for byte; None for none.
            on_progress: called with the params of each progress notification.

        Returns:
            The result, byte for byte.

        Raises:
            SupervisorError: every subclass says why; nothing was repeated.
        """
        live = await self._usable()
        with self._opens.in_use(live.opened, self._session):
            found = await self._tool(live, tool)
            await self._check_arguments(live, tool, found, arguments)
            result = await self._call(live, found, arguments, on_progress)
            await self._check_result(live, tool, found, result)
            return result

    async def _call(
        self, live: Live, tool: Tool, arguments: bytes | None, on_progress: OnProgress | None
    ) -> bytes:
        """Wait for the turn of a call, and make it."""
        # also where nobody listens: the operator may let progress extend the time of a call
        wants_progress = on_progress is not None or self._limits().reset_on_progress
        token = live.caller.new_token() if wants_progress else None
        meta = _meta(live.handshake, token)
        params = b'{"name":%b,"arguments":%b%b}' % (dump(tool["name"]), arguments or b"{}", meta)
        async with AsyncExitStack() as turn:
            await self._take_turn(turn, tool)
            line = await self._ask(live, "tools/call", params, token, on_progress)
        return _result_bytes(self.name, "tools/call", line)

    async def ask(self, method: str, params: Mapping[str, JsonValue]) -> bytes:
        """Ask for something else than a tool's result; see `call`."""
        live = await self._usable()
        body = {key: value for key, value in params.items() if key != "_meta"}
        if live.handshake.era == "modern":
            body["_meta"] = own_envelope()
        line = await self._ask(live, method, dump(body))
        return _result_bytes(self.name, method, line)

    async def _take_turn(self, stack: AsyncExitStack, tool: Tool) -> None:
        """Wait for the calls before, no longer than a call may last."""
        limit_s = self._limits().request_timeout_s
        with anyio.move_on_after(limit_s):
            await stack.enter_async_context(self.queue.turn(read_only=_is_read_only(tool)))
            return
        raise CallQueuedTooLongError(self.name, limit_s, self.queue.running, self.queue.waiting)

    async def _ask(
        self,
        live: Live,
        method: str,
        params: bytes,
        token: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> bytes:
        """One request within its time limit, under the breaker."""
        time = call_time.begin(self._limits(), anyio.current_time())

        def progressed(told: dict[str, JsonValue]) -> float:
            nonlocal time
            time = call_time.progressed(time, anyio.current_time())
            if on_progress is not None:
                on_progress(told)
            return time.deadline_at

        with self._opens.in_use(live.opened, self._session):
            try:
                line = await live.caller.request_line(
                    method,
                    params,
                    limit_s=time.deadline_at - anyio.current_time(),
                    setting=time.setting,
                    progress_token=token,
                    on_progress=progressed,
                )
            except CallTimedOutError as error:
                self._failed(error)
                raise CallTimedOutError(
                    self.name, time.limit_s, time.setting, error.last_stderr
                ) from None
            except CallError as error:
                self._failed(error)
                raise
        self._breaker = breaker.succeeded(self._breaker)
        return line

    async def _tool(self, live: Live, tool: str) -> Tool:
        limit_s = self._limits().request_timeout_s
        for item in (await live.catalogue.listing("tools", limit_s=limit_s)).items:
            if item["name"] == tool:
                return item
        raise UnknownToolError(tool, self._session)

    async def _check_arguments(
        self, live: Live, name: str, tool: Tool, arguments: bytes | None
    ) -> None:
        schema, text = tool.get("inputSchema"), arguments or b"{}"
        if schema is None or len(text) > MAX_CHECKED_BYTES:
            return
        try:
            value = cast("JsonValue", json.loads(text))
        except (ValueError, RecursionError) as error:
            why = f"The arguments of tool {name!r} are no JSON that can be read."
            raise RequestError(why) from error
        try:
            unchecked = await live.schemas.check_arguments(name, schema, value)
        except SchemaUnusableError as error:
            # the server is the judge of its arguments
            self._opens.note_unchecked(self.name, name, str(error))
        else:
            self._note(unchecked)

    async def _check_result(self, live: Live, name: str, tool: Tool, result: bytes) -> None:
        schema = tool.get("outputSchema")
        if schema is None or len(result) > MAX_CHECKED_BYTES:
            return
        try:
            body = cast("dict[str, JsonValue]", json.loads(result))
        except (ValueError, RecursionError) as error:
            raise BadAnswerError(self.name, "tools/call", "its result cannot be read") from error
        if body.get("isError") is True or body.get("resultType", "complete") != "complete":
            return
        if "structuredContent" not in body:
            why = f"the result of tool {name!r} lacks the structuredContent that its schema wants"
            raise BadAnswerError(self.name, "tools/call", why)
        try:
            unchecked = await live.schemas.check_result(name, schema, body["structuredContent"])
        except SchemaUnusableError as error:
            self._opens.note_unchecked(self.name, name, str(error))
        else:
            self._note(unchecked)

    def _note(self, unchecked: Unchecked | None) -> None:
        if unchecked is not None:
            self._opens.note_unchecked(self.name, unchecked.tool, unchecked.why)

    # Opening

    async def _usable(self) -> Live:
        """The open connection for a call, unless the call has to be told something first.

        Raises:
            ServerGoneError: the server died since the last call; the next one finds a new one.
            ServerPausedError: it has failed too often in a row.
        """
        live = self._alive()
        if live is None and self._lost is not None:
            lost, self._lost = self._lost, None
            raise lost
        live = await self._open()
        paused = breaker.admit(self._breaker, anyio.current_time())
        if paused is not None:
            at_utc = utc_now(in_s=paused.retry_in_s)
            raise ServerPausedError(self.name, paused.failures, paused.retry_in_s, at_utc)
        return live

    def _alive(self) -> Live | None:
        """What there is; a server that has ended is let go of."""
        live = self._live
        if live is None or live.opened.channel.ended is None:
            return live
        reason = live.opened.channel.end_reason()
        self.close()
        if reason in UNASKED and not live.caller.told_of_end:
            self._lost = live.opened.channel.ended
        return None

    async def _open(self) -> Live:
        """Open the connection, or take the open one; all who ask meanwhile share the outcome."""
        while True:
            if self._retired:
                raise ChannelClosedError(self.name)
            live, opening = self._alive(), self._opening
            if live is not None:
                self.queue.allow_parallel(parallel=self._opens.record(self.name).parallel)
                return live
            if opening is None:
                await self._open_one()
                continue
            await opening.over.wait()
            if opening.error is not None:
                raise opening.error

    async def _open_one(self) -> None:
        """Open the connection; who gives up waiting leaves it to the next one who asks."""
        opening = self._opening = _Opening()
        try:
            await self._opens.wait_turn(self.name, self._session)
            async with self._opens.cold_start():
                live = await self._opener.open(lambda: self._retired)
        except SupervisorError as error:
            opening.error = error
            raise
        finally:
            self._opening = None
            opening.over.set()
        if self._retired:
            live.caller.close()
            return
        self._live = live
        self._breaker = Breaker()
        self._lost = None
        self._compare(live.catalogue)

    def _compare(self, catalogue: Catalogue) -> None:
        """Tell of tools that are not those of the process before; nobody else would say so."""
        before, self._catalogue = self._catalogue, catalogue
        if before is not None and before.known("tools") != catalogue.known("tools"):
            self._on_changed("tools")

    def _limits(self) -> CallLimits:
        return self._opens.record(self.name).calls

    def _failed(self, error: CallError) -> None:
        if breaker.is_failure(error):
            self._breaker = breaker.failed(self._breaker, anyio.current_time())


def _meta(handshake: Handshake, progress_token: int | None) -> bytes:
    """The `_meta` of a call: a progress token, and what the newest revision wants."""
    meta: dict[str, JsonValue] = own_envelope() if handshake.era == "modern" else {}
    if progress_token is not None:
        meta["progressToken"] = progress_token
    return b',"_meta":%b' % dump(meta) if meta else b""


def _is_read_only(tool: Tool) -> bool:
    match tool.get("annotations"):
        case {"readOnlyHint": True}:
            return True
        case _:
            return False


def _result_bytes(server: str, method: str, line: bytes) -> bytes:
    """The result of an answer line, byte for byte.

    Raises:
        RpcError: the answer is an error.
        BadAnswerError: it is neither.
    """
    span = find_span(line, ("result",))
    if span is None:
        result_of(server, method, line)
        raise BadAnswerError(server, method, "its answer has no result")
    return line[slice(*span)]
