"""A JSON file together with the line of each key, for errors that say where.

`json` decides what is valid and makes the values. A second, simpler pass over the lexemes of what
is valid by then finds lines, duplicate keys and texts that no program could be given.
No message shows a value of the file: a typing mistake can put a secret anywhere.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from pydantic import JsonValue

from supervisor.core.errors import ConfigError

KeyPath = tuple[str | int, ...]
"""The keys and list positions that lead to a value, from the outermost one on."""

_DEEPEST_LINE: Final = 8
"""Keys are nested five deep in a full configuration; no message speaks of what is below this."""

_LEXEME: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],]|[^\s{}\[\],:"]+')
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_$-]+")
_SHOWN: Final = re.compile(r"[a-z0-9_.-]{1,20}(?: [a-z]{1,7})?")
_PRIVATE: Final = frozenset({"args", "command", "env", "headers", "oauth", "url"})


class Problem(NamedTuple):
    """One thing that is wrong, as a sentence with file, line, server and field."""

    line: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Document:
    """The file's value and where its parts stand.

    Attributes:
        file: its path, as given.
        value: the JSON value; of duplicate keys the last.
        lines: the line of each key and list item, from 1.
        problems: duplicate keys and impossible texts.
    """

    file: str
    value: JsonValue = field(repr=False)
    lines: Mapping[KeyPath, int]
    problems: tuple[Problem, ...]

    def problem(self, path: KeyPath, text: str) -> Problem:
        """Say what is wrong (or notable) at `path`; `text` starts in lower case."""
        return _problem(self.file, self.lines.get(path, 1), path, text)

    def place(self, path: KeyPath) -> str:
        """File and line of `path`, for a sentence about another place."""
        return f"{self.file}, line {self.lines.get(path, 1)}"

    def at(self, path: KeyPath) -> JsonValue:
        """The value at `path`; None where there is none, or no object on the way."""
        value = self.value
        for part in path:
            value = value.get(str(part)) if isinstance(value, dict) else None
        return value


def parse(text: str, file: str) -> Document:
    """Read JSON text.

    Args:
        text: the file's content, at most a few MiB.
        file: its path, for messages.

    Raises:
        ConfigError: it is no JSON; the sentence names the line and, where known, the mistake.
    """
    try:
        value: JsonValue = json.loads(
            text, parse_constant=_refuse, parse_int=_integer, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        where = f"{file}, line {error.lineno}, column {error.colno}"
        message = f"{where}: this is no JSON: {_mistake(text, error)}."
        raise ConfigError(message) from None
    except _NumberError as error:
        message = f"{file}, line {_line_of(text, error.literal)}: this is no JSON: {error}."
        raise ConfigError(message) from None
    except RecursionError:
        message = f"{file}: the values are nested too deeply."
        raise ConfigError(message) from None
    walk = _Walk(file)
    for line, lexeme in _lexemes(text):
        walk.take(line, lexeme)
    return Document(file, value, walk.lines, tuple(walk.problems))


def describe(value: JsonValue, path: KeyPath) -> str:
    """A value for an error message: short and harmless ones as they are, else their kind."""
    private = not _PRIVATE.isdisjoint(part for part in path if isinstance(part, str))
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number" if private else f"{value:.12g}"
        case str():
            return repr(value) if not private and _SHOWN.fullmatch(value) else "text"
        case list():
            return "a list"
        case dict():
            return "an object"


def dotted(parts: Iterable[str | int]) -> str:
    """A path as people write it: `env.TOKEN`, `args[2]`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += "." * bool(text) + (part if _PLAIN_KEY.fullmatch(part) else repr(part))
    return text


def _problem(file: str, line: int, path: KeyPath, text: str) -> Problem:
    return Problem(line, f"{file}, line {line}: {_subject(path)}{text}")


def _subject(path: KeyPath) -> str:
    match path:
        case ("mcpServers", str() as server, *rest) | ("mcp", "servers", str() as server, *rest):
            return f"server {server!r}{', field ' + dotted(rest) if rest else ''}: "
        case ():
            return ""
        case _:
            return f"{dotted(path)}: "


