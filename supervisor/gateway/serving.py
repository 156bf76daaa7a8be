"""Serves a client of `mcp.sock` that has asked for a whole session with `{"serve": {…}}`."""

from typing import TYPE_CHECKING, Final

import anyio

from supervisor.core.ids import ServerName, SessionKey, is_session_key
from supervisor.gateway.serve_link import ServeLink
from supervisor.manager.clients import BAD_SESSION, VERSION, ClientConnection, GreetingError
from supervisor.runtime.session import SessionPlan

if TYPE_CHECKING:
    from supervisor.manager.manager import Manager

BAD_GREETING: Final = "its greeting needs `version` 1 and a `session`; update mcpctl"


async def serve_session(
    client: ClientConnection, wanted: dict[str, object], host: "Manager"
) -> None:
    """Serve one client until it leaves.

    Raises:
        GreetingError: the greeting is not understood.
        UnknownServerError: it names a server that is not configured.
    """
    session, servers = wanted.get("session"), wanted.get("servers")
    if wanted.get("version") != VERSION or not isinstance(session, str):
        raise GreetingError(BAD_GREETING)
    if not is_session_key(session):
        raise GreetingError(BAD_SESSION)
    key = SessionKey(session)
    if isinstance(servers, list):
        names = tuple(ServerName(str(name)) for name in servers)
        await host.runtimes.put(key, SessionPlan(servers=names))
    runtime = host.runtimes.runtime(key)
    caller = f"pid {client.peer.pid} uid {client.peer.uid}"
    host.events.record("session_client_connected", session=key, caller=caller)
    over = anyio.Event()
    async with anyio.create_task_group() as tasks:
        link = ServeLink(
            client.source,
            client.sink,
            runtime,
            tasks,
            max_line_bytes=host.configuration.settings.max_line_bytes,
            max_queue_bytes=host.configuration.settings.max_client_queue_bytes,
            on_end=over.set,
        )
        client.on_end = link.source_ended
        client.answer({"connected": {"instance": None, "session": key}})
        link.begin(client.take_early())
        try:
            await over.wait()
        finally:
            link.end()
        tasks.cancel_scope.cancel()
    host.events.record("session_client_disconnected", session=key, caller=caller)
    await client.flushed()
