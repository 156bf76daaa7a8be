"""Gives every request to a server an id of its own, and knows whose answer comes back.

Two clients may use the same id, and a late answer must reach nobody else. So each request that goes
to a server gets a number that is never used again in the life of that server's process, and the
original id returns with the answer, byte for byte. Progress tokens, cancellations and the tags of
subscriptions carry ids too and are rewritten alike. The server's own requests get a fresh number on
their way to a client for the same reason.

One `WireIds` belongs to one instance. Clients are numbers that the caller chooses and never reuses;
the daemon itself may be one. Lines are changed at the tokens concerned and nowhere else: unknown
members, spelling of numbers and order survive.

What is not done here: choosing the client for a request of the server, time limits, queues.

Source: design section 9; MCP 2025-11-25, cancellation and progress; MCP 2026-07-28, subscriptions.
"""

import re
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, assert_never

from supervisor.core.envelope import Envelope, Kind
from supervisor.core.errors import RefusedIdError
from supervisor.core.json_spans import NotAnObjectError, find_span, may_name, meant, members, splice

GIVEN_UP_KEPT: Final = 4096
"""How many requests that nobody waits for are remembered, to tell late answers from repeated ones.
A server that never answers what was cancelled must not fill the memory."""

_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_PROGRESS_ASKED: Final = ("params", "_meta", "progressToken")
_PROGRESS_TOLD: Final = ("params", "progressToken")
CANCELLED_ID: Final = ("params", "requestId")
_TAG: Final = ("params", "_meta", _SUBSCRIPTION)
_RESULT_TAG: Final = ("result", "_meta", _SUBSCRIPTION)

CANCELLED: Final = "notifications/cancelled"
_PROGRESS: Final = "notifications/progress"
_LISTEN: Final = "subscriptions/listen"

_WIRE_ID: Final = re.compile(
    # Servers whose numbers are all floating point answer 5.0, some answer "5"; SDKs take both.
    rb'"?([1-9][0-9]{0,17})(?:\.0+)?"?'
)


class InFlight(NamedTuple):
    """One request that the server has not answered.

    Attributes:
        wire_token: its id as the server sees it.
        client: who asked.
        id_token: its id as the client spelled it.
        progress_token: likewise; None where no progress is wanted.
        method: what was asked.
        since: the instant at which it was sent.
    """

    wire_token: bytes
    client: int
    id_token: bytes
    progress_token: bytes | None
    method: str
    since: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """This line goes to this client and to nobody else; `answered` is the request it ends."""

    client: int
    line: bytes
    answered: InFlight | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Unaddressed:
    """A request of the server, or a notification that names no request: the caller decides who."""


@dataclass(frozen=True, slots=True)
class Late:
    """Meant for a request that is over: dropped. `duplicate` is a second answer."""

    kind: Literal["late", "duplicate"]


@dataclass(frozen=True, slots=True)
class Stray:
    """Meant for nobody: no JSON-RPC, or an id that this process was never given."""


