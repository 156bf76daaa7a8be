"""Our servers as entries of a client, each of which runs `mcpctl`; pure.

Limits go along where the client has a key for them, as exact fractions; what a record does not
say is left out, so that the client's own defaults stay.

Source: OpenClaw 2026.9.6, projection to Codex; Codex's `RawMcpServerConfig`; the clients' own
documentation for the others, as of November 2026.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from pydantic import JsonValue

from supervisor.cli.configure.clients import ClientName
from supervisor.core.errors import ConfigError

SERVE_NAME: Final = "mcp-supervisor"
"""What the one entry of `--serve` is called."""

_SHORTEST_TIMEOUT_MS: Final = 1000
"""Claude Code ignores less."""

_TYPED: Final[frozenset[ClientName]] = frozenset({"claude-code", "cursor", "vscode"})
_AS_OURS: Final = (
    "connectionTimeoutMs",
    "requestTimeoutMs",
    "supportsParallelToolCalls",
    "toolFilter",
    "codex",
)


def project(
    client: ClientName, name: str, record: Mapping[str, JsonValue], words: Sequence[str]
) -> dict[str, JsonValue]:
    """The client's entry for one of our servers.

    Args:
        client: whose.
        name: of the server here, for messages.
        record: its record, which is right; empty for `serve`, which has limits of its own.
        words: what the client is to run.

    Raises:
        ConfigError: the record's filter cannot be said there.
    """
    entry: dict[str, JsonValue] = {"type": "stdio"} if client in _TYPED else {}
    entry |= {"command": words[0], "args": [*words[1:]]}
    match client:
        case "codex":
            entry |= _for_codex(name, record)
        case "gemini":
            _set(entry, "timeout", record.get("requestTimeoutMs"))
            _set_filter(entry, name, record, "includeTools", "excludeTools")
        case "claude-code":
            span = record.get("requestTimeoutMs")
            if isinstance(span, int | float) and span >= _SHORTEST_TIMEOUT_MS:
                entry["timeout"] = span
        case "openclaw":
            for key in _AS_OURS:
                _set(entry, key, record.get(key))
        case "claude-desktop" | "cursor" | "vscode" | "other":
            pass
    return entry


def seconds(span_ms: JsonValue) -> JsonValue:
    """Milliseconds as seconds, exactly; whole ones as a whole number."""
    if not isinstance(span_ms, int | float):
        return None
    exact = Decimal(repr(span_ms)) / 1000
    return int(exact) if exact == int(exact) else float(exact)


def _for_codex(name: str, record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    entry = dict[str, JsonValue]()
    _set(entry, "startup_timeout_sec", seconds(record.get("connectionTimeoutMs")))
    _set(entry, "tool_timeout_sec", seconds(record.get("requestTimeoutMs")))
    _set(entry, "supports_parallel_tool_calls", record.get("supportsParallelToolCalls"))
    own = record.get("codex")
    mode = own.get("defaultToolsApprovalMode") if isinstance(own, dict) else None
    _set(entry, "default_tools_approval_mode", mode)
    _set_filter(entry, name, record, "enabled_tools", "disabled_tools")
    return entry


def _set_filter(
    entry: dict[str, JsonValue],
    name: str,
    record: Mapping[str, JsonValue],
    include: str,
    exclude: str,
) -> None:
    given = record.get("toolFilter")
    for ours, theirs in (("include", include), ("exclude", exclude)):
        patterns = given.get(ours) if isinstance(given, dict) else None
        if not isinstance(patterns, list):
            continue
        for pattern in patterns:
            if "*" in str(pattern):
                message = (
                    f"Server {name!r}, field toolFilter.{ours}: {pattern!r} is a pattern, and the "
                    "client takes exact names only. Write the names, or export with --serve, "
                    "where the filter is applied by the daemon."
                )
                raise ConfigError(message)
        entry[theirs] = [*patterns]


def _set(entry: dict[str, JsonValue], key: str, value: JsonValue) -> None:
    if value is not None:
        entry[key] = value
