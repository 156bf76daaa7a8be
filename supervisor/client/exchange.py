"""Requests of the async client: httpx2 over the control socket, its errors said in our words.

Each request has a connection of its own: one that was kept could end just as it is used again,
and a call of a tool must not be sent twice. Cancelling a request closes its connection.
"""

import json
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, Self, TypeVar, cast

import anyio
import httpx2

from supervisor.client.errors import (
    GarbledAnswerError,
    hung_up,
    refusal,
    silent,
    unreachable,
)
from supervisor.client.reach import CONNECT_LIMIT_S
from supervisor.core.errors import SupervisorError
from supervisor.core.places import MAX_SOCKET_PATH_BYTES

Body = TypeVar("Body")

_HOST: Final = "http://localhost"
_ONE_REQUEST: Final = {"Connection": "close"}
_JSON: Final = {"Content-Type": "application/json"}
_STREAM: Final = {"Accept": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Result(Generic[Body]):
    """What came back, as it is.

    Attributes:
        raw: the JSON, byte for byte as it was sent.
        value: what it says.
    """

    raw: bytes
    value: Body


class Exchange:
    """Asks one daemon, any number of requests side by side; open as an async context manager.

    Attributes:
        path: the control socket.
    """

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self._stack: Final = AsyncExitStack()
        self._http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            transport = httpx2.AsyncHTTPTransport(
                uds=self._short_path(stack),
                verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # never used; the default is slow
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
                trust_env=False,
            )
            self._http = await stack.enter_async_context(
                httpx2.AsyncClient(transport=transport, trust_env=False, headers=_ONE_REQUEST)
            )
            self._stack.push_async_exit(stack.pop_all())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http = None
        await self._stack.__aexit__(kind, error, trace)

    async def ask(
        self,
        _: type[Body],
        method: str,
        target: str,
        content: bytes | None = None,
        patience_s: float | None = None,
    ) -> Result[Body]:
        """One request; the body of its answer.

        Args:
            method: such as `GET`.
            target: path and query, quoted.
            content: a JSON document, or None.
            patience_s: seconds that each part of the answer may take; None waits for ever.

        Raises:
            DaemonUnreachableError: nobody answers, or not to the end.
            KernelError: the socket may not be used.
            GarbledAnswerError: what answers is no daemon of ours.
            ProblemError: the daemon refused or failed, and said why.
        """
        headers = {} if content is None else _JSON
        async with self._answer(method, target, content, headers, patience_s) as answer:
            raw = await answer.aread()
        # the daemon made it from the dataclasses that `bodies` mirrors, or the server from MCP's
        return Result(raw, cast("Body", self.parse(raw)))

    def parse(self, raw: bytes | str) -> object:
        """The JSON object that `raw` is.

        Raises:
            GarbledAnswerError: it is none.
        """
        try:
            body = cast("object", json.loads(raw))
        except (ValueError, RecursionError):
            raise GarbledAnswerError(self.path, "it is not JSON") from None
        if not isinstance(body, dict):
            raise GarbledAnswerError(self.path, "it is no JSON object")
        return cast("object", body)

    @asynccontextmanager
    async def follow(
        self, target: str, after: str | None
    ) -> AsyncIterator[AsyncIterator[httpx2.ServerSentEvent]]:
        """A stream of events that has begun, up to its end; for errors see `ask`.

        Args:
            target: path and query, quoted.
            after: the Last-Event-ID.
        """
        headers = _STREAM if after is None else {**_STREAM, "Last-Event-ID": after}
        async with (
            self._answer("GET", target, None, headers, None) as answer,
            aclosing(self._messages(answer)) as messages,
        ):
            yield messages

    async def _messages(
        self, answer: httpx2.Response
    ) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        # a cleanup report is part of its event, and has no limit of its own
        source = aiter(httpx2.EventSource(answer, max_event_size=None))
        try:
            async for message in source:
                yield message
        except httpx2.TransportError as error:
            raise self._explained(error, began=True) from error
        finally:
            # httpx2's own generators are run to the end that the closed connection gives them:
            # trio warns of those that are left in the middle
            with (
                anyio.CancelScope(shield=True),
                suppress(httpx2.TransportError, httpx2.StreamError),
            ):
                await answer.aclose()
                async for _ in source:
                    """What had come already, and nobody wants."""

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        target: str,
        content: bytes | None,
        headers: Mapping[str, str],
        patience_s: float | None,
    ) -> AsyncIterator[httpx2.Response]:
        """The answer to a request, once its head is there and says that it was done."""
        if self._http is None:
            message = "an AsyncClient is used inside `async with`"
            raise RuntimeError(message)
        request = self._http.build_request(
            method,
            _HOST,
            content=content,
            headers=headers,
            timeout=httpx2.Timeout(patience_s, connect=CONNECT_LIMIT_S, pool=None),
            extensions={"target": target.encode()},  # a URL would lose `..`, which may be a key
        )
        answer: httpx2.Response | None = None
        try:
            answer = await self._http.send(request, stream=True)
            if not answer.is_success:
                text = (await answer.aread()).decode(errors="replace")
                raise refusal(self.path, answer.status_code, text)
            yield answer
        except httpx2.TransportError as error:
            raise self._explained(error, began=answer is not None) from error
        finally:
            if answer is not None:
                await answer.aclose()

    def _explained(self, error: httpx2.TransportError, *, began: bool) -> SupervisorError:
        """What went wrong, for people; `began`: the head of the answer had come."""
        match error:
            case httpx2.TimeoutException():
                return silent(self.path)
            case httpx2.ConnectError():
                return unreachable(self.path, _kernels(error))
            case httpx2.SSEError():
                return GarbledAnswerError(self.path, "it is no stream of events")
            case httpx2.RemoteProtocolError() if not began and _was_parsed(error):
                return GarbledAnswerError(self.path, "it is not HTTP")
            case _:
                return hung_up(self.path)

    def _short_path(self, stack: AsyncExitStack) -> str:
        """A path to the socket that fits into an address, however deep its folder; unix(7)."""
        if len(os.fsencode(self.path)) <= MAX_SOCKET_PATH_BYTES:
            return self.path
        folder, name = os.path.split(self.path)
        try:
            fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise unreachable(self.path, error) from None
        stack.callback(os.close, fd)
        return f"/proc/self/fd/{fd}/{name}"


def _kernels(error: BaseException) -> OSError:
    """The kernel's reason under the layers of a failed connection."""
    under: BaseException | None = error
    while under is not None:
        if isinstance(under, OSError):
            return under
        under = under.__cause__ or under.__context__
    return OSError(str(error))


def _was_parsed(error: httpx2.RemoteProtocolError) -> bool:
    """Whether the parser found fault, and it is not just that the connection ended.

    Source: httpcore2 2.16, `AsyncHTTP11Connection`: it carries h11's own error, or a sentence.
    """
    under = error.__cause__
    return under is not None and any(isinstance(what, Exception) for what in under.args)
