"""Decides in which revision of MCP a server is spoken to, and reads what it answers.

A server of the newest revision answers `server/discover`; older ones want `initialize`, and of
those each does something else with a question that it does not know: an error, any error; silence;
an answer with a null id; its own end. So nothing but a proper answer is proof of a new server, and
all else falls back. One more proof there is: a new server that was too slow for the first question
refuses `initialize` with the list of its revisions, and is then asked again.

Source: design section 16; MCP 2026-07-28, negotiation; MCP 2025-11-25, lifecycle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from supervisor.core.modern import MODERN_VERSION, server_info

Era = Literal["legacy", "modern"]
How = Literal["configured", "remembered", "probed", "fallback"]
"""How the revision was found; `fallback`: it did not answer `server/discover` properly."""

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
KNOWN_VERSIONS: Final = (*HANDSHAKE_VERSIONS, MODERN_VERSION)
OFFERED_VERSION: Final = HANDSHAKE_VERSIONS[-1]
"""What `initialize` asks for."""

UNSUPPORTED_VERSION: Final = -32022

PROBE_LIMIT_S: Final = 2.0
"""For `server/discover`: a Python server needs 0.6 s to be there; a silent one costs this once."""

FALLBACK_SHARE: Final = 0.5
"""Of the time that is left: who is silent, or remembered wrongly, shall be able to fall back."""

MAX_SHOWN: Final = 40
"""Characters of a version that an error shows."""

MAX_NAMED: Final = 5
"""Versions that it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """What came of a negotiation.

    Attributes:
        era: whether each request carries an envelope.
        protocol_version: that both speak.
        server_info: name and version as the server says; may be empty.
        capabilities: of the server.
        instructions: how it wants to be used; None where it does not say.
        how: the version was found.
    """

    era: Era
    protocol_version: str
    server_info: Mapping[str, JsonValue]
    capabilities: Mapping[str, JsonValue]
    instructions: str | None
    how: How


@dataclass(frozen=True, slots=True)
class Refused:
    """The server cannot be spoken to; `why` is a clause behind its name."""

    why: str


def first_question(
    protocol: Literal["auto", "legacy", "modern"], remembered: Era | None
) -> tuple[Era, How]:
    """What to ask first, and how that was decided."""
    if protocol != "auto":
        return protocol, "configured"
    if remembered is not None:
        return remembered, "remembered"
    return "modern", "probed"


def discover_limit_s(how: How, left_s: float) -> float:
    """How long `server/discover` may take.

    Args:
        how: the server was found to be worth the question.
        left_s: seconds for all that is still to be done; below zero where none are left.
    """
    left_s = max(0.0, left_s)
    if how == "configured":
        return left_s
    if how == "probed":
        return min(PROBE_LIMIT_S, left_s * FALLBACK_SHARE)
    return min(max(PROBE_LIMIT_S, left_s * FALLBACK_SHARE), left_s)


def supported_versions(data: JsonValue) -> tuple[str, ...]:
    """The revisions that the `data` of error -32022 names; empty where it names none."""
    supported = data.get("supported") if isinstance(data, dict) else None
    return _texts(supported)


def version_to_offer(supported: tuple[str, ...]) -> str:
    """What `initialize` asks for: the newest that both know, or the newest where that is open."""
    return max(set(supported).intersection(HANDSHAKE_VERSIONS), default=OFFERED_VERSION)


def read_discover(result: Mapping[str, JsonValue], how: How) -> Handshake | Refused | None:
    """Read an answer to `server/discover`.

    Returns:
        `Refused` for a server that names revisions, and none that is known here; None where the
        answer is no proof of a server of the newest revision.
    """
    supported = _texts(result.get("supportedVersions"))
    if MODERN_VERSION not in supported:
        strange = supported and not set(supported).intersection(HANDSHAKE_VERSIONS)
        return unknown_versions(supported) if strange else None
    return Handshake(
        era="modern",
        protocol_version=MODERN_VERSION,
        server_info=server_info(result),
        capabilities=_object(result.get("capabilities")),
        instructions=_text(result.get("instructions")),
        how=how,
    )


def read_initialize(result: Mapping[str, JsonValue], how: How) -> Handshake | Refused:
    """Read an answer to `initialize`."""
    version = result.get("protocolVersion")
    if version is None:
        return Refused("answers initialize without a protocolVersion")
    if version == MODERN_VERSION:
        return Refused(f"offers protocol {version} in initialize, which that revision has not")
    if version not in HANDSHAKE_VERSIONS:
        return unknown_versions((str(version),))
    return Handshake(
        era="legacy",
        protocol_version=str(version),
        server_info=_object(result.get("serverInfo")),
        capabilities=_object(result.get("capabilities")),
        instructions=_text(result.get("instructions")),
        how=how,
    )


def unknown_versions(offered: tuple[str, ...]) -> Refused:
    """Refuse a server that offers nothing that is known here."""
    shown = [text if text.isprintable() else repr(text) for text in offered[:MAX_NAMED]]
    theirs = ", ".join(text[:MAX_SHOWN] for text in shown)
    return Refused(f"offers protocol {theirs}; supported: {', '.join(KNOWN_VERSIONS)}")


def _object(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
