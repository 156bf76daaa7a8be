"""What each request carries in the revision 2026-07-28, which has no handshake.

Source: MCP 2026-07-28, base protocol: per-request `_meta`.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

MODERN_VERSION: Final = "2026-07-28"

_PREFIX: Final = "io.modelcontextprotocol/"


def envelope(client_name: str, client_version: str) -> dict[str, JsonValue]:
    """The members of `_meta` by which a request says who asks, and in which revision."""
    return {
        f"{_PREFIX}protocolVersion": MODERN_VERSION,
        f"{_PREFIX}clientCapabilities": {},
        f"{_PREFIX}clientInfo": {"name": client_name, "version": client_version},
    }


def server_info(result: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """What a server says of itself in a result of this revision; empty where it does not."""
    match result.get("_meta"):
        case {"io.modelcontextprotocol/serverInfo": dict(info)}:
            return info
        case _:
            return {}
