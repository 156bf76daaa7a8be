"""Changes one member of a JSON text and leaves every other character where it is.

Order, other keys, and their formatting stay. What is put in is indented by two blanks a level; a
text on a single line is written anew first, since it has no formatting to keep, and an object on
a line of its own stays on that line. Comments and other freedoms of JSON5 are understood, so that
files of other programs can be changed too.
Not done: deciding what may be written. The caller reads the result before it goes anywhere.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pydantic import JsonValue

from supervisor.core.errors import InternalError

INDENT: Final = 2
"""Blanks for each level of what is put in."""

_LONGEST_LIST: Final = 80
"""In characters: a list of plain values up to there stands on one line, as people write it."""

_TOKEN: Final = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"'
    r"|'[^'\\]*(?:\\.[^'\\]*)*'"
    r"|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|[{}\[\],:]"
    r"|[^\s{}\[\],:\"'/]+",
    re.DOTALL,
)


class _Token(NamedTuple):
    start: int
    end: int
    text: str


class _Member(NamedTuple):
    """A key and its value; `at` is the value's first token."""

    key: str
    start: int
    value_start: int
    end: int
    at: int


class _Object(NamedTuple):
    """From its opening brace to behind its closing one."""

    start: int
    end: int
    members: tuple[_Member, ...]


def put(text: str, path: Sequence[str], value: JsonValue) -> str:
    """Set the member at `path`, where it stands or as the last one of its object.

    Args:
        text: a JSON or JSON5 text whose value is an object.
        path: keys from the outermost one on; objects on the way are made where there are none.
        value: what is to stand there.

    Raises:
        InternalError: the result would not be what was meant; nothing but a bug gets there.
    """
    if "\n" not in text.strip():
        text = pretty(_read(text)) + "\n"
    tokens = _tokens(text)
    found, depth = _object_at(tokens, 0), 0
    while depth < len(path) - 1:
        inner = _member(found, path[depth])
        if inner is None or tokens[inner.at].text != "{":
            break
        found, depth = _object_at(tokens, inner.at), depth + 1
    inserted = value
    for key in reversed(path[depth + 1 :]):
        inserted = {key: inserted}
    changed = _put_member(text, found, path[depth], inserted)
    _verify(changed, with_member(_read(text), path, value))
    return changed


def pretty(value: JsonValue, margin: str = "", newline: str = "\n") -> str:
    """The value as JSON over several lines, the first of which is not indented."""
    inner = margin + " " * INDENT
    match value:
        case dict() if value:
            items = [
                f"{json.dumps(key, ensure_ascii=False)}: {pretty(item, inner, newline)}"
                for key, item in value.items()
            ]
            opening, closing = "{}"
        case list() if value and not _is_short(value):
            items = [pretty(item, inner, newline) for item in value]
            opening, closing = "[]"
        case _:
            return json.dumps(value, ensure_ascii=False)
    between = f",{newline}{inner}"
    return f"{opening}{newline}{inner}{between.join(items)}{newline}{margin}{closing}"


def take_out(text: str, path: Sequence[str]) -> str:
    """Remove the member at `path`, which exists, with its comma.

    Raises:
        InternalError: as for `put`.
    """
    tokens = _tokens(text)
    found = _object_at(tokens, 0)
    for key in path[:-1]:
        found = _object_at(tokens, _existing(found, key).at)
    members = found.members
    at = members.index(_existing(found, path[-1]))
    if len(members) == 1:
        start, end = found.start + 1, found.end - 1
    elif at + 1 < len(members):
        start, end = members[at].start, members[at + 1].start
    else:
        start, end = members[at - 1].end, members[at].end
    changed = text[:start] + text[end:]
    _verify(changed, without_member(_read(text), path))
    return changed


def with_member(value: JsonValue, path: Sequence[str], member: JsonValue) -> JsonValue:
    """`value` with `member` at `path`; what is no object on the way is replaced by one."""
    if not path:
        return member
    inner = value if isinstance(value, dict) else {}
    return {**inner, path[0]: with_member(inner.get(path[0]), path[1:], member)}


def without_member(value: JsonValue, path: Sequence[str]) -> JsonValue:
    """`value` without what stands at `path`."""
    if not isinstance(value, dict):
        return value
    if len(path) == 1:
        return {key: inner for key, inner in value.items() if key != path[0]}
    return {
        key: without_member(inner, path[1:]) if key == path[0] else inner
        for key, inner in value.items()
    }