Incoming = Delivery | Unaddressed | Late | Stray


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a client that has left leaves open.

    Attributes:
        wire_tokens: ids of its requests as the server sees them, for `notifications/cancelled`.
        server_ids: the server's requests that it has not answered, as the server spelled their
            ids, to be refused.
    """

    wire_tokens: tuple[bytes, ...]
    server_ids: tuple[bytes, ...]


class _Asked(NamedTuple):
    """One request of the server that a client has not answered."""

    client: int
    id_token: bytes


class WireIds:
    """The table of what is in flight between one server process and its clients.

    Attributes:
        late: how many lines came for requests that nobody waits for.
        duplicate: how many requests were answered more than once.
    """

    def __init__(self) -> None:
        self.late = 0
        self.duplicate = 0
        self._last_wire_id = 0
        self._last_asked_id = 0
        self._requests: dict[int, InFlight] = {}
        self._by_client: dict[int, dict[bytes, int]] = {}
        """The same requests: client, then the meaning of its id, then the id on the wire."""
        self._given_up: dict[int, None] = {}
        self._asked: dict[int, _Asked] = {}
        self._asked_by_server_id: dict[bytes, int] = {}

    # From a client to the server.

    def outgoing(
        self, client: int, line: bytes, envelope: Envelope, at: float = 0.0
    ) -> bytes | None:
        """Prepare a client's line for the server; `at` is now.

        Returns:
            The line to write; None where the server has no use for it: a stray line, a
            cancellation of nothing in flight, an answer to nothing that was asked.

        Raises:
            RefusedIdError: of a request; the caller answers it with an error, if it can.
        """
        match envelope.kind:
            case Kind.REQUEST:
                return self._request(client, line, envelope, at)
            case Kind.NOTIFICATION:
                if envelope.method == CANCELLED:
                    return self._cancel(client, line)
                return line
            case Kind.RESPONSE:
                return self.client_reply(client, line, envelope)
            case Kind.BAD_ID:
                raise RefusedIdError(envelope.id_token or b"", "not_an_id")
            case Kind.STRAY:
                return None
            case _:
                assert_never(envelope.kind)

    def client_reply(self, client: int, line: bytes, envelope: Envelope) -> bytes | None:
        """Restore the server's id in a client's answer; None if this client was not asked that."""
        asked_id = _wire_id(envelope.id_token)
        asked = self._asked.get(asked_id)
        if asked is None or asked.client != client or envelope.id_span is None:
            return None
        self._drop_asked(asked_id)
        return splice(line, (*envelope.id_span, asked.id_token))

    # From the server to a client.

    def incoming(self, line: bytes, envelope: Envelope) -> Incoming:
        """Find out whose line of the server this is, and restore what was rewritten in it."""
        match envelope.kind:
            case Kind.RESPONSE:
                return self._answer(line, envelope)
            case Kind.NOTIFICATION:
                return self._notification(line, envelope.method)
            case Kind.REQUEST:
                return Unaddressed()
            case Kind.BAD_ID | Kind.STRAY:
                return Stray()
            case _:
                assert_never(envelope.kind)

    def server_request(self, line: bytes, envelope: Envelope, client: int) -> bytes:
        """Prepare a request of the server for the client that was chosen for it.

        Raises:
            RefusedIdError: the server uses an id again that is still in flight, or no good one.
        """
        token, span = envelope.id_token, envelope.id_span
        if envelope.kind is not Kind.REQUEST or token is None or span is None:
            raise RefusedIdError(token or b"", "not_an_id")
        key = meaning(token)
        if key in self._asked_by_server_id:
            raise RefusedIdError(token, "in_flight")
        self._last_asked_id += 1
        self._asked[self._last_asked_id] = _Asked(client, token)
        self._asked_by_server_id[key] = self._last_asked_id
        return splice(line, (*span, b"%d" % self._last_asked_id))

    # What is in flight.

    @property
    def count(self) -> int:
        """How many requests are unanswered."""
        return len(self._requests)

    def in_flight(self, client: int | None = None) -> tuple[InFlight, ...]:
        """List the unanswered requests of one client, or of all, oldest first."""
        if client is None:
            return tuple(self._requests.values())
        return tuple(
            self._requests[wire_id] for wire_id in self._by_client.get(client, {}).values()
        )

    def give_up(self, client: int, id_token: bytes) -> bytes | None:
        """Stop waiting for one request (its time is over), so that its answer is dropped.

        Returns:
            Its id on the wire, for a `notifications/cancelled`; None if it is not in flight.
        """
        wire_id = self._by_client.get(client, {}).get(meaning(id_token))
        if wire_id is None:
            return None
        self._abandon(wire_id)
        return b"%d" % wire_id

    def forget(self, client: int) -> Forgotten:
        """Take leave of a client: answers to its requests are dropped from now on."""
        wire_ids = tuple(self._by_client.get(client, {}).values())
        for wire_id in wire_ids:
            self._abandon(wire_id)
        asked_ids = [asked_id for asked_id, asked in self._asked.items() if asked.client == client]
        wire_tokens = tuple(b"%d" % wire_id for wire_id in wire_ids)
        return Forgotten(wire_tokens, tuple(self._drop_asked(asked_id) for asked_id in asked_ids))

    def fail_all(self) -> tuple[InFlight, ...]:
        """Empty the table, as the server is gone; each request that was in it wants an error."""
        failed = self.in_flight()
        for wire_id in tuple(self._requests):
            self._abandon(wire_id)
        self._asked.clear()
        self._asked_by_server_id.clear()
        return failed

    def _request(self, client: int, line: bytes, envelope: Envelope, at: float) -> bytes:
        token, span = envelope.id_token, envelope.id_span
        if token is None or span is None or envelope.method is None:
            raise RefusedIdError(token or b"", "not_an_id")
        key = meaning(token)
        if key in self._by_client.get(client, ()):
            raise RefusedIdError(token, "in_flight")
        _check_one_id(line, token)
        self._last_wire_id = wire_id = self._last_wire_id + 1
        wire_token = b"%d" % wire_id
        progress = find_span(line, _PROGRESS_ASKED)
        if progress is None:
            progress_token, rewritten = None, splice(line, (*span, wire_token))
        else:
            progress_token = line[slice(*progress)]
            rewritten = splice(line, (*span, wire_token), (*progress, wire_token))
        self._requests[wire_id] = InFlight(
            wire_token, client, token, progress_token, envelope.method, at
        )
        self._by_client.setdefault(client, {})[key] = wire_id
        return rewritten

    def _cancel(self, client: int, line: bytes) -> bytes | None:
        span = find_span(line, CANCELLED_ID)
        wire_token = None if span is None else self.give_up(client, line[slice(*span)])
        if span is None or wire_token is None:
            return None
        return splice(line, (*span, wire_token))

    def _answer(self, line: bytes, envelope: Envelope) -> Incoming:
        wire_id = _wire_id(envelope.id_token)
        request = self._requests.get(wire_id)
        if request is None or envelope.id_span is None:
            return self._unknown(wire_id, answer=True)
        self._remove(wire_id)
        restored = (*envelope.id_span, request.id_token)
        tag = find_span(line, _RESULT_TAG) if request.method == _LISTEN else None
        if tag is not None and _wire_id(line[slice(*tag)]) == wire_id:
            whole = splice(line, restored, (*tag, request.id_token))
            return Delivery(request.client, whole, request)
        return Delivery(request.client, splice(line, restored), request)

    def _notification(self, line: bytes, method: str | None) -> Incoming:
        if method == CANCELLED:
            return self._server_cancels(line)
        if method == _PROGRESS:
            span = find_span(line, _PROGRESS_TOLD)
            wire_id = _wire_id(None if span is None else line[slice(*span)])
            request = self._requests.get(wire_id)
            token = None if request is None else request.progress_token
        else:
            span = find_span(line, _TAG)
            if span is None:
                return Unaddressed()
            wire_id = _wire_id(line[slice(*span)])
            request = self._requests.get(wire_id)
            token = None if request is None else request.id_token
        if span is None or request is None or token is None:
            return self._unknown(wire_id)
        return Delivery(request.client, splice(line, (*span, token)))

    def _server_cancels(self, line: bytes) -> Incoming:
        """The server takes back a request of its own, or ends a subscription."""
        span = find_span(line, CANCELLED_ID)
        if span is None:
            return Stray()
        token = line[slice(*span)]
        asked_id = self._asked_by_server_id.get(meaning(token))
        if asked_id is not None:
            client = self._asked[asked_id].client
            self._drop_asked(asked_id)
            return Delivery(client, splice(line, (*span, b"%d" % asked_id)))
        wire_id = _wire_id(token)
        request = self._requests.get(wire_id)
        if request is None or request.method != _LISTEN:
            # A request of its own that was answered meanwhile. Others of ours it may not cancel.
            self.late += 1
            return Late("late")
        self._abandon(wire_id)
        return Delivery(request.client, splice(line, (*span, request.id_token)))

    def _unknown(self, wire_id: int, *, answer: bool = False) -> Incoming:
        if not 0 < wire_id <= self._last_wire_id:
            return Stray()
        if not answer or wire_id in self._given_up:
            self.late += 1
            if answer:
                del self._given_up[wire_id]  # the next answer is one too many
            return Late("late")
        self.duplicate += 1
        return Late("duplicate")

    def _abandon(self, wire_id: int) -> None:
        self._remove(wire_id)
        self._given_up[wire_id] = None
        if len(self._given_up) > GIVEN_UP_KEPT:
            del self._given_up[next(iter(self._given_up))]

    def _remove(self, wire_id: int) -> None:
        request = self._requests.pop(wire_id)
        of_client = self._by_client[request.client]
        del of_client[meaning(request.id_token)]
        if not of_client:
            del self._by_client[request.client]

    def _drop_asked(self, asked_id: int) -> bytes:
        asked = self._asked.pop(asked_id)
        del self._asked_by_server_id[meaning(asked.id_token)]
        return asked.id_token


def meaning(id_token: bytes) -> bytes:
    """Two ids are the same id if this is the same: escapes are resolved, and -0 is 0."""
    if id_token.startswith(b'"'):
        return b'"' + meant(id_token[1:-1])
    return b"0" if id_token == b"-0" else id_token


def _wire_id(token: bytes | None) -> int:
    """Read an id of ours as a server spells it; 0, which is never used, if it is none."""
    match = None if token is None else _WIRE_ID.fullmatch(token)
    return 0 if match is None else int(match[1])


def _check_one_id(line: bytes, id_token: bytes) -> None:
    """Refuse a request that has a second id.

    A server whose parser takes another of the two would answer with an id that we did not choose,
    and that may be the one of somebody else's request.
    """
    first = line.find(b'"id"')
    if first >= 0 and not may_name(line, b"id", first + 1):
        return
    try:
        ids = sum(meant(member.name) == b"id" for member in members(line))
    except NotAnObjectError:
        raise RefusedIdError(id_token, "broken") from None
    if ids > 1:
        raise RefusedIdError(id_token, "repeated")