class _NumberError(ValueError):
    """A number that JSON does not know or that does not fit."""

    def __init__(self, literal: str, reason: str) -> None:
        self.literal = literal
        super().__init__(reason)


def _refuse(literal: str) -> float:
    raise _NumberError(literal, f"{literal} is no number")


def _integer(literal: str) -> int:
    if len(literal) > 20:  # noqa: PLR2004 - the digits of 64 bits; Python itself stops at 4300
        raise _NumberError(literal, "a number is too large")
    return int(literal)


def _finite(literal: str) -> float:
    if not isfinite(value := float(literal)):
        raise _NumberError(literal, "a number is too large")
    return value


def _mistake(text: str, error: json.JSONDecodeError) -> str:
    rest, before = text[error.pos :], text[: error.pos].rstrip()
    if not text.strip():
        return 'the file is empty; write {"mcpServers": {}}'
    if re.match(r",\s*[}\]]", rest) or (rest[:1] in ("}", "]") and before.endswith(",")):
        return "a comma stands before the closing bracket; take it out"
    if rest.startswith(("//", "/*", "#")):
        return "comments are not possible; take it out"
    if rest.startswith("'"):
        return 'texts and keys stand in double quotes (")'
    return error.msg[:1].lower() + error.msg[1:]


def _lexemes(text: str) -> Iterator[tuple[int, str]]:
    line, counted_to = 1, 0
    for found in _LEXEME.finditer(text):
        line += text.count("\n", counted_to, found.start())
        counted_to = found.start()
        yield line, found[0]


def _line_of(text: str, literal: str) -> int:
    return next((line for line, lexeme in _lexemes(text) if lexeme == literal), 1)


@dataclass(slots=True)
class _Open:
    """An object or list whose end has not come yet; `part` is None before an object's key."""

    seen: dict[str, int] | None
    part: str | int | None


class _Walk:
    """Goes through the lexemes of valid JSON and notes lines and problems."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines = dict[KeyPath, int]()
        self.problems = list[Problem]()
        self._stack = list[_Open]()

    def take(self, line: int, lexeme: str) -> None:
        """Take the next lexeme, which stands in `line`."""
        inner = self._stack[-1] if self._stack else None
        if lexeme in ("}", "]"):
            self._stack.pop()
        elif lexeme == "," and inner is not None:
            inner.part = inner.part + 1 if isinstance(inner.part, int) else None
        else:
            if inner is not None and inner.seen is not None and inner.part is None:
                self._take_key(line, inner, inner.seen, json.loads(lexeme))
            self._take_value(line, lexeme)

    def _take_key(self, line: int, inner: _Open, seen: dict[str, int], key: str) -> None:
        inner.part = key
        if key in seen:
            again = f"this key stands here twice, first in line {seen[key]}; take one out."
            self._problem(line, again)
        seen[key] = line

    def _take_value(self, line: int, lexeme: str) -> None:
        # keys come through here as well; the line of a key wins over that of its value
        if len(self._stack) <= _DEEPEST_LINE:
            self.lines.setdefault(self._path(), line)
        if lexeme.startswith('"') and (reason := _impossible(lexeme)):
            self._problem(line, reason)
        if lexeme in ("{", "["):
            self._stack.append(_Open({}, None) if lexeme == "{" else _Open(None, 0))

    def _path(self) -> KeyPath:
        opened = self._stack[:_DEEPEST_LINE]
        return tuple(inner.part for inner in opened if inner.part is not None)

    def _problem(self, line: int, text: str) -> None:
        self.problems.append(_problem(self.file, line, self._path(), text))


def _impossible(literal: str) -> str:
    text = json.loads(literal)
    if "\0" in text:
        return "this text holds a NUL character, which no program can be given; take it out."
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "this text holds half a surrogate pair (\\ud800 to \\udfff); write the whole one."
    return ""
