"""Puts the control API together: routes, problem details, one debug line for each request."""

import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, Final

import structlog
from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.bodies import Problem
from supervisor.api.caller_gone import CallerGoneError
from supervisor.api.control import Control, RequestShutdown
from supervisor.api.errors import MEDIA_TYPE, add_problem_handlers, internal_problem
from supervisor.api.routes.daemon import daemon_router
from supervisor.api.routes.events import events_router
from supervisor.api.routes.instances import instances_router
from supervisor.api.routes.logs import logs_router
from supervisor.api.routes.metrics import CollectMetrics, metrics_router
from supervisor.api.routes.reports import reports_router
from supervisor.api.routes.servers import servers_router
from supervisor.api.routes.sessions import probe_router, sessions_router, use_router
from supervisor.core.launch import DEFAULT_DEADLINE_S
from supervisor.linux.unix_socket import Peer
from supervisor.manager.runtimes import Runtimes
from supervisor.telemetry.events import EventLog
from supervisor.telemetry.server_logs import ServerLogs

_log = structlog.get_logger(__name__)

# FastAPI's own type for this table
_PROBLEM_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": Problem, "description": "Problem details", "content": {MEDIA_TYPE: {}}}
    for status in ("4XX", "5XX", 422)  # 422 by number replaces FastAPI's own shape
}


def create_app(  # noqa: PLR0913 - what each group of routes needs
    control: Control,
    events: EventLog,
    ready: Callable[[], bool],
    *,
    request_shutdown: RequestShutdown,
    shutdown_budget_s: Callable[[], float] = lambda: DEFAULT_DEADLINE_S,
    metrics: CollectMetrics | None = None,
    logs: ServerLogs | None = None,
    runtimes: Runtimes | None = None,
) -> FastAPI:
    """The control API as an ASGI application.

    Args:
        control: the daemon.
        events: what `/v1/events` shows.
        ready: whether `/readyz` says yes.
        request_shutdown: what `POST /v1/shutdown` calls.
        shutdown_budget_s: says what `POST /v1/shutdown` tells its caller to expect, in seconds.
        metrics: makes what `/metrics` shows; None is without that path.
        logs: what `/v1/servers/{name}/logs` shows; None is without that path.
        runtimes: what `/v1/sessions` shows and uses; None is without these paths.
    """
    app = FastAPI(
        title="mcp-supervisord",
        version=metadata.version("mcp-supervisord"),
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        responses=_PROBLEM_RESPONSES,
    )
    add_problem_handlers(app)
    app.add_middleware(_RequestShell)
    if metrics is not None:
        app.include_router(metrics_router(metrics))
    if logs is not None:
        app.include_router(logs_router(control, logs))  # before servers: a name may hold slashes
    if runtimes is not None:
        app.include_router(sessions_router(runtimes))
        app.include_router(use_router(runtimes))
        app.include_router(probe_router(runtimes))  # before servers: a name may hold slashes
    for router in (
        daemon_router(control, ready, request_shutdown, shutdown_budget_s),
        servers_router(control),
        instances_router(control),
        reports_router(control),
        events_router(events),
    ):
        app.include_router(router)
    return app


class _RequestShell:
    """Around every request: its log line, and an answer when a bug ends it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status: int | None = None
        began_at = time.monotonic()

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        except (CallerGoneError, ClientDisconnect):
            pass  # the server knows that the connection has ended and misses no answer
        except Exception:
            if status is not None:
                raise  # the head is out: the server breaks the connection, and logs it
            # a bug in one request is kept from the others and from the daemon
            _log.exception("request_failed", **_facts(scope))
            await internal_problem()(scope, receive, note_status)
        finally:
            took_s = round(time.monotonic() - began_at, 6)
            _log.debug("request_answered", **_facts(scope), status=status, took_s=took_s)


def _facts(scope: Scope) -> dict[str, str | int | None]:
    peer = scope.get("state", {}).get("peer")
    caller = peer if isinstance(peer, Peer) else None
    return {
        "method": scope["method"],
        "path": scope["path"],
        "peer_pid": caller and caller.pid,
        "peer_uid": caller and caller.uid,
        "peer_gid": caller and caller.gid,
    }
