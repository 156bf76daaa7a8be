"""A client's server entry in our words; pure.

What cannot be said here is left out and named, except where the server would then be another one:
that entry is refused. A reference to the environment stays one, in our spelling.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from pydantic import JsonValue

from supervisor.cli.configure.clients import Client
from supervisor.cli.configure.reading import ForeignEntry
from supervisor.config.canonical import canonical
from supervisor.config.records import SERVER_KEYS

OURSELVES: Final = "mcpctl"
_OUR_COMMANDS: Final = frozenset({"connect", "serve"})
_SHORTEST_TIMEOUT_MS: Final = 1000
"""Claude Code ignores less."""

_BRACED: Final = re.compile(r"\$\{([^}]*)\}")
_GEMINI: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?")
_SECONDS: Final[Mapping[str, str]] = {
    "connectTimeout": "connectionTimeoutMs",
    "connect_timeout": "connectionTimeoutMs",
    "timeout": "requestTimeoutMs",
}
"""Retired keys of OpenClaw, in seconds."""


class RefusedEntry(Exception):  # noqa: N818 - it is an outcome, which the caller shows
    """The entry cannot be taken over; the text is the rest of a sentence about it."""


@dataclass(slots=True)
class Translated:
    """An entry in our words.

    Attributes:
        record: ours.
        notes: what was left out, or has to be done by a person.
    """

    record: dict[str, JsonValue]
    notes: list[str] = field(default_factory=list)


def goes_through_us(record: JsonValue) -> bool:
    """Whether the entry runs `mcpctl connect` or `mcpctl serve`, also through another program."""
    if not isinstance(record, dict):
        return False
    args = record.get("args")
    words = [record.get("command"), *(args if isinstance(args, list) else ())]
    texts = [word for word in words if isinstance(word, str)]
    for at, word in enumerate(texts):
        if PurePosixPath(word).name == OURSELVES or word == "supervisor.cli.entry":
            return not _OUR_COMMANDS.isdisjoint(texts[at + 1 :])
    return False


def translate(entry: ForeignEntry, client: Client, home: str) -> Translated:
    """Say the entry in our words.

    Args:
        entry: as the client has it.
        client: whose it is.
        home: the user's home directory.

    Raises:
        RefusedEntry: it cannot be said.
    """
    if not isinstance(entry.record, dict):
        message = "it is no object"
        raise RefusedEntry(message)
    result = Translated({})
    rewrite = _rewriter(client, entry, home, result.notes)
    record = {key: _each_text(value, rewrite) for key, value in entry.record.items()}
    own = _OWN.get(client.name)
    record = own(record, result.notes) if own is not None else record
    record = canonical(_enabled(record, entry))
    placed = _placed(without_empty(record), entry.folder, result.notes)
    result.record = _known(placed, result.notes)
    return result


def without_empty(record: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The record without empty arguments, variables and headers, which say nothing."""
    return {
        key: value
        for key, value in record.items()
        if key not in ("args", "env", "headers") or value not in ([], {})
    }


def _enabled(record: dict[str, JsonValue], entry: ForeignEntry) -> dict[str, JsonValue]:
    disabled = record.pop("disabled", None)
    if (disabled is True or entry.disabled) and "enabled" not in record:
        record["enabled"] = False
    return record


def _placed(
    record: dict[str, JsonValue], folder: str | None, notes: list[str]
) -> dict[str, JsonValue]:
    """A client starts the servers of a project in its folder, and finds files from there."""
    if folder is None or not record.get("command"):
        return record
    cwd, env_file = record.get("cwd"), record.get("envFile")
    if cwd is None:
        record["cwd"] = folder
        notes.append(f"belongs to the project {folder}, and so starts there")
    elif isinstance(cwd, str) and not cwd.startswith(("/", "~", "$")):
        record["cwd"] = str(PurePosixPath(folder, cwd))
    if isinstance(env_file, str) and not env_file.startswith(("/", "~", "$")):
        record["envFile"] = str(PurePosixPath(folder, env_file))
    return record


def _known(record: dict[str, JsonValue], notes: list[str]) -> dict[str, JsonValue]:
    other = [key for key in record if key not in SERVER_KEYS]
    if other:
        notes.append(f"left out, since nothing here reads it: {', '.join(sorted(other))}")
    return {key: value for key, value in record.items() if key in SERVER_KEYS and value is not None}


def _each_text(value: JsonValue, rewrite: Callable[[str], str]) -> JsonValue:
    match value:
        case str():
            return rewrite(value)
        case list():
            return [_each_text(item, rewrite) for item in value]
        case dict():
            return {key: _each_text(item, rewrite) for key, item in value.items()}
        case _:
            return value


# References.


def _rewriter(
    client: Client, entry: ForeignEntry, home: str, notes: list[str]
) -> Callable[[str], str]:
    match client.references:
        case "ours":
            return lambda text: text
        case "none":
            return _literal
        case "gemini":
            return lambda text: _GEMINI.sub(r"${\1}", text)
        case "editor":
            return lambda text: _BRACED.sub(
                lambda found: _editor_variable(found[1], entry.folder, home, notes), text
            )


def _literal(text: str) -> str:
    """Text that the client hands on as it is must not become a reference here."""
    return _BRACED.sub(lambda f: f"${f[0]}" if _NAME.fullmatch(f[1]) else f[0], text)


