"""The byte channel of one server process: lines both ways, and who is meant by each.

It reads from the server as the kernel brings bytes, without a task switch for each message, and
passes bodies on as bytes. Whatever the server does (banners, bytes that are no UTF-8, lines without
end, answers that nobody waits for, reading nothing, dying) costs one call, or is counted; nothing
here waits for a client or for the server. `incoming.py` and `outgoing.py` hold the two ways.

What is not done here: starting and stopping the process (the channel asks for a stop where the
contract says that the instance is unusable), handshakes, schemas, time limits of single calls
beyond what the server has not even read.

Source: design section 9.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from supervisor.core.call_errors import INTERNAL, CallError, ServerGoneError
from supervisor.core.ending import how_it_ended
from supervisor.core.envelope import error_line
from supervisor.core.errors import InternalError
from supervisor.core.framing import Line, TooLong
from supervisor.core.ids_on_wire import InFlight, WireIds
from supervisor.core.limits import CallLimits
from supervisor.core.plain_ids import PlainIds
from supervisor.core.strays import Strays
from supervisor.process.custody import Held
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.metrics import CallOutcome, DropKind, Metrics
from supervisor.transport.handshake_seen import HandshakeSeen
from supervisor.transport.incoming import Incoming
from supervisor.transport.outgoing import Outgoing
from supervisor.transport.subscribers import Subscribers

if TYPE_CHECKING:
    from supervisor.core.report import Reason
    from supervisor.transport.peer import Peer

EXIT_STATUS_PATIENCE_S: Final = 0.25
"""From the sight of an exit to its status, which the relay sends: a millisecond as a rule."""


class Channel:
    """Lines between one server process and its peers.

    Attributes:
        held: the instance.
        server: the name of its server.
        private: whether there is one peer only, so that no id is rewritten.
        peers: whoever is attached, by number.
        ids: what is in flight.
        strays: lines on stdout that were no JSON-RPC.
        handshake: what was seen of a handshake.
        subscribers: who wants to know what.
        ended: why nothing can be asked any more; None while the server is there.
    """

    def __init__(
        self, held: Held, limits: CallLimits, events: EventLog, metrics: Metrics, *, private: bool
    ) -> None:
        self.held: Final = held
        self.server: Final = held.instance.server
        self.private: Final = private
        self.events: Final = events
        self.metrics: Final = metrics
        self.peers: Final[dict[int, Peer]] = {}
        self.ids: Final[WireIds | PlainIds] = PlainIds(1) if private else WireIds()
        self.strays: Final = Strays(held.family.tail.secrets)
        self.handshake: Final = HandshakeSeen()
        self.subscribers: Final = Subscribers()
        self.ended: ServerGoneError | None = None
        self._limits = limits
        self._last_client = 0
        self._tasks: TaskGroup | None = None
        self._gone: Final = anyio.Event()
        self._exit_known: Final = anyio.Event()
        self._quiet: anyio.Event | None = None
        self._incoming: Final = Incoming(self)
        self._outgoing: Final = Outgoing(self)
        held.family.on_exit = self._server_exited
        if held.family.exit is not None:
            self._server_exited()
        held.family.attach(self._incoming.feed, self._output_ended)
        if private:
            self.pause_output()  # what the server says first waits for its client

    @property
    def limits(self) -> CallLimits:
        """Of the server's record; a reload may exchange them."""
        return self._limits

    @limits.setter
    def limits(self, limits: CallLimits) -> None:
        self._limits = limits
        self._incoming.limit(limits.max_line_bytes)

    @property
    def clients(self) -> int:
        """How many clients are attached, the daemon itself not counted."""
        return sum(peer.is_client for peer in self.peers.values())

    @property
    def calls_in_flight(self) -> int:
        """How many requests the server has not answered."""
        return self.ids.count

    @property
    def tasks(self) -> TaskGroup:
        """Where the channel's time limits run, while it is open."""
        if self._tasks is None:
            why = "the channel is not open"
            raise InternalError(why)
        return self._tasks

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Serve until the server is gone; every request in flight has got its error then."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            tasks.start_soon(self._wait_settled)
            await self._gone.wait()
            if self.held.family.exit is None:
                with anyio.move_on_after(EXIT_STATUS_PATIENCE_S):
                    await self._exit_known.wait()
            self._end()
            tasks.cancel_scope.cancel()

    # Peers

    def attach(self, peer: "Peer") -> int:
        """Let a peer take part; returns its number, which is never used again."""
        self._last_client += 1
        self.peers[self._last_client] = peer
        if self.private:
            self.resume_output()
        return self._last_client

    def detach(self, client: int) -> None:
        """A peer has left: what it asked is cancelled, what it was asked is refused."""
        if self.peers.pop(client, None) is None:
            return
        self._outgoing.forget(client)
        forgotten = self.ids.forget(client)
        lines = [_cancelled(token, "the client left") for token in forgotten.wire_tokens]
        left = "The client that was asked has left."
        lines += [error_line(token, INTERNAL, left) for token in forgotten.server_ids]
        lines += self.subscribers.forget(client)
        self.write(lines)
        self.look_quiet()

    async def wait_quiet(self) -> None:
        """Wait until no request is in flight."""
        while self.ended is None and self.ids.count:
            self._quiet = self._quiet or anyio.Event()
            await self._quiet.wait()

    def send(self, client: int, lines: Sequence[Line | TooLong]) -> None:
        """Take lines of a client; every request among them gets an answer or an error."""
        self._outgoing.send(client, lines)

    def cancel(self, client: int, id_token: bytes, reason: str) -> None:
        """Give up a request of a client: its answer is dropped, and the server is told."""
        wire_token = self.ids.give_up(client, id_token)
        if wire_token is not None:
            self.write([_cancelled(wire_token, reason)])
            self.look_quiet()

    def fail(self, client: int, id_token: bytes, error: CallError) -> None:
        """Answer one request with an error, unless it has its answer."""
        request = next((r for r in self.ids.in_flight(client) if r.id_token == id_token), None)
        if request is not None:
            self.cancel(client, id_token, "its time is over")
            self.count_call(request, "timed_out")
            self.refuse(client, id_token, error)

    def pause_output(self) -> None:
        """Let the server wait: its only client does not read."""
        self.held.family.stdout.pause()

    def resume_output(self) -> None:
        """Read again."""
        self.held.family.stdout.resume()

    # For the two ways

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines to the server, as one piece; none, if there are none."""
        if lines and self.ended is None:
            self._outgoing.write(lines)

    def deliver(self, client: int, lines: Sequence[bytes]) -> None:
        """Hand lines to a client that may have left."""
        peer = self.peers.get(client)
        if peer is None:
            self.drop("nobody_attached")
        else:
            peer.deliver(b"\n".join(lines) + b"\n")

    def refuse(self, client: int, id_token: bytes, error: CallError) -> None:
        """Let a request of a client that may have left fail."""
        peer = self.peers.get(client)
        if peer is not None:
            peer.fail(id_token, error)

    def drop(self, kind: DropKind) -> None:
        """Count a message that reaches nobody."""
        self.metrics.dropped(self.server, kind)

    def count_call(self, request: InFlight, outcome: CallOutcome, now: float | None = None) -> None:
        """Count the end of a tool call."""
        if request.method == "tools/call":
            ended_at = anyio.current_time() if now is None else now
            self.metrics.call_finished(self.server, outcome, ended_at - request.since)

    def look_quiet(self) -> None:
        """Tell those who wait for it that nothing is in flight, if so."""
        if self._quiet is not None and not self.ids.count:
            self._quiet.set()
            self._quiet = None

    def refuses_requests(self) -> ServerGoneError | None:
        """Why a request cannot be sent: the server is gone, or on its way."""
        instance, family = self.held.instance, self.held.family
        if self.ended is None and instance.stopping and not family.fed_to_the_end:
            return self.gone_error()
        return self.ended

    # The end

    async def _wait_settled(self) -> None:
        await self.held.instance.wait_settled()
        self._gone.set()

    def _server_exited(self) -> None:
        self._gone.set()
        if self.held.family.exit is not None:
            self._exit_known.set()

    def _output_ended(self) -> None:
        self._incoming.end()
        self._gone.set()

    def end_reason(self) -> "Reason":
        """Why the server has ended, or is about to."""
        instance, family = self.held.instance, self.held.family
        if instance.state.schedule is not None:
            return instance.state.reason
        # seen here before the instance's own shell had its turn
        return "output_closed" if family.stdout.ended and family.exit is None else "crash"

    def gone_error(self) -> ServerGoneError:
        """What its requests in flight get as their answer."""
        family, reason = self.held.family, self.end_reason()
        exited = family.exit
        code, signal = (None, None) if exited is None else (exited.code, exited.signal)
        return ServerGoneError(self.server, how_it_ended(reason, code, signal), family.tail.lines())

    def _end(self) -> None:
        """Hear the server's last words, then fail what it did not answer."""
        family = self.held.family
        family.stdout.read_now()
        family.stderr.read_now()
        error = self.gone_error()
        self.ended = error
        failed = Counter[int]()
        for request in self.ids.fail_all():
            self.count_call(request, "server_gone")
            failed[request.client] += 1
            self.refuse(request.client, request.id_token, error)
        self.look_quiet()
        for client, peer in tuple(self.peers.items()):
            peer.channel_ended(error, failed[client])


def _cancelled(wire_token: bytes, reason: str) -> bytes:
    return (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled",'
        b'"params":{"requestId":%b,"reason":"%b"}}' % (wire_token, reason.encode())
    )
