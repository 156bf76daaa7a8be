"""Makes a server's record out of the options of `mcpctl add`; pure.

A value that cannot be understood may be a secret, so messages count the options and never show
what stands in them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from supervisor.config.canonical import canonical
from supervisor.core.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said; None and empty where it said nothing.

    Attributes:
        words: what stands behind `--`: the command and its arguments.
        cwd: an absolute path, or one that begins with `~` or a reference.
        timeout_ms: for each request, in milliseconds.
        connect_timeout_ms: for the start, in milliseconds.
    """

    words: Sequence[str] = ()
    command: str | None = None
    arguments: Sequence[str] = ()
    env: Sequence[str] = ()
    cwd: str | None = None
    url: str | None = None
    transport: str | None = None
    headers: Sequence[str] = ()
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    timeout_ms: float | None = None
    connect_timeout_ms: float | None = None
    disabled: bool = False
    scope: str | None = None


def record_of(given: Options) -> dict[str, JsonValue]:
    """The record.

    Raises:
        RequestError: the options do not make one.
    """
    _refuse_contradictions(given)
    record = dict[str, JsonValue]()
    if given.url is not None:
        record |= {"url": given.url, "transport": given.transport}
        record["headers"] = dict(_pairs(given.headers, "--header", "=:"))
    else:
        command, *arguments = given.words or (given.command or "", *given.arguments)
        record |= {"command": command, "args": [*arguments]}
        record["env"] = dict(_pairs(given.env, "--env", "="))
        record["cwd"] = given.cwd
    record["enabled"] = False if given.disabled else None
    record["scope"] = given.scope
    record["connectionTimeoutMs"] = _whole(given.connect_timeout_ms)
    record["requestTimeoutMs"] = _whole(given.timeout_ms)
    include, exclude = _split(given.include), _split(given.exclude)
    record["toolFilter"] = {
        **({"include": include} if include else {}),
        **({"exclude": exclude} if exclude else {}),
    }
    return canonical({k: v for k, v in record.items() if v is not None and v not in ({}, [])})


def _refuse_contradictions(given: Options) -> None:
    local = given.command is not None or bool(given.words)
    if local == (given.url is not None):
        message = (
            "A server has either a command or a URL: write `mcpctl add NAME -- COMMAND ARG…`, "
            "--command, or --url."
        )
    elif given.words and (given.command is not None or given.arguments):
        message = "The command stands behind `--`, so --command and --arg have no place."
    elif local and (given.headers or given.transport not in (None, "stdio")):
        message = "--header and --transport belong to a --url."
    elif not local and (given.arguments or given.env or given.cwd is not None):
        message = "--arg, --env and --cwd belong to a command, and --header to a --url."
    elif given.url is not None and given.transport == "stdio":
        message = "A --url is no stdio server; leave --transport out, or write streamable-http."
    else:
        return
    raise RequestError(message)


def _pairs(texts: Iterable[str], option: str, marks: str) -> Iterable[tuple[str, str]]:
    for number, text in enumerate(texts, start=1):
        at = min((text.find(mark) for mark in marks if mark in text), default=-1)
        if at < 1:
            message = f"{option} number {number} is no pair; write {option} NAME=VALUE."
            raise RequestError(message)
        value = text[at + 1 :]
        yield text[:at].strip(), value.lstrip() if text[at] == ":" else value


def _split(texts: Iterable[str]) -> list[JsonValue]:
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def _whole(span_ms: float | None) -> JsonValue:
    return int(span_ms) if span_ms is not None and span_ms == int(span_ms) else span_ms
