"""The runtime of one session: its connections, seen as one catalogue.

Servers are asked side by side, a few at a time; one that fails is a diagnostic and costs the
others nothing. Names are made unique over the session; each server sees its own.

Source: design section 10.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
from pydantic import JsonValue

from supervisor.core.errors import SupervisorError
from supervisor.core.ids import ServerName, SessionKey
from supervisor.core.listing import Listing, ListingKind
from supervisor.core.tool_errors import UnknownPromptError, UnknownResourceError, UnknownToolError
from supervisor.core.tool_filter import ToolFilter
from supervisor.core.tool_names import name_tools, servers_of
from supervisor.runtime.connection import Connection
from supervisor.runtime.opening import Opens
from supervisor.transport.caller import OnProgress

LISTED_AT_A_TIME: Final = 6
"""Servers of one session that are opened and listed side by side."""

Watcher = Callable[[ListingKind], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """What a client wants of a session.

    Attributes:
        servers: the names, or None for all that are configured and enabled.
        tool_filter: on top of the filters of the records.
        idle_s: seconds without use; None: as configured.
        requester: on whose behalf; for servers that tell requesters apart.
    """

    servers: tuple[ServerName, ...] | None = None
    tool_filter: ToolFilter = field(default_factory=ToolFilter)
    idle_s: float | None = None
    requester: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """One item of a listing and where it comes from."""

    connection: Connection
    original: str


@dataclass(frozen=True, slots=True)
class _Index:
    """What was found under which full name, for these servers with these filters."""

    offered: Mapping[ServerName, ToolFilter]
    found: dict[str, Found]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What came of listing one server; the listing of one that failed is empty."""

    connection: Connection
    listing: Listing
    failed: SupervisorError | None = None


