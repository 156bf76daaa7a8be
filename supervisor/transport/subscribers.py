"""Who wants to know what a server tells everybody: resource updates, changed lists, log messages.

Several clients share one server process. A resource that two of them watch is watched once, until
the last of them leaves; a log level that one has set does not outlive it.

Source: design section 9; MCP 2025-11-25, resources and logging.
"""

import json
from collections.abc import Collection
from typing import Final, cast

_SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
_SET_LEVEL: Final = "logging/setLevel"
_UPDATED: Final = "notifications/resources/updated"

DEFAULT_LEVEL: Final = "info"
"""What a server is set back to: MCP names no default, and servers start with this one."""

_OWN_ID: Final = b'"mcp-supervisord-%d"'
"""Requests of the channel's own; the answers are unasked for, and dropped."""


class Subscribers:
    """What the clients of one channel have asked to be told."""

    def __init__(self) -> None:
        self._watching: dict[str, set[int]] = {}
        self._level_set_by: int | None = None
        self._own_requests = 0

    def note(self, client: int, line: bytes, method: str) -> None:
        """A client sent a request: it may be a subscription, its end, or a log level."""
        if method in {_SUBSCRIBE, UNSUBSCRIBE}:
            uri = _uri_of(line)
            if uri is None:
                return
            watching = self._watching.setdefault(uri, set())
            if method == _SUBSCRIBE:
                watching.add(client)
            else:
                watching.discard(client)
        elif method == _SET_LEVEL:
            self._level_set_by = client

    def others_watch(self, client: int, line: bytes) -> bool:
        """Whether a client that stops watching leaves somebody who goes on.

        The server knows one client and would end it for all, so it must not hear of this.
        """
        watching = self._watching.get(_uri_of(line) or "", set())
        return bool(watching - {client})

    def of(self, line: bytes, method: str, attached: Collection[int]) -> tuple[int, ...]:
        """Whom a notification without an address is for."""
        if method != _UPDATED or not self._watching:
            return tuple(attached)
        uri = _uri_of(line)
        watching = self._watching.get(uri or "")
        # a server may name a part of what was subscribed: who watches anything decides then
        wanted = watching if watching is not None else set().union(*self._watching.values())
        return tuple(client for client in attached if client in wanted)

    def forget(self, client: int) -> list[bytes]:
        """A client has left.

        Returns:
            Requests to the server that end what only that client wanted.
        """
        lines: list[bytes] = []
        for uri, watching in tuple(self._watching.items()):
            if client in watching:
                watching.discard(client)
                if not watching:
                    lines.append(self._request(UNSUBSCRIBE, {"uri": uri}))
            if not watching:
                del self._watching[uri]
        if self._level_set_by == client:
            self._level_set_by = None
            lines.append(self._request(_SET_LEVEL, {"level": DEFAULT_LEVEL}))
        return lines

    def _request(self, method: str, params: dict[str, str]) -> bytes:
        self._own_requests += 1
        body = json.dumps(params, separators=(",", ":")).encode()
        return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":%b}' % (
            _OWN_ID % self._own_requests,
            method.encode(),
            body,
        )


def _uri_of(line: bytes) -> str | None:
    try:
        body = cast("object", json.loads(line))
    except (ValueError, RecursionError):
        return None
    match body:
        case {"params": {"uri": str(uri)}}:
            return uri
        case _:
            return None
