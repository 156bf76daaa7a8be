"""One client of a named session: what it asks goes to the session's server, whichever process.

The connection outlives the server. When the server dies, what was in flight fails at once; the
next request starts it again, with the client's own handshake, and goes there. Where nothing was in
flight the next request is told of the death first, since what the server knew is lost.

Source: design sections 9 and 10.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from supervisor.core.call_errors import CallError, ServerGoneError, rpc_code_of
from supervisor.core.ending import UNASKED
from supervisor.core.envelope import Envelope, Kind, error_line, read_envelope
from supervisor.core.errors import SupervisorError
from supervisor.core.framing import Line, LineSplitter, TooLong
from supervisor.core.ids import ServerName, SessionKey
from supervisor.linux.pipes import HangUp, Sink, Source
from supervisor.manager.session_channels import SessionChannel, SessionChannels
from supervisor.transport.shared_handshake import (
    MODERN,
    ROOTS_CHANGED,
    Hello,
    read_hello,
    with_id,
)

if TYPE_CHECKING:
    from supervisor.core.report import Reason

BACKLOG_LINES: Final = 64
"""How many lines may wait for a server that starts, before the client is paused."""

ENDS_CONNECTION: Final[frozenset["Reason"]] = frozenset({"stop", "shutdown"})
"""Ends of a server after which its clients are let go: somebody wants it not to run."""

_INITIALIZE: Final = "initialize"
_INITIALIZED: Final = "notifications/initialized"
_DISCOVER: Final = "server/discover"


class SessionLink:
    """A peer of the channels that one client uses in turn.

    Args:
        source: what the client sends.
        sink: what it reads.
        server: the name of its server.
        session: the key.
        cwd: its directory, or None.
        channels: of all sessions.
        tasks: where a start is waited for.
        max_queue_bytes: how much the client may leave unread.
        on_move: called when another instance serves the client.
    """

    is_client = True

    def __init__(  # noqa: PLR0913 - who the client is, and what it needs
        self,
        source: Source,
        sink: Sink,
        server: ServerName,
        session: SessionKey,
        cwd: str | None,
        *,
        channels: SessionChannels,
        tasks: TaskGroup,
        max_line_bytes: int,
        max_queue_bytes: int,
        on_move: Callable[[SessionChannel], None],
        on_end: Callable[[], None],
    ) -> None:
        self._source = source
        self._sink = sink
        self._server = server
        self._session = session
        self._cwd = cwd
        self._channels = channels
        self._tasks = tasks
        self._max_queue_bytes = max_queue_bytes
        self._on_move = on_move
        self._on_end = on_end
        self._splitter = LineSplitter(max_line_bytes)
        self._bound: SessionChannel | None = None
        self._first: SessionChannel | None = None
        self._followed: SessionChannel | None = None
        self._client = 0
        self._hello: Hello | None = None
        self._news: ServerGoneError | None = None
        self._backlog: deque[Line | TooLong] = deque()
        self._binding = False
        self._over = False
        self._drained = anyio.Event()

    def begin(self, first: SessionChannel, early: bytes) -> None:
        """Take lines from now on; `early` came with the greeting.

        `first` is what its stderr connection follows; it is used only if the client's first words
        lead there, since it may be of a client that says something else of itself.
        """
        self._first = self._followed = first
        self._source.redirect(self._from_client)
        if early:
            self._from_client(early)
        if self._source.ended:
            self.source_ended()

    def source_ended(self) -> None:
        """The client says no more: it gets what it asked for, then it is let go."""
        self._take(self._splitter.end())
        self._look_drained()
        self._tasks.start_soon(self._leave)

    async def _leave(self) -> None:
        """A client that is fed from a file closes its side at once, and reads on."""
        if self._over:
            return
        gone = HangUp(self._source.fd, self._drained.set, reading_too=True)
        try:
            with anyio.move_on_after(self._channels.request_timeout_s(self._server)):
                await self._drained.wait()
        finally:
            gone.close()
        self.end()

    def end(self) -> None:
        """Let go of the server and close the connection."""
        if not self._over:
            self._over = True
            self._unbind()
            self._source.close()
            self._sink.end()
            self._on_end()

    # As a channel's peer

    def deliver(self, data: bytes) -> None:
        """Write to the client; one that leaves too much unread is let go."""
        if self._sink.waiting_bytes > self._max_queue_bytes:
            self._channels.too_slow(self._bound, self._sink.waiting_bytes)
            self._sink.close()
            self.end()
            return
        self._sink.write(data)
        self._look_drained()

    def fail(self, id_token: bytes, error: CallError) -> None:
        """Answer one request with an error."""
        self._answer(error_line(id_token, error.rpc_code, str(error)))

    def pause(self) -> None:
        """The server does not read."""
        self._source.pause()

    def resume(self) -> None:
        """It reads again."""
        if not self._over:
            self._source.resume()

    def channel_ended(self, error: ServerGoneError, failed: int) -> None:
        """The server is gone; the next request starts it again, or is told first."""
        bound, self._bound = self._bound, None
        reason = None if bound is None else bound.channel.end_reason()
        if reason in ENDS_CONNECTION:
            self.end()
            return
        self.resume()
        if not failed and reason in UNASKED:
            self._news = error

    # Lines of the client

    def _from_client(self, data: bytes) -> None:
        self._take(self._splitter.feed(data))

    def _take(self, lines: list[Line | TooLong]) -> None:
        self._backlog.extend(lines)
        self._pump()

    def _pump(self) -> None:
        """Send what can be sent now, in order."""
        batch: list[Line | TooLong] = []
        while self._backlog and not self._binding and not self._over:
            line = self._backlog.popleft()
            if self._is_plain(line):
                batch.append(line)
                continue
            if batch:
                self._send(batch)
                batch = []
            self._act(line)
        if batch:
            self._send(batch)
        if self._binding and len(self._backlog) > BACKLOG_LINES:
            self._source.pause()

    def _is_plain(self, line: Line | TooLong) -> bool:
        """Whether a line goes to the server as it is, as almost all do."""
        if self._bound is None or not (self._hello or self._bound.handshake.identity == MODERN):
            return False
        return isinstance(line, TooLong) or b"initialize" not in line

    def _act(self, line: Line | TooLong) -> None:
        """Handle a line that is part of a handshake, or that finds no server."""
        if isinstance(line, TooLong):
            envelope = Envelope(Kind.STRAY)
        else:
            envelope = read_envelope(line)
            if envelope.method == _INITIALIZE and envelope.kind is Kind.REQUEST:
                self._say_hello(line, envelope)
                return
            if envelope.method == _INITIALIZED:
                return  # it was said when the handshake was made
        if envelope.kind is Kind.REQUEST and self._news is not None:
            news, self._news = self._news, None
            self.fail(envelope.id_token or b"null", news)
            return
        if envelope.method == _DISCOVER and self._bound is None and self._hello is None:
            self._use_first()  # any server may be asked that, and most refuse
        if self._needs_server(envelope):
            self._backlog.appendleft(line)
            self._start(self._rebind, envelope)
        elif self._bound is not None:
            self._send([line])

    def _use_first(self) -> None:
        if self._first is not None and self._first.usable:
            self._bind_to(self._first)

    def _needs_server(self, envelope: Envelope) -> bool:
        """Whether there is no server, or none that may take this request.

        What is no message wants one too: it is refused where all such lines are.
        """
        if self._bound is None:
            return envelope.kind not in {Kind.NOTIFICATION, Kind.RESPONSE}
        told = self._hello is not None or envelope.method == _DISCOVER
        if envelope.kind is not Kind.REQUEST or told:
            return False
        return not self._bound.handshake.claim(MODERN)

    def _send(self, lines: list[Line | TooLong]) -> None:
        if self._bound is not None:
            self._bound.channel.send(self._client, lines)

    # Servers

    def _say_hello(self, line: bytes, envelope: Envelope) -> None:
        hello = read_hello(line)
        if hello is None:
            self._use_first()
            self._send([line])  # the server says what is wrong with it
            return
        self._hello, self._news = hello, None
        self._start(self._greet, envelope)

    def _start(self, act: Callable[[Envelope], Awaitable[None]], envelope: Envelope) -> None:
        self._binding = True
        self._tasks.start_soon(self._carry_out, act, envelope)

    async def _carry_out(
        self, act: Callable[[Envelope], Awaitable[None]], envelope: Envelope
    ) -> None:
        try:
            await act(envelope)
        except SupervisorError as error:
            token = envelope.id_token or b"null"
            if self._backlog and act == self._rebind:
                self._backlog.popleft()
            self._answer(error_line(token, rpc_code_of(error), str(error)))
        finally:
            self._binding = False
        if not self._over:
            self._source.resume()
            self._pump()
            self._look_drained()

    async def _greet(self, envelope: Envelope) -> None:
        """Answer `initialize`: with the server's answer, fresh or kept."""
        hello = self._hello
        if hello is None:
            return
        chosen = await self._channels.ensure(self._server, self._session, self._cwd, hello.identity)
        try:
            answer, kept = await self._shake(chosen, hello)
        except SupervisorError:
            self._hello = None  # nothing was agreed upon
            raise
        self._answer(with_id(answer, envelope.id_token or b"null"))
        if kept and hello.roots:
            self._send([ROOTS_CHANGED])

    async def _rebind(self, _envelope: Envelope) -> None:
        """Find a server for a request: the old one is gone."""
        hello = self._hello
        identity = MODERN if hello is None else hello.identity
        chosen = await self._channels.ensure(self._server, self._session, self._cwd, identity)
        if hello is None:
            self._bind_to(chosen)
        else:
            await self._shake(chosen, hello)

    async def _shake(self, chosen: SessionChannel, hello: Hello) -> tuple[bytes, bool]:
        """Make or take the handshake of a server, and use that server from then on."""
        self._channels.acquire(chosen)
        try:
            answer, kept = await chosen.handshake.make(hello)
            if not self._over:
                self._bind_to(chosen)
        finally:
            self._channels.left(chosen)
        return answer, kept

    def _bind_to(self, chosen: SessionChannel) -> None:
        if self._bound is chosen:
            return
        moved = self._followed is not chosen
        self._unbind()
        if chosen.channel.ended is not None:
            return  # it died meanwhile; the next request finds another
        self._bound = chosen
        self._client = chosen.channel.attach(self)
        self._channels.acquire(chosen)
        if moved:
            self._followed = chosen
            self._on_move(chosen)

    def _unbind(self) -> None:
        bound, self._bound = self._bound, None
        if bound is not None:
            bound.channel.detach(self._client)
            self._channels.left(bound)

    def _answer(self, line: bytes) -> None:
        self._sink.write(line + b"\n")
        self._look_drained()

    def _look_drained(self) -> None:
        """Whether a client that says no more has got everything."""
        if not self._source.ended or self._binding or self._backlog:
            return
        bound = self._bound
        if bound is None or not bound.channel.ids.in_flight(self._client):
            self._drained.set()