class SessionRuntime:
    """One session, from its first use until it is deleted or forgotten.

    Attributes:
        key: chosen by the client.
        watchers: called with the kind of a listing when it has changed.
        served: called when the session has ended, by those who serve it to clients.
    """

    def __init__(self, key: SessionKey, plan: SessionPlan, opens: Opens) -> None:
        self.key: Final = key
        self._plan = plan
        self.watchers: Final[set[Watcher]] = set()
        self.served: Final[set[Callable[[], None]]] = set()
        self._opens: Final = opens
        self._connections: Final[dict[ServerName, Connection]] = {}
        self._indexes: Final[dict[ListingKind, _Index]] = {}

    @property
    def plan(self) -> SessionPlan:
        """What the session is to hold."""
        return self._plan

    @plan.setter
    def plan(self, plan: SessionPlan) -> None:
        self._plan = plan
        self._indexes.clear()
        wanted = set(self.names())
        for name in tuple(self._connections):
            if name not in wanted:
                self.close(name)

    def names(self) -> tuple[ServerName, ...]:
        """The servers of the session, sorted."""
        enabled = self._opens.enabled()
        if self.plan.servers is None:
            return enabled
        return tuple(name for name in enabled if name in self.plan.servers)

    def connection(self, name: ServerName) -> Connection:
        """The connection to one of its servers, opened or not."""
        found = self._connections.get(name)
        if found is None:
            found = Connection(name, self.key, self._opens, self._tell)
            self._connections[name] = found
        return found

    def connections(self) -> tuple[Connection, ...]:
        """All that were ever used, sorted by name."""
        return tuple(self._connections[name] for name in sorted(self._connections))

    def close(self, name: ServerName) -> None:
        """Let go of one server."""
        connection = self._connections.pop(name, None)
        if connection is not None:
            connection.retire()

    def end(self) -> None:
        """The session is deleted or forgotten: what is under way through it fails at once."""
        for name in tuple(self._connections):
            self.close(name)
        for tell in tuple(self.served):
            tell()

    # Listings

    async def listing(self, kind: ListingKind) -> Listing:
        """One kind of item of all servers, with the names that are unique in this session."""
        items: list[Mapping[str, JsonValue]]
        asked = await self._ask(kind, self.names())
        diagnostics = [text for one in asked for text in one.listing.diagnostics]
        if kind in {"tools", "prompts"}:
            named = {full: item for full, _, item in self._named(kind, asked)}
            items = [{**named[full], "name": full} for full in sorted(named)]
        else:
            items = [item for one in asked for item in one.listing.items]
        return Listing(tuple(items), tuple(diagnostics))

    def instructions(self) -> str:
        """What the servers that are open say about their use, each under its name."""
        parts = [
            f"{connection.name}: {connection.instructions}"
            for connection in self.connections()
            if connection.instructions
        ]
        return "\n\n".join(parts)

    async def _ask(self, kind: ListingKind, names: tuple[ServerName, ...]) -> list[_Asked]:
        """List some servers; in the order of `names`."""
        found: dict[ServerName, _Asked] = {}
        turns = anyio.CapacityLimiter(LISTED_AT_A_TIME)

        async def ask(name: ServerName) -> None:
            connection = self.connection(name)
            async with turns:
                try:
                    found[name] = _Asked(connection, await connection.listing(kind))
                except SupervisorError as error:
                    found[name] = _Asked(connection, Listing((), (str(error),)), error)

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(ask, name)
        return [found[name] for name in names]

    def _named(
        self, kind: ListingKind, asked: list[_Asked]
    ) -> list[tuple[str, Found, Mapping[str, JsonValue]]]:
        """Items with full names, filtered."""
        wanted = [
            (one.connection, item, str(item["name"]))
            for one in asked
            for item in one.listing.items
            if kind != "tools" or self._allowed(one.connection, str(item["name"]))
        ]
        pairs = [(connection.name, name) for connection, _, name in wanted]
        return [
            (full, Found(connection, name), item)
            for full, (connection, item, name) in zip(
                name_tools(pairs, self.names()), wanted, strict=True
            )
        ]

    def _allowed(self, connection: Connection, tool: str) -> bool:
        return connection.allows(tool) and self.plan.tool_filter.allows(tool)

    async def _find(self, kind: ListingKind, full_name: str) -> Found | None:
        """Look a name up: in what is known, else in the listings of the servers that may have it.

        Raises:
            SupervisorError: one of those cannot be listed, so that nobody knows.
        """
        names = self.names()
        offered = {name: self._opens.record(name).tool_filter for name in names}
        index = self._indexes.get(kind)
        if index is None or index.offered != offered:
            index = self._indexes[kind] = _Index(offered, {})
        found = index.found.get(full_name)
        if found is not None:
            return found
        asked = await self._ask(kind, servers_of(full_name, names))
        for full, found, _ in self._named(kind, asked):
            if full == full_name:
                index.found[full] = found
                return found
        for one in asked:
            if one.failed is not None:
                raise one.failed
        return None

    # Use

    async def call_tool(
        self,
        full_name: str,
        arguments: bytes | None,
        *,
        on_progress: OnProgress | None = None,
    ) -> bytes:
        """Call one tool.

        Args:
            full_name: as `listing` gives it.
            arguments: a JSON object as it came, or None for none.
            on_progress: called with the params of each progress notification.

        Returns:
            The `CallToolResult`, byte for byte.

        Raises:
            UnknownToolError: there is no such tool in this session.
            SupervisorError: the call failed; every subclass says why.
        """
        found = await self._find("tools", full_name)
        if found is None:
            raise UnknownToolError(full_name, self.key)
        return await found.connection.call(found.original, arguments, on_progress=on_progress)

    async def get_prompt(self, full_name: str, params: Mapping[str, JsonValue]) -> bytes:
        """Get one prompt; `params` as the client gave them.

        Raises:
            UnknownPromptError: there is no such prompt in this session.
            SupervisorError: the request failed.
        """
        found = await self._find("prompts", full_name)
        if found is None:
            raise UnknownPromptError(full_name, self.key)
        return await found.connection.ask("prompts/get", {**params, "name": found.original})

    async def read_resource(self, uri: str, params: Mapping[str, JsonValue]) -> bytes:
        """Read one resource from the server that lists it, or whose template fits.

        Raises:
            UnknownResourceError: no server of this session lists it.
            SupervisorError: the request failed.
        """
        for one in await self._ask("resources", self.names()):
            if any(item.get("uri") == uri for item in one.listing.items):
                return await one.connection.ask("resources/read", params)
        templated = [
            one.connection
            for one in await self._ask("resource_templates", self.names())
            if any(_may_fit(str(item.get("uriTemplate", "")), uri) for item in one.listing.items)
        ]
        if len(templated) == 1:
            return await templated[0].ask("resources/read", params)
        raise UnknownResourceError(uri, self.key, tuple(c.name for c in templated))

    def _tell(self, kind: ListingKind) -> None:
        self._indexes.pop(kind, None)
        for watcher in tuple(self.watchers):
            watcher(kind)


def _may_fit(template: str, uri: str) -> bool:
    """Whether `uri` begins as `template` does, up to its first variable (RFC 6570)."""
    fixed = template.partition("{")[0]
    return bool(fixed) and uri.startswith(fixed)
