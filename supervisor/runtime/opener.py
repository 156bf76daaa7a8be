"""Opens the connection of a session to a server: instance, handshake, first listing.

All of it within one time limit, the operator's `connectionTimeoutMs`. A server that dies of the
question for its revision is started once more, without the question. One that is there and of no
use is ended, since the same question would get the same answer.

Source: design sections 10 and 16.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import anyio

from supervisor.core.call_errors import CallError, CallTimedOutError, ServerGoneError
from supervisor.core.ending import UNASKED
from supervisor.core.ids import ServerName, SessionKey
from supervisor.core.limits import CallLimits
from supervisor.core.listing import ListingKind
from supervisor.core.negotiation import Handshake
from supervisor.runtime.catalogue import Catalogue
from supervisor.runtime.opening import Opened, Opens
from supervisor.runtime.schemas import SchemaChecker
from supervisor.transport.caller import Caller
from supervisor.transport.handshake import DiedOfProbeError, negotiate

_OPENING: Final = "connectionTimeoutMs"


@dataclass(frozen=True, slots=True)
class Live:
    """What a connection has while its server lives."""

    opened: Opened
    caller: Caller
    handshake: Handshake
    catalogue: Catalogue
    schemas: SchemaChecker


class Opener:
    """Opens one connection, as often as its server has to be found again."""

    def __init__(
        self,
        name: ServerName,
        session: SessionKey,
        opens: Opens,
        on_changed: Callable[[ListingKind], None],
    ) -> None:
        self._name: Final = name
        self._session: Final = session
        self._opens: Final = opens
        self._on_changed: Final = on_changed

    async def open(self, retired: Callable[[], bool]) -> Live:
        """Start or find the instance, shake hands, list the tools; in one time limit.

        Args:
            retired: whether nobody wants the connection any more.

        Raises:
            SupervisorError: every subclass says why; what was started for it is ended.
        """
        deadline_at = anyio.current_time() + self._limits().connection_timeout_s
        opened = await self._opens.open(self._name, self._session)
        try:
            with self._opens.in_use(opened, self._session):
                return await self._greet(opened, deadline_at)
        except DiedOfProbeError:
            if opened.channel.end_reason() not in UNASKED or retired():
                raise  # somebody has stopped it
            # it died of a question that it did not know, which is no crash of its own
            await self._opens.retire(opened)
            opened = await self._opens.open(self._name, self._session)
            with self._opens.in_use(opened, self._session):
                return await self._greet(opened, deadline_at, legacy=True)

    async def _greet(self, opened: Opened, deadline_at: float, *, legacy: bool = False) -> Live:
        """Make the handshake, or take the one that was made, and list the tools."""
        caller = Caller(opened.channel)
        try:
            try:
                handshake = await self._negotiate(opened, caller, deadline_at, legacy=legacy)
                catalogue = Catalogue(caller, self._name, handshake)
                caller.on_notification = self._heard(catalogue)
                left_s = max(0.0, deadline_at - anyio.current_time())
                await catalogue.listing("tools", limit_s=left_s, setting=_OPENING)
            except CallTimedOutError as error:
                # what was left for the last question is not what the operator has set
                whole_s = self._limits().connection_timeout_s
                raise CallTimedOutError(self._name, whole_s, _OPENING, error.last_stderr) from None
        except BaseException as error:
            caller.close()
            if isinstance(error, CallError) and not isinstance(error, ServerGoneError):
                # it is there and of no use: the same question would get the same answer
                self._opens.note_failed(self._name, error)
                opened.channel.held.instance.request_stop("start_failed")
            raise
        return Live(opened, caller, handshake, catalogue, SchemaChecker(self._name))

    async def _negotiate(
        self, opened: Opened, caller: Caller, deadline_at: float, *, legacy: bool
    ) -> Handshake:
        # a caller that leaves does not take back a question that the server has been asked
        found: list[Handshake] = []
        with anyio.CancelScope(shield=True):
            found.append(await self._negotiate_one(opened, caller, deadline_at, legacy=legacy))
        return found[0]

    async def _negotiate_one(
        self, opened: Opened, caller: Caller, deadline_at: float, *, legacy: bool
    ) -> Handshake:
        async with opened.negotiating:
            if opened.negotiated is None:
                protocol = "legacy" if legacy else self._opens.record(self._name).protocol
                before = self._opens.era(self._name)
                asks = before is None or before.era == "modern"
                opened.probing = protocol == "auto" and asks
                try:
                    handshake = await negotiate(
                        caller,
                        self._name,
                        protocol=protocol,
                        remembered=None if before is None else before.era,
                        deadline_at=deadline_at,
                    )
                finally:
                    # one that has died is judged later, and is to be known for a probed one then
                    opened.probing = opened.probing and opened.channel.ended is not None
                if legacy:  # it was not configured so, but did not survive the question
                    handshake = replace(handshake, how="fallback")
                opened.negotiated = handshake
                self._opens.remember_era(self._name, handshake)
                return handshake
            return opened.negotiated

    def _limits(self) -> CallLimits:
        return self._opens.record(self._name).calls

    def _heard(self, catalogue: Catalogue) -> Callable[[str, bytes], None]:
        def heard(method: str, _line: bytes) -> None:
            for kind in catalogue.changed(method):
                self._on_changed(kind)

        return heard
