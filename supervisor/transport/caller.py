"""The daemon as a client of a channel: asks, waits, hears progress and notifications.

One task waits for each request; the channel delivers to it without a task of its own.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final, cast

import anyio
from pydantic import JsonValue

from supervisor.core.call_errors import (
    METHOD_NOT_FOUND,
    BadAnswerError,
    CallError,
    CallTimedOutError,
    ChannelClosedError,
    RpcError,
    ServerGoneError,
)
from supervisor.core.envelope import Kind, error_line, read_envelope
from supervisor.transport.channel import Channel

Params = Mapping[str, JsonValue]
OnProgress = Callable[[dict[str, JsonValue]], float | None]
"""Takes the params of a progress notification; may answer the instant until which to wait now."""

MAX_MESSAGE_CHARS: Final = 500
"""How much of a server's error message is repeated."""


class _Waiter:
    """One request under way."""

    __slots__ = ("answer", "answered", "error", "on_progress", "scope")

    def __init__(self, scope: anyio.CancelScope, on_progress: OnProgress | None) -> None:
        self.scope = scope
        self.answer = b""
        self.answered = anyio.Event()
        self.error: CallError | None = None
        self.on_progress = on_progress


class Caller:
    """A peer that asks for the daemon; implements `Requests`.

    Attributes:
        on_notification: called with the method and the whole line of each notification.
        told_of_end: whether a request was in flight when the server ended.
    """

    is_client = False

    def __init__(self, channel: Channel) -> None:
        self.on_notification: Callable[[str, bytes], None] = _ignore
        self.told_of_end = False
        self._closed = False
        self._channel = channel
        self._client = channel.attach(self)
        self._last_id = 0
        self._last_token = 0
        self._waiters: dict[bytes, _Waiter] = {}
        self._hearing: dict[bytes, _Waiter] = {}

    def new_token(self) -> int:
        """A progress token that no other request has."""
        self._last_token += 1
        return self._last_token

    def close(self) -> None:
        """Take leave of the channel; what is in flight is cancelled, and told so at once."""
        self._closed = True
        self._channel.detach(self._client)
        for waiter in self._waiters.values():
            waiter.error = ChannelClosedError(self._channel.server)
            waiter.answered.set()

    async def request(
        self,
        method: str,
        params: Params | None = None,
        *,
        limit_s: float,
        setting: str = "requestTimeoutMs",
    ) -> dict[str, JsonValue]:
        """Ask, and wait for the result; see `Requests`."""
        body = None if params is None else dump(params)
        line = await self.request_line(method, body, limit_s=limit_s, setting=setting)
        return result_of(self._channel.server, method, line)

    async def request_line(
        self,
        method: str,
        params: bytes | None,
        *,
        limit_s: float,
        setting: str = "requestTimeoutMs",
        progress_token: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> bytes:
        """Ask with params as they are, and wait for the whole answer line.

        Args:
            method: of MCP.
            params: one JSON object, or None.
            limit_s: seconds from now.
            setting: see `Requests`.
            progress_token: that of the params, made by `new_token`.
            on_progress: called for each progress of this request.

        Returns:
            The response or the error of the server.

        Raises:
            CallError: there was none; see `Requests`.
        """
        if self._closed:
            raise ChannelClosedError(self._channel.server)
        self._last_id += 1
        token = b"%d" % self._last_id
        scope = anyio.CancelScope(deadline=anyio.current_time() + limit_s)
        waiter = self._waiters[token] = _Waiter(scope, on_progress)
        if progress_token is not None:
            self._hearing[dump(progress_token)] = waiter
        params_part = b"" if params is None else b',"params":%b' % _on_one_line(params)
        line = b'{"jsonrpc":"2.0","id":%b,"method":%b%b}' % (token, dump(method), params_part)
        try:
            self._channel.send(self._client, [line])
            with scope:
                await waiter.answered.wait()
            if waiter.error is not None:
                raise waiter.error
            if not waiter.answer:
                self._channel.cancel(self._client, token, "the time limit is over")
                tail = self._channel.held.family.tail.lines()
                raise CallTimedOutError(self._channel.server, limit_s, setting, tail)
        except anyio.get_cancelled_exc_class():
            self._channel.cancel(self._client, token, "the caller does not wait any more")
            raise
        finally:
            del self._waiters[token]
            self._hearing.pop(dump(progress_token), None)
        return waiter.answer

    def notify(self, method: str, params: Params | None = None) -> None:
        """Tell the server something."""
        params_part = b"" if params is None else b',"params":%b' % dump(params)
        line = b'{"jsonrpc":"2.0","method":%b%b}' % (dump(method), params_part)
        self._channel.send(self._client, [line])

    # As the channel's peer

    def deliver(self, data: bytes) -> None:
        """Take lines: answers, notifications, questions."""
        for line in data.removesuffix(b"\n").split(b"\n"):
            envelope = read_envelope(line)
            token = envelope.id_token
            if envelope.kind is Kind.RESPONSE:
                waiter = self._waiters.get(token or b"")
                if waiter is not None:
                    waiter.answer = line
                    waiter.answered.set()
            elif envelope.kind is Kind.NOTIFICATION:
                self._notified(envelope.method or "", line)
            elif envelope.kind is Kind.REQUEST and token is not None:
                text = f"This client does not answer {envelope.method!r}."
                self._channel.send(self._client, [error_line(token, METHOD_NOT_FOUND, text)])

    def fail(self, id_token: bytes, error: CallError) -> None:
        """One request gets no answer."""
        waiter = self._waiters.get(id_token)
        if waiter is not None:
            waiter.error = error
            waiter.answered.set()

    def pause(self) -> None:
        """What asks for the daemon is bounded by its own time limits."""

    def resume(self) -> None:
        """Nothing was held back."""

    def channel_ended(self, error: ServerGoneError, failed: int) -> None:
        """Every request in flight has got its error as an answer."""
        self.told_of_end = failed > 0

    def _progressed(self, params: dict[str, JsonValue]) -> None:
        waiter = self._hearing.get(dump(params.get("progressToken")))
        if waiter is not None and waiter.on_progress is not None:
            deadline_at = waiter.on_progress(params)
            if deadline_at is not None:
                waiter.scope.deadline = deadline_at

    def _notified(self, method: str, line: bytes) -> None:
        if method == "notifications/progress":
            self._progressed(_params_of(line))
            return
        self.on_notification(method, line)


def _on_one_line(json_text: bytes) -> bytes:
    """JSON without line breaks: outside of strings they are blanks, and inside there are none.

    A line break would end the message, and what follows it would be a message of its own.
    """
    return json_text.replace(b"\n", b" ").replace(b"\r", b" ")


def dump(value: object) -> bytes:
    """Compact JSON, UTF-8; what no UTF-8 can say, a lone surrogate, is written as an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def result_of(server: str, method: str, line: bytes) -> dict[str, JsonValue]:
    """The result in an answer line.

    Raises:
        RpcError: it is an error.
        BadAnswerError: it is no answer that the protocol allows.
    """
    try:
        body = cast("object", json.loads(line))
    except (ValueError, RecursionError):
        raise BadAnswerError(server, method, "its answer is no JSON") from None
    match body:
        case {"result": dict(result)}:
            return cast("dict[str, JsonValue]", result)
        case {"error": {"code": int(code), "message": str(message)} as error}:
            data = cast("dict[str, JsonValue]", error).get("data")
            shown = "".join(c if c.isprintable() else " " for c in message[:MAX_MESSAGE_CHARS])
            raise RpcError(server, method, code, shown, data)
        case _:
            raise BadAnswerError(server, method, "its answer has neither a result nor an error")


def _params_of(line: bytes) -> dict[str, JsonValue]:
    try:
        body = cast("object", json.loads(line))
    except (ValueError, RecursionError):
        return {}
    match body:
        case {"params": dict(params)}:
            return cast("dict[str, JsonValue]", params)
        case _:
            return {}


def _ignore(_method: str, _line: bytes) -> None:
    """Nobody wants to know."""
