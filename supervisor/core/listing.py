"""Decides what of a server's listing is kept: its bounds, and which items are fit for use.

One bad item is left out by name, and costs the others nothing; a listing without end, or one that
goes round in circles, is an error of the server.

Source: design section 10; MCP 2025-11-25, pagination; the bounds are OpenClaw's.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

ListingKind = Literal["tools", "prompts", "resources", "resource_templates"]

MAX_PAGES: Final = 128
MAX_ITEMS: Final = 16384
MAX_BYTES: Final = 10 * 1024 * 1024

MAX_SHOWN: Final = 80
"""Characters of a name that a diagnostic shows; a server may call a tool a megabyte."""

KEY: Final[Mapping[ListingKind, str]] = {
    "tools": "name",
    "prompts": "name",
    "resources": "uri",
    "resource_templates": "uriTemplate",
}
"""The member that tells items of a kind apart."""

Item = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Listing:
    """Items as the server gave them, and sentences about those that were left out."""

    items: tuple[Item, ...] = ()
    diagnostics: tuple[str, ...] = ()


@dataclass(slots=True)
class Pages:
    """The pages of one listing so far."""

    items: list[JsonValue] = field(default_factory=list)
    cursors: set[str] = field(default_factory=set)
    pages: int = 0
    size_bytes: int = 0

    def add(self, result: Mapping[str, JsonValue], member: str) -> str | None:
        """Take one page.

        Returns:
            The cursor of the next one; None at the end.

        Raises:
            ValueError: the listing breaks a bound or the protocol; the text is a clause.
        """
        found = result.get(member)
        if not isinstance(found, list):
            message = f"its result has no list {member!r}"
            raise ValueError(message)  # noqa: TRY004 - a fault of the text, not of a caller
        self.items += found
        self.pages += 1
        self.size_bytes += len(json.dumps(found))
        for count, bound, what in (
            (self.pages, MAX_PAGES, "pages"),
            (len(self.items), MAX_ITEMS, "items"),
            (self.size_bytes, MAX_BYTES, "bytes"),
        ):
            if count > bound:
                message = f"it lists more than {bound} {what}"
                raise ValueError(message)
        cursor = result.get("nextCursor")
        if cursor is None:
            return None
        if not isinstance(cursor, str):
            message = "its nextCursor is no text"
            raise ValueError(message)  # noqa: TRY004 - a fault of the text, not of a caller
        if cursor in self.cursors:
            message = "it repeats a cursor, so its listing has no end"
            raise ValueError(message)
        self.cursors.add(cursor)
        return cursor


def sift(server: str, kind: ListingKind, items: Sequence[JsonValue]) -> Listing:
    """Keep what can be used; each other item is named in a diagnostic."""
    key = KEY[kind]
    noun = kind.removesuffix("s").replace("_", " ")
    good: list[Item] = []
    told: list[str] = []
    for item in items:
        why = _fault(item, key, kind)
        if why is None and isinstance(item, dict):
            good.append(item)
        else:
            name = item.get(key) if isinstance(item, dict) else None
            shown = f" {name[:MAX_SHOWN]!r}" if isinstance(name, str) and name else ""
            told.append(f"Server {server!r}: {noun}{shown} is left out: {why}.")
    counts = Counter(str(item[key]) for item in good)
    told += [
        f"Server {server!r}: {noun} {name[:MAX_SHOWN]!r} is listed {count} times; "
        "the first one counts."
        for name, count in sorted(counts.items())
        if count > 1
    ]
    first = {str(item[key]): item for item in reversed(good)}
    ordered = [item for item in good if first[str(item[key])] is item]
    return Listing(tuple(ordered), tuple(told))


def _can_be_sent(item: JsonValue) -> bool:
    """JSON may spell half of a surrogate pair; UTF-8 cannot."""
    try:
        json.dumps(item, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _fault(item: JsonValue, key: str, kind: ListingKind) -> str | None:
    if not isinstance(item, dict):
        return "it is no object"
    name = item.get(key)
    if not isinstance(name, str) or not name.strip():
        return f"its {key!r} is no text, or an empty one"
    if not _can_be_sent(item):
        return "it holds text that is no Unicode"
    if kind == "tools" and not isinstance(item.get("inputSchema"), dict):
        # the protocol wants one; clients of the official SDK refuse a whole list for a single lack
        return "its inputSchema is no object" if "inputSchema" in item else "it has no inputSchema"
    return None
