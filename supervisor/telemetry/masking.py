"""The known secret values, and how they are kept out of every event and log line.

One set for the whole process: a value that must not be printed must not be printed anywhere. It
only grows, since a line about a server may be written after its record is gone.
"""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from math import isfinite
from typing import Final

from pydantic import JsonValue

from supervisor.core.redaction import mask

_SHORTEST_SECRET: Final = 4
"""Shorter values ("1", "no") are in half of all words; masking those would hide everything."""

_secrets: frozenset[str] = frozenset()


def add_secrets(values: frozenset[str]) -> None:
    """Never print these values again, in no event and no log line.

    Args:
        values: secret texts; those under four characters are left alone.
    """
    global _secrets  # noqa: PLW0603 - one set for the process is the point
    _secrets |= {value for value in values if len(value) >= _SHORTEST_SECRET}


def mask_text(text: str) -> str:
    """`text` without the known secrets."""
    return mask(text, _secrets) if _secrets else text


def printable(value: object) -> JsonValue:
    """`value` as plain JSON without the known secrets.

    Mappings (keys as well), sequences, sets and dataclasses are followed; anything else that is
    not JSON becomes its text.
    """
    result: JsonValue
    match value:
        case float() if not isfinite(value):
            result = str(value)  # JSON has no word for it
        case None | bool() | int() | float():
            result = value
        case str():
            result = mask_text(value)
        case Mapping():
            result = {mask_text(str(key)): printable(inner) for key, inner in value.items()}
        case list() | tuple():
            result = [printable(inner) for inner in value]
        case set() | frozenset():
            result = sorted((printable(inner) for inner in value), key=str)
        case _ if is_dataclass(value) and not isinstance(value, type):
            result = printable(asdict(value))
        case _:
            result = mask_text(str(value))
    return result
