"""The daemon itself: its status, its health and its end."""

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from supervisor.api.bodies import Health, ShutdownAnswer, ShutdownBody
from supervisor.api.control import Control, RequestShutdown
from supervisor.api.params import caller_of
from supervisor.core.views import ReloadAnswer, StatusView


def daemon_router(
    control: Control,
    ready: Callable[[], bool],
    request_shutdown: RequestShutdown,
    shutdown_budget_s: Callable[[], float],
) -> APIRouter:
    """The routes of this noun, over `control`."""
    router = APIRouter(tags=["daemon"])

    @router.get("/v1/status")
    async def status() -> StatusView:
        """The daemon, its servers, sessions, instances, queue and limits."""
        return control.status()

    @router.post("/v1/reload")
    async def reload() -> ReloadAnswer:
        """Read the configuration again: all or nothing, and only what has changed moves."""
        return await control.reload()

    @router.post("/v1/shutdown", status_code=202)
    async def shutdown(request: Request, body: ShutdownBody | None = None) -> ShutdownAnswer:
        """Stop all servers, then the daemon; answers before that, and events tell the rest."""
        pid = control.status().daemon.pid
        request_shutdown(force=bool(body and body.force), caller=caller_of(request))
        return ShutdownAnswer(pid=pid, deadline_s=shutdown_budget_s())

    @router.get("/healthz")
    async def healthz() -> Health:
        """200 whenever the event loop turns."""
        return Health(status="ok")

    @router.get("/readyz", responses={503: {"model": Health}})
    async def readyz(response: Response) -> Health:
        """200 between the end of the start and the beginning of the stop, else 503."""
        if ready():
            return Health(status="ok")
        response.status_code = 503
        return Health(status="starting_or_stopping")

    return router
