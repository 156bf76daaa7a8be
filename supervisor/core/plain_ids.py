"""The table of what is in flight where one client has a server for itself: nothing is rewritten.

The same questions as `WireIds` answers, with the ids that the client chose: the only client of a
process cannot be mistaken for another. What remains is to know what is in flight, for the errors
when the server dies, and to drop late and repeated answers.

Source: design section 9: a private instance with one client needs no rewriting at all.
"""

import re
from typing import Final

from supervisor.core.envelope import Envelope, Kind
from supervisor.core.errors import RefusedIdError
from supervisor.core.ids_on_wire import (
    CANCELLED,
    CANCELLED_ID,
    GIVEN_UP_KEPT,
    Delivery,
    Forgotten,
    Incoming,
    InFlight,
    Late,
    Stray,
    Unaddressed,
    meaning,
)
from supervisor.core.json_spans import find_span, splice

_LOOSE_INTEGER: Final = re.compile(rb'"?(-?[0-9]+)(?:\.0+)?"?')
"""An integer as some servers give it back: as 5.0, or as a string."""


class _Memory:
    """The last few thousand keys that were added: of two halves the older one is forgotten whole.

    A dict that loses its oldest key at each step costs four microseconds a step here.
    """

    def __init__(self) -> None:
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def add(self, key: bytes) -> None:
        """Remember a key."""
        self._young.add(key)
        if len(self._young) >= GIVEN_UP_KEPT:
            self._young, self._old = set(), self._young

    def discard(self, key: bytes) -> None:
        """Forget a key."""
        if self._young or self._old:
            self._young.discard(key)
            self._old.discard(key)

    def __contains__(self, key: bytes) -> bool:
        return key in self._young or key in self._old


class PlainIds:
    """What is in flight between one server process and its only client.

    Attributes:
        late: how many answers came for requests that nobody waits for.
        duplicate: how many requests were answered more than once.
    """

    def __init__(self, client: int) -> None:
        self.late = 0
        self.duplicate = 0
        self._client: Final = client
        self._requests: dict[bytes, InFlight] = {}
        self._given_up: Final = _Memory()
        self._answered: Final = _Memory()

    def outgoing(
        self, client: int, line: bytes, envelope: Envelope, at: float = 0.0
    ) -> bytes | None:
        """Prepare the client's line for the server; see `WireIds.outgoing`."""
        kind, token = envelope.kind, envelope.id_token
        if kind is Kind.REQUEST and token is not None:
            key = meaning(token)
            if key in self._requests:
                raise RefusedIdError(token, "in_flight")
            self._requests[key] = InFlight(token, client, token, None, envelope.method or "", at)
            self._given_up.discard(key)  # used again after its cancellation: its own choice
            return line
        if kind is Kind.BAD_ID:
            raise RefusedIdError(token or b"", "not_an_id")
        if kind is Kind.NOTIFICATION and envelope.method == CANCELLED:
            span = find_span(line, CANCELLED_ID)
            known = span is not None and self.give_up(client, line[slice(*span)]) is not None
            return line if known else None
        return None if kind is Kind.STRAY else line

    def incoming(self, line: bytes, envelope: Envelope) -> Incoming:
        """Find out whether the client waits for this; see `WireIds.incoming`."""
        match envelope.kind:
            case Kind.RESPONSE:
                return self._answer(line, envelope)
            case Kind.NOTIFICATION | Kind.REQUEST:
                return Unaddressed()
            case Kind.BAD_ID | Kind.STRAY:
                return Stray()

    def server_request(self, line: bytes, envelope: Envelope, client: int) -> bytes:
        """The server's request, as it is: only one client can answer it."""
        if envelope.kind is not Kind.REQUEST or client != self._client:
            raise RefusedIdError(envelope.id_token or b"", "not_an_id")
        return line

    @property
    def count(self) -> int:
        """How many requests are unanswered."""
        return len(self._requests)

    def in_flight(self, client: int | None = None) -> tuple[InFlight, ...]:
        """List the unanswered requests, oldest first."""
        return tuple(self._requests.values()) if client in {None, self._client} else ()

    def give_up(self, client: int, id_token: bytes) -> bytes | None:
        """Stop waiting for one request; see `WireIds.give_up`."""
        request = self._requests.pop(meaning(id_token), None)
        if request is None or client != self._client:
            return None
        self._given_up.add(meaning(id_token))
        return request.wire_token

    def forget(self, client: int) -> Forgotten:
        """Take leave of the client."""
        failed = self.fail_all() if client == self._client else ()
        return Forgotten(tuple(request.wire_token for request in failed), ())

    def fail_all(self) -> tuple[InFlight, ...]:
        """Empty the table, as the server is gone."""
        failed = self.in_flight()
        for key in self._requests:
            self._given_up.add(key)
        self._requests.clear()
        return failed

    def _answer(self, line: bytes, envelope: Envelope) -> Incoming:
        token, span = envelope.id_token, envelope.id_span
        if token is None or span is None:
            return Stray()
        key = meaning(token)
        request = self._requests.pop(key, None)
        if request is None:
            key = self._as_asked(token)
            request = self._requests.pop(key, None)
            if request is None:
                return self._unknown(key)
            line = splice(line, (*span, request.id_token))
        self._answered.add(key)
        return Delivery(self._client, line, request)

    def _as_asked(self, token: bytes) -> bytes:
        """The key of a request whose id the server gave back as another JSON type."""
        number, exact = _LOOSE_INTEGER.fullmatch(token), meaning(token)
        if number is None or exact in self._given_up:  # a late answer must not reach its twin
            return exact
        known = (self._requests, self._given_up, self._answered)
        for key in (number[1], b'"%b' % number[1]):
            if any(key in table for table in known):
                return key
        return exact

    def _unknown(self, key: bytes) -> Incoming:
        if key in self._given_up:
            self._given_up.discard(key)  # the next answer is one too many
            self._answered.add(key)
            self.late += 1
            return Late("late")
        if key in self._answered:
            self.duplicate += 1
            return Late("duplicate")
        return Stray()
