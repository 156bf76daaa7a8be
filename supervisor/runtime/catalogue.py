"""What one server lists: asked for once, kept until it says that the list has changed.

Whoever asks while a listing is under way waits for that one, and gets what comes of it, an error
too: a server that does not answer shall not keep its callers waiting one behind the other. A change
that is announced meanwhile makes it be listed once more, however many announcements came. A listing
that failed is not kept.

Source: design section 10.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from supervisor.core.call_errors import (
    METHOD_NOT_FOUND,
    BadAnswerError,
    CallTimedOutError,
    RpcError,
)
from supervisor.core.errors import SupervisorError
from supervisor.core.listing import KEY, Listing, ListingKind, Pages, sift
from supervisor.core.negotiation import Handshake
from supervisor.transport.handshake import own_envelope
from supervisor.transport.requests import Requests

if TYPE_CHECKING:
    from pydantic import JsonValue

MAX_TIMES: Final = 3
"""How often a list is asked for that changes while it is listed; the last answer serves once."""

_METHODS: Final[Mapping[ListingKind, tuple[str, str]]] = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "resource_templates": ("resources/templates/list", "resourceTemplates"),
}

_CHANGES: Final[Mapping[str, tuple[ListingKind, ...]]] = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resource_templates"),
}


_CAPABILITY: Final[Mapping[ListingKind, str]] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "resource_templates": "resources",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """The time for one listing, be it asked for several times."""

    limit_s: float
    setting: str
    deadline_at: float

    def left_s(self) -> float:
        return max(0.0, self.deadline_at - anyio.current_time())

    def over(self, server: str, last_stderr: tuple[str, ...] = ()) -> CallTimedOutError:
        return CallTimedOutError(server, self.limit_s, self.setting, last_stderr)


class _Flight:
    """A listing under way; without an outcome at its end whoever asked was cancelled."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.outcome: Listing | SupervisorError | None = None


class _Shelf:
    """One kind of item."""

    def __init__(self) -> None:
        self.listing: Listing | None = None
        self.changes = 0
        self.flight: _Flight | None = None


class Catalogue:
    """The listings of one connection."""

    def __init__(self, requests: Requests, server: str, handshake: Handshake) -> None:
        self._requests = requests
        self._server = server
        self._handshake = handshake
        self._shelves: Final[dict[ListingKind, _Shelf]] = {kind: _Shelf() for kind in KEY}

    async def listing(
        self, kind: ListingKind, *, limit_s: float, setting: str = "requestTimeoutMs"
    ) -> Listing:
        """What the server has of one kind; asked only where that is not known.

        A server that did not declare the capability has nothing, and is not asked.

        Args:
            kind: of item.
            limit_s: seconds for all pages together, and for listing again what has changed.
            setting: what gave the limit.

        Raises:
            CallError: the server does not list; every subclass says why.
        """
        if _CAPABILITY[kind] not in self._handshake.capabilities:
            return Listing()
        limit = _Limit(limit_s=limit_s, setting=setting, deadline_at=anyio.current_time() + limit_s)
        shelf = self._shelves[kind]
        while True:
            if shelf.listing is not None:
                return shelf.listing
            if shelf.flight is None:
                return await self._fly(kind, limit)
            flight = shelf.flight
            with anyio.CancelScope(deadline=limit.deadline_at):
                await flight.ended.wait()
            if not flight.ended.is_set():
                raise limit.over(self._server)
            if isinstance(flight.outcome, SupervisorError):
                raise flight.outcome
            if flight.outcome is not None:
                return flight.outcome

    def known(self, kind: ListingKind) -> Listing | None:
        """What was listed last and holds, as far as is known; None: nothing is."""
        return self._shelves[kind].listing

    def changed(self, method: str) -> tuple[ListingKind, ...]:
        """Take a notification; which kinds of item have changed by it."""
        kinds = _CHANGES.get(method, ())
        for kind in kinds:
            shelf = self._shelves[kind]
            shelf.changes += 1
            shelf.listing = None
        return kinds

    async def _fly(self, kind: ListingKind, limit: _Limit) -> Listing:
        """List for everybody who asks meanwhile."""
        shelf = self._shelves[kind]
        shelf.flight = flight = _Flight()
        try:
            listing = flight.outcome = await self._settled(kind, limit)
        except SupervisorError as error:
            flight.outcome = error
            raise
        finally:
            shelf.flight = None
            flight.ended.set()
        return listing

    async def _settled(self, kind: ListingKind, limit: _Limit) -> Listing:
        """List until no change came meanwhile; keep what is known to be of now."""
        shelf = self._shelves[kind]
        listing = Listing()
        for _ in range(MAX_TIMES):
            changes = shelf.changes
            try:
                listing = await self._ask(kind, limit)
            except CallTimedOutError as error:
                # the limit is that of all pages, not what was left for the last of them
                raise limit.over(self._server, error.last_stderr) from None
            if changes == shelf.changes:
                shelf.listing = listing
                break
        return listing

    async def _ask(self, kind: ListingKind, limit: _Limit) -> Listing:
        """All pages, once."""
        method, member = _METHODS[kind]
        pages, cursor = Pages(), None
        while True:
            params: dict[str, JsonValue] = {} if cursor is None else {"cursor": cursor}
            if self._handshake.era == "modern":
                params["_meta"] = own_envelope()
            try:
                result = await self._requests.request(
                    method, params, limit_s=limit.left_s(), setting=limit.setting
                )
                cursor = pages.add(result, member)
            except RpcError as error:
                if error.answered_code == METHOD_NOT_FOUND and pages.pages == 0:
                    return Listing()  # it offers nothing of this kind, whatever it declared
                raise
            except ValueError as error:
                raise BadAnswerError(self._server, method, str(error)) from error
            if cursor is None:
                return sift(self._server, kind, pages.items)
