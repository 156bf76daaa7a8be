"""Where servers and settings stand in the files, and what is wrong with those places.

Servers stand under `mcpServers` and under `mcp.servers`, where OpenClaw keeps them; both, and
those of all files, are one map. What stands in two places is refused: neither is more right.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import JsonValue

from supervisor.config.check import unknown_keys
from supervisor.config.document import Document, KeyPath, Problem, describe
from supervisor.config.records import (
    MCP_KEYS,
    METRICS_KEYS,
    RESTART_KEYS,
    SERVER_KEYS,
    SETTINGS_KEYS,
    STOP_KEYS,
    TOOL_FILTER_KEYS,
    TOP_KEYS,
)
from supervisor.config.settings import BLOCK

_SERVER_MAPS: Final[tuple[KeyPath, ...]] = (("mcpServers",), ("mcp", "servers"))


def server_values(document: Document) -> Iterator[tuple[KeyPath, JsonValue]]:
    """Yield each server's place and value, also of one that stands in both places."""
    for path in _SERVER_MAPS:
        value = document.at(path)
        for name, record in value.items() if isinstance(value, dict) else ():
            yield (*path, name), record


def misplaced(document: Document) -> Iterator[Problem]:
    """Yield what is no object where one belongs, and what no server can be called."""
    outer: tuple[KeyPath, ...] = ((), ("mcp",), BLOCK, *_SERVER_MAPS)
    for path in outer:
        value = document.at(path)
        if not isinstance(value, dict | None) or (value is None and path == ()):
            text = f"{describe(value, path)} where an object, such as {{}}, belongs."
            yield document.problem(path, text)
    for path, value in server_values(document):
        yield from _refused_name(document, path)
        yield from _disabled(document, path, value)


def said_twice(documents: Iterable[Document]) -> Iterator[tuple[Document, Problem]]:
    """Yield the second place of each server and setting that stands in two, and its file."""
    seen = dict[KeyPath, tuple[Document, KeyPath]]()
    for document in documents:
        for path, subject in _subjects(document):
            first, at = seen.setdefault(subject, (document, path))
            if first is document and at != path:
                text = "this server stands under mcpServers as well; take one of the two out."
                yield document, document.problem(path, text)
            elif first is not document:
                kind = "setting" if path[:1] == BLOCK else "server"
                text = f"this {kind} stands in {first.place(at)} as well; take one of the two out."
                yield document, document.problem(path, text)


def unknown(document: Document) -> Iterator[Problem]:
    """Yield a warning for each key that nothing will ever read."""
    yield from unknown_keys(document, (), document.value, TOP_KEYS)
    yield from unknown_keys(document, ("mcp",), document.at(("mcp",)), MCP_KEYS)
    yield from unknown_keys(document, BLOCK, document.at(BLOCK), SETTINGS_KEYS)
    metrics: KeyPath = (*BLOCK, "metrics")
    yield from unknown_keys(document, metrics, document.at(metrics), METRICS_KEYS)
    for path, value in server_values(document):
        yield from unknown_keys(document, path, value, SERVER_KEYS)
        for key, known in (
            ("stop", STOP_KEYS),
            ("restart", RESTART_KEYS),
            ("toolFilter", TOOL_FILTER_KEYS),
        ):
            yield from unknown_keys(document, (*path, key), document.at((*path, key)), known)


def _subjects(document: Document) -> Iterator[tuple[KeyPath, KeyPath]]:
    """Each place together with what it speaks of, which may stand in one place only."""
    for path, _ in server_values(document):
        yield path, ("mcpServers", path[-1])
    block = document.at(BLOCK)
    for key, value in block.items() if isinstance(block, dict) else ():
        if key in SETTINGS_KEYS and value is not None:
            yield (*BLOCK, key), (*BLOCK, key)


def _refused_name(document: Document, path: KeyPath) -> Iterator[Problem]:
    name = str(path[-1])
    if not name.strip():
        yield document.problem(path, "a server needs a name that is not empty.")
    elif name == "__proto__" or not name.isprintable():
        text = "this name is refused (control characters, or __proto__); choose another one."
        yield document.problem(path, text)


def _disabled(document: Document, path: KeyPath, value: JsonValue) -> Iterator[Problem]:
    # ignoring this one with a warning would start what somebody has switched off
    if isinstance(value, dict) and "disabled" in value:
        enabled = "true" if value["disabled"] is False else "false"
        text = f'this key is called enabled here; write "enabled": {enabled} instead.'
        yield document.problem((*path, "disabled"), text)
