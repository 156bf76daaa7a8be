"""`/v1/servers`: what is configured, and starting and stopping it by name.

Names are paths to the router: a server may be called `io.github.somebody/tool`.
"""

from fastapi import APIRouter

from supervisor.api.bodies import ActionBody, ServerList
from supervisor.api.control import Control
from supervisor.api.params import ServerPath, session_key
from supervisor.core.ids import DEFAULT_SESSION
from supervisor.core.views import RestartAnswer, ServerView, StartAnswer, StopAnswer


def servers_router(control: Control) -> APIRouter:
    """The routes of this noun, over `control`."""
    router = APIRouter(prefix="/v1/servers", tags=["servers"])

    @router.get("")
    async def list_servers() -> ServerList:
        """All configured servers, sorted by name."""
        return ServerList(servers=control.servers())

    @router.get("/{name:path}")
    async def show_server(name: ServerPath) -> ServerView:
        """One server."""
        return control.server(name)

    @router.post("/{name:path}/start")
    async def start(name: ServerPath, body: ActionBody | None = None) -> StartAnswer:
        """Ensure one instance, in session `default` unless the body names another."""
        asked = body or ActionBody()
        session = DEFAULT_SESSION if asked.session is None else session_key(asked.session)
        return await control.start(name, session)

    @router.post("/{name:path}/stop")
    async def stop(name: ServerPath, body: ActionBody | None = None) -> StopAnswer:
        """Stop all instances of the server, or those of one session; answers when decided."""
        asked = body or ActionBody()
        session = None if asked.session is None else session_key(asked.session)
        return await control.stop(name, session, force=asked.force, verify=asked.verify)

    @router.post("/{name:path}/restart")
    async def restart(name: ServerPath, body: ActionBody | None = None) -> RestartAnswer:
        """Stop, and start again once the cleanup is confirmed."""
        asked = body or ActionBody()
        session = DEFAULT_SESSION if asked.session is None else session_key(asked.session)
        return await control.restart(name, session, force=asked.force, verify=asked.verify)

    return router
