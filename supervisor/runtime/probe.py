"""Asks one server for all that it offers, and says how that went; a failure is an answer too."""

from typing import TYPE_CHECKING

import anyio

from supervisor.core.errors import SupervisorError
from supervisor.core.views import ProbeView
from supervisor.runtime.connection import Connection

if TYPE_CHECKING:
    from supervisor.core.listing import ListingKind


async def probe(connection: Connection, began_at: float) -> ProbeView:
    """Open a connection and list everything.

    Args:
        connection: not open yet.
        began_at: the instant from which its time counts.
    """
    counts: dict[ListingKind, int] = {}
    diagnostics: list[str] = []
    error: str | None = None
    try:
        for kind in ("tools", "prompts", "resources"):
            if kind == "tools" or kind in _offered(connection):
                listing = await connection.listing(kind)
                counts[kind] = len(listing.items)
                diagnostics += listing.diagnostics
    except SupervisorError as failed:
        error = str(failed)
    handshake = connection.handshake
    return ProbeView(
        server=connection.name,
        ok=error is None,
        error=error,
        protocol_version=None if handshake is None else handshake.protocol_version,
        how=None if handshake is None else handshake.how,
        server_info=None if handshake is None else handshake.server_info,
        tools=counts.get("tools"),
        prompts=counts.get("prompts"),
        resources=counts.get("resources"),
        diagnostics=tuple(diagnostics),
        took_s=round(anyio.current_time() - began_at, 3),
    )


def _offered(connection: Connection) -> frozenset[str]:
    handshake = connection.handshake
    return frozenset() if handshake is None else frozenset(handshake.capabilities)
