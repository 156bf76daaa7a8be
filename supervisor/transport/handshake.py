"""Makes the handshake with a server for the daemon's own use; `core/negotiation.py` decides.

The question for the newest revision has a short limit of its own: a server that is silent about it
shall not cost the whole start. All together stays within one deadline.

Source: design sections 10 and 16.
"""

import importlib.metadata
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal

import anyio
from pydantic import JsonValue

from supervisor.core.call_errors import (
    CallError,
    ProtocolVersionError,
    RpcError,
    ServerGoneError,
)
from supervisor.core.modern import MODERN_VERSION, envelope
from supervisor.core.negotiation import (
    KNOWN_VERSIONS,
    OFFERED_VERSION,
    UNSUPPORTED_VERSION,
    Era,
    Handshake,
    How,
    Refused,
    discover_limit_s,
    first_question,
    read_discover,
    read_initialize,
    supported_versions,
    unknown_versions,
    version_to_offer,
)
from supervisor.transport.requests import Requests

CLIENT_NAME: Final = "mcp-supervisord"
SETTING: Final = "connectionTimeoutMs"

Protocol = Literal["auto", "legacy", "modern"]


class DiedOfProbeError(ServerGoneError):
    """The server ended when it was asked for its revision: start it again, and do not ask."""


def own_envelope() -> dict[str, JsonValue]:
    """The `_meta` of the daemon's own requests in the newest revision; the caller's to add to."""
    return envelope(CLIENT_NAME, _own_version())


@cache
def _own_version() -> str:
    # it is read from a file, and each request of the newest revision carries it
    return importlib.metadata.version("mcp-supervisord")


async def negotiate(
    requests: Requests,
    server: str,
    *,
    protocol: Protocol,
    remembered: Era | None,
    deadline_at: float,
) -> Handshake:
    """Find the revision and make the handshake.

    Args:
        requests: the server, which has been asked nothing yet.
        server: its name.
        protocol: of its record.
        remembered: what a server with this configuration turned out to be before.
        deadline_at: the instant by which it has to be done.

    Raises:
        DiedOfProbeError: it ended after `server/discover`; never where `protocol` is set. Also
            where it ended later, as one that starts slowly reads that question late.
        ProtocolVersionError: it speaks no revision that is known here.
        CallError: it did not answer properly; every subclass says why.
    """
    return await _Negotiation(requests, server, protocol, deadline_at).run(remembered)


@dataclass(frozen=True, slots=True)
class _Negotiation:
    """One negotiation with one server."""

    requests: Requests
    server: str
    protocol: Protocol
    deadline_at: float

    async def run(self, remembered: Era | None) -> Handshake:
        era, how = first_question(self.protocol, remembered)
        if era == "legacy":
            return await self._initialize(how, OFFERED_VERSION)
        try:
            found = await self._discover(how)
            if isinstance(found, Handshake):
                return found
            return await self._initialize("fallback", version_to_offer(found))
        except ServerGoneError as error:
            if how == "configured":
                raise
            raise DiedOfProbeError(self.server, error.why, error.last_stderr) from error

    async def _discover(self, how: How) -> Handshake | tuple[str, ...]:
        """Ask for the newest revision.

        Returns:
            The older revisions that the server named, if any, where it is not of the newest one.
        """
        params: dict[str, JsonValue] = {"_meta": own_envelope()}
        limit_s = discover_limit_s(how, self._left_s())
        try:
            result = await self.requests.request(
                "server/discover", params, limit_s=limit_s, setting=SETTING
            )
        except ServerGoneError:
            raise
        except CallError as error:
            if isinstance(error, RpcError):
                return self._not_modern(error)
            if how == "configured":
                raise
            return ()
        read = read_discover(result, how)
        if isinstance(read, Refused):
            raise ProtocolVersionError(self.server, read.why)
        return self._not_modern(None) if read is None else read

    def _not_modern(self, error: RpcError | None) -> tuple[str, ...]:
        """What the server named instead.

        Raises:
            ProtocolVersionError: the record leaves it nothing else.
        """
        if self.protocol == "modern":
            said = "" if error is None else f" ({error.answered_code}: {error.answered_message})"
            why = (
                f"does not answer server/discover as {MODERN_VERSION} wants{said}; its record sets "
                'protocol to "modern", and "auto" would try the older ones'
            )
            raise ProtocolVersionError(self.server, why) from error
        if error is None or error.answered_code != UNSUPPORTED_VERSION:
            return ()
        return supported_versions(error.data)

    async def _initialize(self, how: How, offered: str) -> Handshake:
        params: dict[str, JsonValue] = {
            "protocolVersion": offered,
            "capabilities": {},
            "clientInfo": {"name": CLIENT_NAME, "version": _own_version()},
        }
        try:
            result = await self.requests.request(
                "initialize", params, limit_s=self._left_s(), setting=SETTING
            )
        except RpcError as error:
            return await self._refused(error)
        read = read_initialize(result, how)
        if isinstance(read, Refused):
            raise ProtocolVersionError(self.server, read.why)
        self.requests.notify("notifications/initialized")
        return read

    async def _refused(self, error: RpcError) -> Handshake:
        """Ask a server once more that says of itself that it is of the newest revision."""
        if error.answered_code == UNSUPPORTED_VERSION and self.protocol == "auto":
            named = supported_versions(error.data)
            if MODERN_VERSION in named:
                found = await self._discover("configured")
                if isinstance(found, Handshake):
                    return replace(found, how="probed")
            elif named and not set(named).intersection(KNOWN_VERSIONS):
                raise ProtocolVersionError(self.server, unknown_versions(named).why) from error
        why = f"refuses initialize: {error.answered_message}"
        raise ProtocolVersionError(self.server, why) from error

    def _left_s(self) -> float:
        return max(0.0, self.deadline_at - anyio.current_time())
