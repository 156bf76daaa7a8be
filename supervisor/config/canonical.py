"""One spelling for each key of a server's record; what means nothing else is kept as it is.

Source: OpenClaw 2026.9.6, canonical MCP servers: `type` becomes `transport`, `workingDirectory`
`cwd`, snake_case camelCase.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import JsonValue

from supervisor.config.records import (
    RESTART_KEYS,
    SERVER_KEYS,
    STOP_KEYS,
    TOOL_FILTER_KEYS,
)

TRANSPORTS: Final[Mapping[str, str]] = {
    "http": "streamable-http",
    "streamable-http": "streamable-http",
    "streamable_http": "streamable-http",
    "streamableHttp": "streamable-http",
    "sse": "sse",
}
"""What `type` and `transport` may say, and how it is written here."""

_NESTED: Final[Mapping[str, frozenset[str]]] = {
    "restart": RESTART_KEYS,
    "stop": STOP_KEYS,
    "toolFilter": TOOL_FILTER_KEYS,
}
_SNAKE: Final = re.compile(r"_([a-z])")


def canonical(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The record in the spelling of this program, its keys in their order.

    Where two spellings of a key are given, the right one wins. `transport` wins over `type`, and
    `type: "stdio"` says nothing, since `command` says it.
    """
    result = _camel(record, SERVER_KEYS)
    for key, known in _NESTED.items():
        inner = result.get(key)
        if isinstance(inner, dict):
            result[key] = _camel(inner, known)
    if "cwd" in result:
        result.pop("workingDirectory", None)
    else:
        result = _renamed(result, "workingDirectory", "cwd")
    return _with_transport(result)


def _with_transport(record: dict[str, JsonValue]) -> dict[str, JsonValue]:
    kind, transport = record.get("type"), record.get("transport")
    if isinstance(transport, str):
        record["transport"] = TRANSPORTS.get(transport.strip(), transport)
    if kind == "stdio" or (kind in TRANSPORTS and transport is not None):
        del record["type"]
    elif isinstance(kind, str) and kind in TRANSPORTS:
        record = _renamed(record, "type", "transport", lambda _: TRANSPORTS[kind])
    return record


def _camel(record: Mapping[str, JsonValue], known: frozenset[str]) -> dict[str, JsonValue]:
    """Keys in snake_case become the known ones that they mean."""
    result = dict[str, JsonValue]()
    for key, value in record.items():
        name = _SNAKE.sub(lambda letter: letter[1].upper(), key)
        if name == key or name not in known:
            result[key] = value
        elif name not in record:
            result[name] = value
    return result


def _renamed(
    record: Mapping[str, JsonValue],
    old: str,
    new: str,
    change: Callable[[JsonValue], JsonValue] = lambda value: value,
) -> dict[str, JsonValue]:
    """`old` under the name of `new`, in the same place."""
    return {
        new if key == old else key: change(value) if key == old else value
        for key, value in record.items()
        if key != new or old not in record
    }