def _editor_variable(variable: str, folder: str | None, home: str, notes: list[str]) -> str:
    kind, colon, name = variable.partition(":")
    if colon and kind == "env" and _NAME.fullmatch(name):
        return f"${{{name}}}"
    if colon and kind == "input":
        wanted = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
        wanted = wanted if wanted[:1].isalpha() else f"INPUT_{wanted}"
        note = f"the input {name!r} becomes ${{{wanted}}}; set it in the daemon's environment"
        if note not in notes:
            notes.append(note)
        return f"${{{wanted}}}"
    if variable == "userHome":
        return home
    if variable in ("pathSeparator", "/"):
        return "/"
    if folder is not None and variable in ("workspaceFolder", "cwd"):
        return folder
    if folder is not None and variable == "workspaceFolderBasename":
        return PurePosixPath(folder).name
    message = f"${{{variable}}} means nothing outside the editor"
    if variable.startswith("workspaceFolder"):
        message += "; import the file of a project, or write the folder in full"
    raise RefusedEntry(message)


# What single clients call things.


def _from_claude_code(record: dict[str, JsonValue], notes: list[str]) -> dict[str, JsonValue]:
    timeout = record.pop("timeout", None)
    if isinstance(timeout, int | float) and timeout >= _SHORTEST_TIMEOUT_MS:
        record.setdefault("requestTimeoutMs", timeout)
    if "headersHelper" in record:
        notes.append("headersHelper is no setting here; write its headers as references")
        del record["headersHelper"]
    return record


def _from_cursor(record: dict[str, JsonValue], notes: list[str]) -> dict[str, JsonValue]:
    if isinstance(record.get("auth"), dict):
        del record["auth"]
        notes.append("left out, since nothing here reads it: auth")
    return record


def _from_gemini(record: dict[str, JsonValue], notes: list[str]) -> dict[str, JsonValue]:
    http, url = record.pop("httpUrl", None), record.get("url")
    if http is not None:
        record |= {"url": http, "transport": "streamable-http"}
        record.pop("type", None)
    elif url is not None and "type" not in record:
        record["transport"] = "sse"
    timeout = record.pop("timeout", None)
    if timeout is not None:
        record["requestTimeoutMs"] = timeout
    if record.pop("oauth", None) is not None:
        notes.append("left out: oauth; write what it needs by hand")
    return _filtered(record, "includeTools", "excludeTools")


def _from_codex(record: dict[str, JsonValue], _: list[str]) -> dict[str, JsonValue]:
    env, headers = _object(record.pop("env", None)), _object(record.pop("http_headers", None))
    forwarded = record.pop("env_vars", None)
    for variable in forwarded if isinstance(forwarded, list) else ():
        name = variable.get("name") if isinstance(variable, dict) else variable
        env.setdefault(str(name), f"${{{name}}}")
    headers |= {k: f"${{{v}}}" for k, v in _object(record.pop("env_http_headers", None)).items()}
    bearer = record.pop("bearer_token_env_var", None)
    if bearer is not None:
        headers["Authorization"] = f"Bearer ${{{bearer}}}"
    record |= {"env": env} if env else {}
    record |= {"headers": headers} if headers else {}
    if "url" in record:
        record["transport"] = "streamable-http"
    start_ms = record.pop("startup_timeout_ms", None)
    start_s, call_s = record.pop("startup_timeout_sec", None), record.pop("tool_timeout_sec", None)
    _set(record, "connectionTimeoutMs", start_ms if start_s is None else _ms(start_s))
    _set(record, "requestTimeoutMs", _ms(call_s))
    mode = record.pop("default_tools_approval_mode", None)
    _set(record, "codex", None if mode is None else {"defaultToolsApprovalMode": mode})
    return _filtered(record, "enabled_tools", "disabled_tools")


def _from_openclaw(record: dict[str, JsonValue], _: list[str]) -> dict[str, JsonValue]:
    for old, new in _SECONDS.items():
        value = record.pop(old, None)
        if isinstance(value, int | float) and value > 0:
            record.setdefault(new, _ms(value))
    # it takes a URL without a transport for SSE, and nothing else is tried there
    if record.get("url") and not record.get("command") and "type" not in record:
        record.setdefault("transport", "sse")
    return record


_OWN: Final[Mapping[str, Callable[[dict[str, JsonValue], list[str]], dict[str, JsonValue]]]] = {
    "claude-code": _from_claude_code,
    "codex": _from_codex,
    "cursor": _from_cursor,
    "gemini": _from_gemini,
    "openclaw": _from_openclaw,
}


def _filtered(record: dict[str, JsonValue], include: str, exclude: str) -> dict[str, JsonValue]:
    given = {"include": record.pop(include, None), "exclude": record.pop(exclude, None)}
    kept: dict[str, JsonValue] = {key: value for key, value in given.items() if value is not None}
    return record | ({"toolFilter": kept} if kept else {})


def _object(value: JsonValue) -> dict[str, JsonValue]:
    return dict(value) if isinstance(value, dict) else {}


def _set(record: dict[str, JsonValue], key: str, value: JsonValue) -> None:
    if value is not None:
        record[key] = value


def _ms(seconds: JsonValue) -> JsonValue:
    """Milliseconds, whole where they are; what is no number is left for the loader to refuse."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return seconds
    span = round(seconds * 1000, 6)
    return int(span) if span == int(span) else span
