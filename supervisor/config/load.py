"""Reads a configuration file: all of it is right, or every problem of it is told at once."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from supervisor.config.accounts import SystemAccounts, account_of
from supervisor.config.check import unknown_keys, validate
from supervisor.config.document import Document, KeyPath, Problem, describe, parse
from supervisor.config.models import Configuration, Server, Settings, count_processors
from supervisor.config.records import (
    MCP_KEYS,
    SERVER_KEYS,
    SETTINGS_KEYS,
    STOP_KEYS,
    TOP_KEYS,
    ServerRecord,
    SettingsRecord,
)
from supervisor.config.references import expand
from supervisor.config.servers import Surroundings, make_server
from supervisor.core.errors import ConfigError
from supervisor.core.ids import ServerName

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A thousand servers take less than one MiB; this is for /dev/zero and swapped arguments."""

_SERVER_MAPS: Final[tuple[KeyPath, ...]] = (("mcpServers",), ("mcp", "servers"))


def load_configuration(
    file: str, environ: Mapping[str, str], *, home: str, required: bool = False
) -> Configuration:
    """Read `file`, or answer an empty configuration with a warning where there is none.

    Args:
        file: path of a JSON file in UTF-8, at most `MAX_FILE_BYTES`.
        environ: the daemon's environment; references are resolved from it.
        home: the daemon's home directory from its passwd entry, for `~`.
        required: whether a missing file is an error.

    Raises:
        ConfigError: the file cannot be read, is no JSON, or is wrong somewhere.
    """
    text = _read(file)
    if text is None:
        sentence = f"{file} does not exist, so no servers are configured; create it to add some."
        if required:
            raise ConfigError(sentence)
        return Configuration(file=None, servers={}, settings=Settings(), warnings=(sentence,))
    accounts = SystemAccounts()
    daemon = replace(account_of(accounts, os.geteuid()), gid=os.getegid(), home=home)
    return read_configuration(
        text, file, Surroundings(environ=environ, daemon=daemon, accounts=accounts)
    )


def read_configuration(text: str, file: str, around: Surroundings) -> Configuration:
    """Read the text of a configuration file; the caller says what the daemon is.

    Raises:
        ConfigError: the text is no JSON or is wrong somewhere.
    """
    document = parse(text, file)
    problems = list(document.problems)
    records = dict[KeyPath, ServerRecord]()
    for path, value in _server_values(document, problems):
        problems += _refused_name(document, path)
        record, more = validate(document, path, value, ServerRecord)
        problems += [*more, *_disabled(document, path, value)]
        if record is not None:
            records[path] = record
    settings = _settings(document, around, problems)
    if problems:
        raise ConfigError(*_sentences(problems))
    around = replace(around, path=settings.path)
    servers, warnings = dict[ServerName, Server](), list(_unknown(document))
    for path, record in sorted(records.items(), key=lambda item: str(item[0][-1])):
        server, more = make_server(document, path, record, around)
        servers[server.name] = server
        warnings += more
    return Configuration(
        file=file,
        servers=servers,
        settings=settings,
        warnings=(*_sentences(warnings), *_root_warning(file, servers, around)),
    )


def _read(file: str) -> str | None:
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"{file} cannot be read: {reason}."
        raise ConfigError(message) from None
    if len(content) > MAX_FILE_BYTES:
        message = f"{file} is larger than {MAX_FILE_BYTES >> 20} MiB, so it is no configuration."
        raise ConfigError(message)
    try:
        return content.decode("utf-8-sig")  # some editors put a byte order mark first
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"{file}, line {line}: this is no UTF-8; save the file in that encoding."
        raise ConfigError(message) from None


def _sentences(problems: list[Problem]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(problem.sentence for problem in sorted(problems)))


def _at(document: Document, path: KeyPath) -> JsonValue:
    value = document.value
    for part in path:
        value = value.get(str(part)) if isinstance(value, dict) else None
    return value


def _server_values(
    document: Document, problems: list[Problem]
) -> Iterator[tuple[KeyPath, JsonValue]]:
    """Yield each server's place and value; what is no object on the way becomes a problem."""
    outer: tuple[KeyPath, ...] = ((), ("mcp",), ("supervisor",), *_SERVER_MAPS)
    for path in outer:
        value = _at(document, path)
        if not isinstance(value, dict | None) or (value is None and path == ()):
            text = f"{describe(value, path)} where an object, such as {{}}, belongs."
            problems.append(document.problem(path, text))
    seen = dict[str, KeyPath]()
    for path in _SERVER_MAPS:
        value = _at(document, path)
        for name, record in value.items() if isinstance(value, dict) else ():
            if name in seen:
                text = "this server stands under mcpServers as well; take one of the two out."
                problems.append(document.problem((*path, name), text))
            seen[name] = path
            yield (*path, name), record


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


def _unknown(document: Document) -> Iterator[Problem]:
    yield from unknown_keys(document, (), document.value, TOP_KEYS)
    yield from unknown_keys(document, ("mcp",), _at(document, ("mcp",)), MCP_KEYS)
    settings = _at(document, ("supervisor",))
    yield from unknown_keys(document, ("supervisor",), settings, SETTINGS_KEYS)
    for path, value in _server_values(document, []):
        yield from unknown_keys(document, path, value, SERVER_KEYS)
        stop: KeyPath = (*path, "stop")
        yield from unknown_keys(document, stop, _at(document, stop), STOP_KEYS)


def _settings(document: Document, around: Surroundings, problems: list[Problem]) -> Settings:
    block: KeyPath = ("supervisor",)
    value = _at(document, block)
    if not isinstance(value, dict):
        return Settings()
    record, wrong = validate(document, block, value, SettingsRecord)
    problems += wrong

    def read(key: str) -> str | None:
        # from the file and not from the record: a wrong number elsewhere hides nothing here
        text = value.get(key)
        if not isinstance(text, str):
            return None
        expanded = expand(text, around.environ)
        for name in (*expanded.missing, *expanded.nested):
            reason = f"the variable {name} is not set, or its default holds a reference."
            problems.append(document.problem((*block, key), reason))
        return expanded.text

    path, group = read("path"), read("socketGroup")
    if group is not None and around.accounts.group(group) is None:
        text = "no group of this machine has this name; name one, or take it out."
        problems.append(document.problem((*block, "socketGroup"), text))
    if record is None:
        return Settings()
    timeout_ms = record.shutdown_timeout_ms
    return Settings(
        max_instances=record.max_instances or Settings().max_instances,
        start_concurrency=record.start_concurrency or count_processors(),
        shutdown_timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        socket_group=group,
        path=path,
    )


def _root_warning(
    file: str, servers: Mapping[ServerName, Server], around: Surroundings
) -> Iterator[str]:
    as_root = [
        repr(server.name)
        for server in servers.values()
        if server.enabled and server.launch is not None and server.launch.uid is None
    ]
    if around.daemon.uid == 0 and as_root:
        yield (
            f"{file}: the daemon runs as root, and so would {', '.join(as_root)}; write a uid "
            "into each record."
        )
