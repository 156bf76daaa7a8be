"""One MCP client of a whole session: `mcpctl serve --session KEY`.

Each request has a task of its own, so that a slow server holds up nobody else, and so that a
cancellation ends just that one. The client's ids return as they were spelled.

Source: design sections 13 and 16; MCP 2025-11-25.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final, cast

import anyio
import structlog
from anyio.abc import TaskGroup
from pydantic import JsonValue

from supervisor.core.call_errors import INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from supervisor.core.envelope import Envelope, Kind, error_line, read_envelope
from supervisor.core.errors import SupervisorError
from supervisor.core.framing import Line, LineSplitter, TooLong
from supervisor.core.ids_on_wire import meaning
from supervisor.core.json_spans import find_span
from supervisor.core.listing import ListingKind
from supervisor.core.tool_errors import INVALID_PARAMS
from supervisor.gateway.speech import (
    failure_line,
    initialize_result,
    listing,
    result_line,
)
from supervisor.linux.pipes import HangUp, Sink, Source
from supervisor.runtime.session import SessionRuntime
from supervisor.transport.caller import dump

_log = structlog.get_logger(__name__)

MAX_IN_FLIGHT: Final = 256
"""Requests of one client that are under way; more wait in its own pipe."""

_TOKEN: Final = ("params", "_meta", "progressToken")
_ARGUMENTS: Final = ("params", "arguments")
_CANCELLED_ID: Final = ("params", "requestId")

_LISTS: Final[Mapping[str, tuple[ListingKind, str]]] = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resource_templates", "resourceTemplates"),
}

Params = dict[str, JsonValue]


class BadParamsError(Exception):
    """A request lacks what its method needs; the text says what."""


class ServeLink:
    """A client that sees all servers of a session as one."""

    def __init__(  # noqa: PLR0913 - what a client is, and its bounds
        self,
        source: Source,
        sink: Sink,
        runtime: SessionRuntime,
        tasks: TaskGroup,
        *,
        max_line_bytes: int,
        max_queue_bytes: int,
        on_end: Callable[[], None],
    ) -> None:
        self._source = source
        self._sink = sink
        self._runtime = runtime
        self._tasks = tasks
        self._on_end = on_end
        self._max_queue_bytes = max_queue_bytes
        self._splitter = LineSplitter(max_line_bytes)
        self._in_flight: dict[bytes, anyio.CancelScope] = {}
        self._ready = False
        self._over = False
        self._drained = anyio.Event()

    def begin(self, early: bytes) -> None:
        """Take lines from now on; `early` came with the greeting."""
        self._runtime.watchers.add(self._changed)
        self._runtime.served.add(self.end)
        self._source.redirect(self._from_client)
        if early:
            self._from_client(early)
        if self._source.ended:
            self.source_ended()

    def source_ended(self) -> None:
        """The client says no more: it gets its answers, then it is let go."""
        self._take(self._splitter.end())
        self._look_drained()
        self._tasks.start_soon(self._leave)

    def end(self) -> None:
        """Cancel what is in flight and close the connection."""
        if not self._over:
            self._over = True
            self._runtime.watchers.discard(self._changed)
            self._runtime.served.discard(self.end)
            for scope in self._in_flight.values():
                scope.cancel()
            self._source.close()
            self._sink.end()
            self._on_end()

    async def _leave(self) -> None:
        """Each request has a time limit of its own; a client that is dead waits for none."""
        if self._over:
            return
        gone = HangUp(self._source.fd, self._drained.set, reading_too=True)
        try:
            await self._drained.wait()
        finally:
            gone.close()
        self.end()

    def _from_client(self, data: bytes) -> None:
        self._take(self._splitter.feed(data))

    def _take(self, lines: list[Line | TooLong]) -> None:
        for line in lines:
            if isinstance(line, TooLong):
                text = f"The line of {line.length} bytes is too long; see maxLineBytes."
                self._write(error_line(b"null", INVALID_REQUEST, text))
                continue
            self._act(line, read_envelope(line))

    def _act(self, line: bytes, envelope: Envelope) -> None:
        token = envelope.id_token or b"null"
        match envelope.kind:
            case Kind.REQUEST if meaning(token) in self._in_flight:
                text = "A request with this id is still in flight; use another one."
                self._write(error_line(token, INVALID_REQUEST, text))
            case Kind.REQUEST:
                scope = self._in_flight[meaning(token)] = anyio.CancelScope()
                self._tasks.start_soon(self._serve, line, envelope, token, scope)
                if len(self._in_flight) >= MAX_IN_FLIGHT:
                    self._source.pause()
            case Kind.NOTIFICATION:
                self._notified(line, envelope.method or "")
            case Kind.BAD_ID:
                text = "An id has to be a string or an integer."
                self._write(error_line(token, INVALID_REQUEST, text))
            case Kind.STRAY:
                text = "The line is no JSON-RPC 2.0 message."
                self._write(error_line(b"null", PARSE_ERROR, text))
            case Kind.RESPONSE:
                pass  # nothing is asked of this client

    def _notified(self, line: bytes, method: str) -> None:
        if method == "notifications/initialized":
            self._ready = True
        elif method == "notifications/cancelled":
            span = find_span(line, _CANCELLED_ID)
            scope = None if span is None else self._in_flight.get(meaning(line[slice(*span)]))
            if scope is not None:
                scope.cancel()

    async def _serve(
        self, line: bytes, envelope: Envelope, token: bytes, scope: anyio.CancelScope
    ) -> None:
        with scope:
            try:
                answer = result_line(token, await self._result(line, envelope.method or ""))
            except SupervisorError as error:
                answer = failure_line(token, error)
            except BadParamsError as error:
                answer = error_line(token, INVALID_PARAMS, str(error))
            except LookupError:
                text = f"This server does not know the method {envelope.method!r}."
                answer = error_line(token, METHOD_NOT_FOUND, text)
            except Exception:  # noqa: BLE001 - one request's bug is kept from the others
                _log.exception("request_of_session_failed", method=envelope.method)
                answer = error_line(token, -32603, "The daemon met a bug; its log has the rest.")
            self._write(answer)
        self._in_flight.pop(meaning(token), None)
        if not self._over and len(self._in_flight) < MAX_IN_FLIGHT:
            self._source.resume()
        self._look_drained()

    async def _result(self, line: bytes, method: str) -> bytes:
        """The result of one request, as JSON.

        Raises:
            LookupError: the method is not known.
            BadParamsError: its params are not what it needs.
            SupervisorError: it failed.
        """
        if method in _LISTS:
            kind, name = _LISTS[method]
            return listing(name, (await self._runtime.listing(kind)).items)
        params = _params(line)
        match method:
            case "initialize":
                # no server is started for it: a client's patience for this answer is short
                instructions = self._runtime.instructions()
                return dump(initialize_result(params.get("protocolVersion"), instructions))
            case "ping":
                return b"{}"
            case "tools/call":
                return await self._call(line, _text(params, "name"))
            case "prompts/get":
                return await self._runtime.get_prompt(_text(params, "name"), params)
            case "resources/read":
                return await self._runtime.read_resource(_text(params, "uri"), params)
            case _:
                raise LookupError(method)

    async def _call(self, line: bytes, name: str) -> bytes:
        arguments = find_span(line, _ARGUMENTS)
        progress = find_span(line, _TOKEN)
        token = None if progress is None else line[slice(*progress)]

        def forward(told: Params) -> None:
            rest = {key: value for key, value in told.items() if key != "progressToken"}
            inner = dump(rest)[1:]
            comma = b"" if inner == b"}" else b","
            self._write(
                b'{"jsonrpc":"2.0","method":"notifications/progress",'
                b'"params":{"progressToken":%b%b%b}' % (token or b"null", comma, inner)
            )

        return await self._runtime.call_tool(
            name,
            None if arguments is None else line[slice(*arguments)],
            on_progress=None if token is None else forward,
        )

    def _changed(self, kind: ListingKind) -> None:
        """A server's list has changed; clients know three kinds of them."""
        if self._ready:
            noun = "resources" if kind == "resource_templates" else kind
            self._write(
                b'{"jsonrpc":"2.0","method":"notifications/%b/list_changed"}' % noun.encode()
            )

    def _write(self, line: bytes) -> None:
        if self._over:
            return
        if self._sink.waiting_bytes > self._max_queue_bytes:
            _log.warning(
                "client_too_slow", session=self._runtime.key, waiting_bytes=self._sink.waiting_bytes
            )
            self._sink.close()
            self.end()
            return
        self._sink.write(line + b"\n")

    def _look_drained(self) -> None:
        if self._source.ended and not self._in_flight:
            self._drained.set()


def _params(line: bytes) -> Params:
    try:
        body = cast("object", json.loads(line))
    except (ValueError, RecursionError) as error:
        why = "The request is no valid JSON."
        raise BadParamsError(why) from error
    match body:
        case {"params": dict(params)}:
            return cast("Params", params)
        case {"params": _}:
            why = "`params` has to be an object."
            raise BadParamsError(why)
        case _:
            return {}


def _text(params: Params, key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str):
        why = f"`params.{key}` has to be a text."
        raise BadParamsError(why)
    return value
