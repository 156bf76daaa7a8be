"""The way from the server to its clients: whose each line is, and what becomes of odd ones.

A line that is too long or no UTF-8 costs the one call that it answers; a line that is no JSON-RPC
is counted and shown; an answer that nobody waits for is dropped and counted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, assert_never

import anyio

from supervisor.core.addressing import choose_client
from supervisor.core.call_errors import (
    INTERNAL,
    INVALID_REQUEST,
    AnswerNotUtf8Error,
    AnswerTooLongError,
    CallError,
)
from supervisor.core.envelope import Envelope, Kind, error_line, read_ends, read_envelope
from supervisor.core.errors import RefusedIdError
from supervisor.core.framing import Line, LineSplitter, TooLong
from supervisor.core.ids_on_wire import Delivery, InFlight, Late, Stray, Unaddressed

if TYPE_CHECKING:
    from supervisor.transport.channel import Channel

_PING: Final = "ping"
_STARTING: Final = frozenset({"initialize", "server/discover"})
_ERROR_WITHIN_BYTES: Final = 256
"""Where an error answer says so; it is for counting only."""

Outbox = dict[int, list[bytes]]
"""Lines for each client, in order."""


class Incoming:
    """The lines of one server process."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._splitter: Final = LineSplitter(channel.limits.max_line_bytes)

    def feed(self, data: bytes) -> None:
        """Take what the server wrote."""
        channel = self._channel
        channel.metrics.bytes_moved(channel.server, "from_server", len(data))
        self._take(self._splitter.feed(data))
        if self._splitter.endless and not channel.held.instance.stopping:
            channel.held.instance.request_stop("endless_line")

    def end(self) -> None:
        """Take a last line that has no newline."""
        self._take(self._splitter.end())

    def limit(self, max_line_bytes: int) -> None:
        """Take another limit from the next line on."""
        self._splitter.limit(max_line_bytes)

    def _take(self, lines: Sequence[Line | TooLong]) -> None:
        channel, now = self._channel, anyio.current_time()
        out: Outbox = {}
        strays_before = channel.strays.count
        for line in lines:
            if isinstance(line, TooLong):
                self._too_long(line)
            else:
                self._take_line(line, out, now)
        for client, lines_of_client in out.items():
            channel.deliver(client, lines_of_client)
        strays = channel.strays.count - strays_before
        if strays:  # counted together: a server may write a hundred thousand of them
            channel.metrics.stray_lines(channel.server, strays)

    def _take_line(self, line: bytes, out: Outbox, now: float) -> None:
        envelope = read_envelope(line)
        if not (line.isascii() or LineSplitter.is_utf8(line)):
            self._not_utf8(line, envelope)
            return
        found = self._channel.ids.incoming(line, envelope)
        match found:
            case Delivery():
                out.setdefault(found.client, []).append(found.line)
                if found.answered is not None:
                    self._answered(found.answered, line, now)
            case Unaddressed():
                self._unaddressed(line, envelope, out)
            case Late(kind):
                self._channel.drop("late_answer" if kind == "late" else "unasked_answer")
            case Stray():
                self._stray(line, envelope)
            case _:
                assert_never(found)

    def _answered(self, request: InFlight, line: bytes, now: float) -> None:
        channel = self._channel
        if request.method == "tools/call":
            failed = line.find(b'"error"', 0, _ERROR_WITHIN_BYTES) >= 0
            channel.count_call(request, "error" if failed else "ok", now)
        elif request.method in _STARTING and not channel.handshake.ready:
            channel.handshake.answered(request.method, line)
        channel.look_quiet()

    def _unaddressed(self, line: bytes, envelope: Envelope, out: Outbox) -> None:
        channel, method = self._channel, envelope.method or ""
        if envelope.kind is Kind.NOTIFICATION:
            clients = channel.subscribers.of(line, method, channel.peers)
            if not clients:
                channel.drop("nobody_attached")
            for client in clients:
                out.setdefault(client, []).append(line)
            return
        token = envelope.id_token or b"null"
        if method == _PING:
            channel.write([b'{"jsonrpc":"2.0","id":%b,"result":{}}' % token])
            return
        calling = {request.client for request in channel.ids.in_flight()} & channel.peers.keys()
        chosen = choose_client(channel.peers, calling)
        if isinstance(chosen, str):
            channel.write([error_line(token, INTERNAL, f"{method!r} is refused: {chosen}.")])
            channel.drop("nobody_attached")
            return
        try:
            out.setdefault(chosen, []).append(channel.ids.server_request(line, envelope, chosen))
        except RefusedIdError as error:
            channel.write([error_line(token, INVALID_REQUEST, str(error))])

    def _too_long(self, line: TooLong) -> None:
        channel = self._channel
        limit = channel.limits.max_line_bytes
        error = AnswerTooLongError(channel.server, line.length, limit)
        envelope = read_ends(line.head, line.tail)
        channel.drop("too_long")
        if envelope.kind is Kind.REQUEST:
            text = f"The line is longer than {limit} bytes."
            channel.write([error_line(envelope.id_token or b"null", INVALID_REQUEST, text)])
        elif envelope.kind is Kind.RESPONSE:
            self._spoiled(envelope, error)
        elif envelope.kind is Kind.STRAY:  # nobody can tell whose answer it was
            self._fail(channel.ids.fail_all(), error)

    def _not_utf8(self, line: bytes, envelope: Envelope) -> None:
        if envelope.kind is Kind.RESPONSE:
            self._spoiled(envelope, AnswerNotUtf8Error(self._channel.server))
        else:
            self._stray(line, envelope)

    def _spoiled(self, envelope: Envelope, error: CallError) -> None:
        """Fail the request that a lost line answers."""
        bare = b'{"jsonrpc":"2.0","id":%b,"result":{}}' % (envelope.id_token or b"null")
        found = self._channel.ids.incoming(bare, read_envelope(bare))
        if isinstance(found, Delivery) and found.answered is not None:
            self._fail((found.answered,), error)

    def _fail(self, requests: Sequence[InFlight], error: CallError) -> None:
        for request in requests:
            self._channel.count_call(request, "error")
            self._channel.refuse(request.client, request.id_token, error)
        self._channel.look_quiet()

    def _stray(self, line: bytes, envelope: Envelope) -> None:
        channel = self._channel
        if envelope.kind is Kind.RESPONSE:
            channel.drop("unasked_answer")
            return
        channel.strays.add(line)
        if channel.strays.count == 1:
            channel.events.record(
                "stray_output",
                level="warning",
                server=channel.server,
                instance=channel.held.instance.id,
                session=channel.held.instance.session,
                line=channel.strays.first()[0],
            )
