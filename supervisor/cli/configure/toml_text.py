"""Writes tables into a TOML text and leaves all other lines as they are; pure.

The standard library reads TOML and does not write it. What is written here is the little that a
client's entry needs: texts, numbers, truth values, lists of texts.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from pydantic import JsonValue

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"^\s*\[\[?\s*(?P<name>[^\]]*?)\s*\]\]?\s*(?:#.*)?$")


def table(path: tuple[str, ...], values: Mapping[str, JsonValue]) -> str:
    """One table, with its header; ends with a newline.

    Args:
        path: the table's keys.
        values: texts, numbers, truth values, and lists of texts.
    """
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def merge(text: str, parent: str, tables: Mapping[str, Mapping[str, JsonValue]]) -> str | None:
    """Put tables below `parent`; those of the same name are replaced, with what is below them.

    Returns:
        The new text, or None where they are written in a way that this cannot change.
    """
    before = tomllib.loads(text)
    kept = "".join(_without(text.splitlines(keepends=True), parent, frozenset(tables)))
    kept = kept.rstrip() + "\n\n" if kept.strip() else ""
    changed = kept + "\n".join(table((parent, name), values) for name, values in tables.items())
    try:
        after = tomllib.loads(changed)
    except tomllib.TOMLDecodeError:
        return None
    expected = dict(before)
    expected[parent] = {**before.get(parent, {}), **{k: dict(v) for k, v in tables.items()}}
    return changed if after == expected else None


def _without(lines: list[str], parent: str, names: frozenset[str]) -> list[str]:
    kept, leaving = list[str](), False
    for line in lines:
        header = _HEADER.match(line)
        if header is not None:
            keys = _keys(header["name"])
            leaving = keys[:1] == [parent] and keys[1:2] != [] and keys[1] in names
        if not leaving:
            kept.append(line)
    return kept


def _keys(name: str) -> list[str]:
    """The keys of a header; a name that is none is nobody's."""
    try:
        value: object = tomllib.loads(f"{name} = 0")
    except tomllib.TOMLDecodeError:
        return []
    keys = list[str]()
    while isinstance(value, dict):
        ((key, value),) = value.items()
        keys.append(key)
    return keys


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: JsonValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return f"{Decimal(repr(value)):f}"
        case list():
            return f"[{', '.join(_text(str(item)) for item in value)}]"
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    # a basic string takes the escapes of JSON; DEL has to be one of them
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
