"""Names of tools that are unique in a session: `<server>__<tool>`, safe for every model API.

Letters, digits, `_` and `-`; a letter first; at most 64 characters, 30 of them the server's. What
would collide gets `-2`, `-3`, … in a fixed order (by server, then by tool), so that the same tools
have the same names whatever the order in which servers answer. A server that lists nothing now
still counts: its neighbour must not inherit its names, or calls would reach the wrong server.

Source: design section 10; OpenClaw 2026.9.6, safe names.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from supervisor.core.ids import ServerName

MAX_NAME: Final = 64
"""What the strictest of the model APIs takes."""

MAX_SERVER: Final = 30
SEPARATOR: Final = "__"

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")


def safe_name(name: str, prefix: str, limit: int) -> str:
    """`name` in safe characters, with a letter first.

    Args:
        name: anything.
        prefix: put in front where it does not begin with a letter.
        limit: characters at most.
    """
    safe = _UNSAFE.sub("-", name.strip())
    if not safe[:1].isalpha():
        safe = prefix + safe
    return safe[:limit]


def name_servers(names: Iterable[str]) -> dict[str, str]:
    """The prefix of each server; unique also where letters' case is ignored."""
    taken = _Taken(MAX_SERVER)
    return {name: taken.unique(safe_name(name, "mcp-", MAX_SERVER)) for name in sorted(set(names))}


def name_tools(tools: Sequence[tuple[str, str]], servers: Iterable[str] = ()) -> list[str]:
    """Full names of tools.

    Args:
        tools: (server, tool) of each, both as they call themselves; no pair twice.
        servers: all that the session has, also those that list nothing now.

    Returns:
        The full names, in the same order.
    """
    prefixes = name_servers({server for server, _ in tools}.union(servers))
    taken = _Taken(MAX_NAME)
    full: dict[tuple[str, str], str] = {}
    for server, tool in sorted(tools):
        head = prefixes[server] + SEPARATOR
        wanted = head + safe_name(tool, "tool-", MAX_NAME - len(head))
        full[server, tool] = taken.unique(wanted)
    return [full[pair] for pair in tools]


def servers_of(full_name: str, servers: Sequence[ServerName]) -> tuple[ServerName, ...]:
    """The servers that a full name may belong to, in the order of `servers`.

    There is more than one where a prefix begins with another and `__`; their tools are the only
    ones whose names may collide with this one, so that naming those alone gives it its meaning.

    Args:
        full_name: as a client gave it.
        servers: all that the session has.
    """
    prefixes = name_servers(servers)
    wanted = full_name.lower()
    return tuple(s for s in servers if wanted.startswith((prefixes[s] + SEPARATOR).lower()))


class _Taken:
    """The names that are given away already."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """`wanted`, or with a number where it is taken; it is taken from now on."""
        name = wanted
        # what begins alike tries the same numbers, and those below the last one are taken:
        # without this a server with thousands of names that look alike holds everybody up
        alike = wanted[: self._limit - len("-2")].lower()
        number = self._numbers.get(alike, 1)
        while name.lower() in self._names:
            number += 1
            suffix = f"-{number}"
            name = wanted[: self._limit - len(suffix)] + suffix
            self._numbers[alike] = number
        self._names.add(name.lower())
        return name
