"""Reads the server entries out of a client's file: JSON with or without comments, or TOML."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import json5
from pydantic import JsonValue

from supervisor.cli.configure.clients import CLIENTS, Client
from supervisor.config.document import dotted
from supervisor.config.file_change import Seen
from supervisor.core.errors import ConfigError

MAX_JSON5_CHARACTERS: Final = 500_000
"""json5 reads 50000 characters a second; a file with comments is written by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignEntry:
    """A server as a client has it.

    Attributes:
        name: its key.
        record: its value.
        folder: of the project that it belongs to, where the client would start it; or None.
        disabled: whether the client has switched it off elsewhere in its file.
    """

    name: str
    record: JsonValue = field(repr=False)
    folder: str | None
    disabled: bool = False


def parse_foreign(seen: Seen, file: str, *, toml: bool) -> JsonValue:
    """The content of a client's file.

    Args:
        seen: the file as it was read.
        file: its path, for messages.
        toml: whether it is TOML; else JSON, JSON with comments, or JSON5.

    Raises:
        ConfigError: it is none; the sentence names the line where that is known.
    """
    text = seen.text or ""
    try:
        if toml:
            # a date, which JSON cannot say, stands in no server's table
            value: JsonValue = json.loads(json.dumps(tomllib.loads(text), default=str))
            return value
        return _parse_json(text, file)
    except tomllib.TOMLDecodeError as error:
        message = f"{file}: this is no TOML: {str(error)[:1].lower()}{str(error)[1:]}."
        raise ConfigError(message) from None
    except RecursionError:
        message = f"{file}: the values are nested too deeply."
        raise ConfigError(message) from None


def entries_of(
    value: JsonValue, client: Client, file: str, folder: str | None
) -> Iterator[ForeignEntry]:
    """Yield the servers of a client's file.

    Args:
        value: its content.
        client: whose file it is.
        file: its path, for messages.
        folder: of the project that the file belongs to, or None.

    Raises:
        ConfigError: what should hold servers is no object.
    """
    servers, path = _find(value, client)
    if not isinstance(servers, dict | None):
        message = f"{file}: {dotted(path)} is no object, so it holds no servers."
        raise ConfigError(message)
    off = _switched_off(value) if client is CLIENTS["gemini"] else frozenset()
    for name, record in (servers or {}).items():
        yield ForeignEntry(name=name, record=record, folder=folder, disabled=name in off)
    projects = _at(value, ("projects",)) if client is CLIENTS["claude-code"] else None
    for project, inner in projects.items() if isinstance(projects, dict) else ():
        own = _at(inner, ("mcpServers",))
        for name, record in own.items() if isinstance(own, dict) else ():
            yield ForeignEntry(name=name, record=record, folder=project)


def _parse_json(text: str, file: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        pass
    else:
        return value
    if len(text) > MAX_JSON5_CHARACTERS:
        message = f"{file}: this is no JSON, and too large to be read as JSON with comments."
        raise ConfigError(message)
    try:
        value = json5.loads(text, allow_duplicate_keys=False)
    except ValueError as error:
        raise ConfigError(_no_json5(file, str(error))) from None
    return value


def _no_json5(file: str, reason: str) -> str:
    """json5's reason without the text that it quotes, which may be a secret."""
    where, _, what = reason.partition(" ")
    line = where.rpartition(":")[2]
    if line.isdigit():
        column = what.rpartition("column ")[2]
        return f"{file}, line {line}, column {column}: this is no JSON (with or without comments)."
    if reason.startswith("Duplicate key"):
        return f"{file}: a key stands in an object twice; take one out."
    return f"{file}: this is no JSON (with or without comments)."


def _find(value: JsonValue, client: Client) -> tuple[JsonValue, tuple[str, ...]]:
    for path in client.maps:
        found = _at(value, path)
        if found is not None:
            return found, path
    return None, client.maps[0]


def _at(value: JsonValue, path: tuple[str, ...]) -> JsonValue:
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _switched_off(value: JsonValue) -> frozenset[str]:
    """Servers that the `mcp` block of Gemini CLI leaves out."""
    excluded = _at(value, ("mcp", "excluded"))
    return frozenset(map(str, excluded)) if isinstance(excluded, list) else frozenset()