def _read(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError:  # json reads a hundred times faster than json5, which takes the rest
        value = _read_json5(text)
    return value


def _read_json5(text: str) -> JsonValue:
    import json5  # noqa: PLC0415 - only files of other programs need it

    value: JsonValue = json5.loads(text)
    return value


def _is_short(values: list[JsonValue]) -> bool:
    plain = not any(isinstance(value, dict | list) for value in values)
    return plain and len(json.dumps(values, ensure_ascii=False)) <= _LONGEST_LIST


def _verify(text: str, expected: JsonValue) -> None:
    try:
        right = _ordered(_read(text)) == _ordered(expected)
    except ValueError:
        right = False
    if not right:
        message = "A change of a JSON text would have changed something else as well."
        raise InternalError(message)


def _ordered(value: JsonValue) -> object:
    """The value in a form whose comparison minds the order of keys."""
    if isinstance(value, Mapping):
        return [(key, _ordered(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return ("list", *map(_ordered, value))
    return value


def _tokens(text: str) -> list[_Token]:
    return [
        _Token(found.start(), found.end(), found[0])
        for found in _TOKEN.finditer(text)
        if found["comment"] is None
    ]


def _object_at(tokens: list[_Token], at: int) -> _Object:
    """The object whose opening brace is token `at`."""
    members, opening = list[_Member](), tokens[at]
    at += 1
    while tokens[at].text != "}":
        if tokens[at].text == ",":
            at += 1
            continue
        key, value_at = tokens[at], at + 2  # over the colon
        at = _behind(tokens, value_at)
        name = key.text
        if name.startswith('"'):
            name = str(json.loads(name))
        elif name.startswith("'"):
            name = str(_read_json5(name))
        value_start, end = tokens[value_at].start, tokens[at - 1].end
        members.append(_Member(name, key.start, value_start, end, value_at))
    return _Object(opening.start, tokens[at].end, tuple(members))


def _behind(tokens: list[_Token], at: int) -> int:
    """The first token behind the value that begins at `at`."""
    depth = 0
    while True:
        depth += (tokens[at].text in "{[") - (tokens[at].text in "}]")
        at += 1
        if depth == 0:
            return at


def _member(found: _Object, key: str) -> _Member | None:
    # of duplicate keys the last counts, as for every parser
    return next((member for member in reversed(found.members) if member.key == key), None)


def _existing(found: _Object, key: str) -> _Member:
    member = _member(found, key)
    if member is None:
        message = "A member that is to be changed in a JSON text is not there."
        raise InternalError(message)
    return member


def _put_member(text: str, found: _Object, key: str, value: JsonValue) -> str:
    old = _member(found, key)
    if old is not None:
        rendered = _render(value, _margin(text, old.start), text)
        return text[: old.value_start] + rendered + text[old.end :]
    name = json.dumps(key, ensure_ascii=False)
    newline = "\r\n" if "\r\n" in text else "\n"
    if found.members:
        last = found.members[-1]
        margin = _margin(text, last.start)
        before = ", " if margin is None else f",{newline}{margin}"
        new = f"{before}{name}: {_render(value, margin, text)}"
        return text[: last.end] + new + text[last.end :]
    outer = _line_margin(text, found.start)
    margin = outer + " " * INDENT
    new = f"{newline}{margin}{name}: {_render(value, margin, text)}"
    inside = text[found.start + 1 : found.end - 1]
    rest = inside.rstrip() if inside.strip() else ""  # a comment
    return f"{text[: found.start + 1]}{new}{rest}{newline}{outer}{text[found.end - 1 :]}"


def _render(value: JsonValue, margin: str | None, text: str) -> str:
    """The value, on one line where there is no margin for more."""
    if margin is None:
        return json.dumps(value, ensure_ascii=False)
    return pretty(value, margin, "\r\n" if "\r\n" in text else "\n")


def _line_margin(text: str, at: int) -> str:
    """The blanks at the start of the line that holds `at`."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _margin(text: str, at: int) -> str | None:
    """What stands before `at` in its line if that is blank, else None."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return None if line.strip() else line
