"""The way from clients to the server: which lines may pass, and who waits when it does not read.

Every request of a client gets an answer or an error; what cannot pass is refused at once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import anyio

from supervisor.core.call_errors import (
    INVALID_REQUEST,
    PARSE_ERROR,
    CallError,
    CallTimedOutError,
    NotReadingError,
    RequestTooLongError,
)
from supervisor.core.envelope import Envelope, Kind, error_line, read_ends, read_envelope
from supervisor.core.errors import RefusedIdError
from supervisor.core.framing import Line, LineSplitter, TooLong
from supervisor.transport.subscribers import UNSUBSCRIBE
from supervisor.transport.unread import Unread

if TYPE_CHECKING:
    from supervisor.transport.channel import Channel

HIGH_WATER_BYTES: Final = 1048576
"""How much may wait for a server before those who write to it are paused: some usual requests."""

_NEWLINE: Final = b"\n"
_STARTING: Final = frozenset({"initialize", "server/discover"})


class Outgoing:
    """The lines of all clients of one channel."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._stdin = channel.held.family.stdin
        self._stdin.on_drained = self._drained
        self._unread: Final = Unread()
        self._paused: set[int] = set()
        self._watching_reading = False

    def send(self, client: int, lines: Sequence[Line | TooLong]) -> None:
        """Take lines of a client; every request among them gets an answer or an error."""
        now = anyio.current_time()
        gone = self._channel.refuses_requests()
        passed: list[bytes] = []
        asked: list[bytes] = []
        for line in lines:
            if isinstance(line, TooLong):
                self._refuse_too_long(client, line)
                continue
            envelope = read_envelope(line)
            if gone is not None and envelope.kind is Kind.REQUEST:
                self._channel.refuse(client, envelope.id_token or b"null", gone)
                continue
            if envelope.method == UNSUBSCRIBE and self._watched_by_others(client, line, envelope):
                continue
            prepared = self._prepare(client, line, envelope, now)
            if prepared is None:
                continue
            passed.append(prepared)
            if envelope.kind is Kind.REQUEST:
                asked.append(envelope.id_token or b"")
                self._note_request(client, line, envelope)
        if passed:
            self.write(passed)
            self._watch_reading(client, asked, now)
        self._channel.look_quiet()  # a cancellation may have been the last of what was in flight

    def _prepare(self, client: int, line: bytes, envelope: Envelope, now: float) -> bytes | None:
        """The line as the server gets it; None where it does not get it."""
        channel = self._channel
        refused = self._refusal(line, envelope)
        if refused is None:
            try:
                return channel.ids.outgoing(client, line, envelope, now)
            except RefusedIdError as error:
                refused = error_line(error.id_token or b"null", INVALID_REQUEST, str(error))
        channel.deliver(client, [refused])
        return None

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines to the server, as one piece."""
        data = _NEWLINE.join(lines) + _NEWLINE
        self._channel.metrics.bytes_moved(self._channel.server, "to_server", len(data))
        self._unread.accepted_bytes += len(data)
        self._stdin.write(data)

    def forget(self, client: int) -> None:
        """A client has left."""
        self._paused.discard(client)
        self._unread.forget(client)

    async def _watch_unread(self) -> None:
        """Fail requests that the server has not read when their time is over, until none waits."""
        while self._unread.waiting:
            await anyio.sleep_until(self._unread.waiting[0].expires_at)
            unread_bytes = self._stdin.waiting_bytes
            for one in self._unread.expired(unread_bytes, anyio.current_time()):
                limit_s = self._channel.limits.request_timeout_s
                error = NotReadingError(self._channel.server, limit_s, unread_bytes)
                self._channel.fail(one.client, one.id_token, error)
        self._watching_reading = False

    def _watched_by_others(self, client: int, line: bytes, envelope: Envelope) -> bool:
        """Answer the end of a subscription that others share; False where the server has to."""
        channel, token = self._channel, envelope.id_token
        if channel.private or token is None or not channel.subscribers.others_watch(client, line):
            return False
        channel.subscribers.note(client, line, UNSUBSCRIBE)
        channel.deliver(client, [b'{"jsonrpc":"2.0","id":%b,"result":{}}' % token])
        return True

    @staticmethod
    def _refusal(line: bytes, envelope: Envelope) -> bytes | None:
        """The error for a client's line that cannot go to the server; None lets it pass."""
        if not (line.isascii() or LineSplitter.is_utf8(line)):
            return error_line(envelope.id_token or b"null", PARSE_ERROR, "The line is not UTF-8.")
        if envelope.kind is Kind.STRAY:
            return error_line(b"null", PARSE_ERROR, "The line is no JSON-RPC 2.0 message.")
        return None

    def _refuse_too_long(self, client: int, line: TooLong) -> None:
        envelope = read_ends(line.head, line.tail)
        limit = self._channel.limits.max_line_bytes
        error = RequestTooLongError(self._channel.server, line.length, limit)
        self._channel.drop("too_long")
        self._channel.refuse(client, envelope.id_token or b"null", error)

    def _note_request(self, client: int, line: bytes, envelope: Envelope) -> None:
        """Notice requests that mean more to the channel than their answer."""
        channel, method = self._channel, envelope.method or ""
        if method == "initialize" and not channel.handshake.ready:
            channel.tasks.start_soon(self._limit_handshake, client, envelope.id_token or b"")
        elif not channel.private:
            channel.subscribers.note(client, line, method)

    async def _limit_handshake(self, client: int, id_token: bytes) -> None:
        """End an instance whose server does not answer `initialize` within its limit."""
        channel = self._channel
        limit_s = channel.limits.connection_timeout_s
        with anyio.move_on_after(limit_s):
            await channel.handshake.wait_answer()
            return
        family = channel.held.family
        family.stderr.read_now()
        error: CallError = CallTimedOutError(
            channel.server, limit_s, "connectionTimeoutMs", family.tail.lines()
        )
        channel.fail(client, id_token, error)
        channel.held.instance.request_stop("start_failed")

    def _watch_reading(self, client: int, asked: Sequence[bytes], now: float) -> None:
        """Where the server does not read, limit the requests that wait, and pause their client."""
        waiting_bytes = self._stdin.waiting_bytes
        if not waiting_bytes:
            return
        self._unread.add(client, asked, now + self._channel.limits.request_timeout_s)
        if self._unread.waiting and not self._watching_reading:
            self._watching_reading = True
            self._channel.tasks.start_soon(self._watch_unread)
        peer = self._channel.peers.get(client)
        if waiting_bytes > HIGH_WATER_BYTES and peer is not None:
            self._paused.add(client)
            peer.pause()

    def _drained(self) -> None:
        self._unread.waiting.clear()
        paused, self._paused = self._paused, set()
        for client in paused:
            peer = self._channel.peers.get(client)
            if peer is not None:
                peer.resume()
