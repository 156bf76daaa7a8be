"""`/v1/sessions`: open a session, see what its servers offer, use it, delete it.

Arguments and results pass as the bytes that they are: number spellings and unknown fields survive.
A caller that goes away cancels what it has asked a server for.
"""

import json
from functools import partial
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, Body, Depends, Request
from fastapi.responses import Response

from supervisor.api.bodies import SessionBody, SessionList
from supervisor.api.caller_gone import while_asked
from supervisor.api.params import ServerPath, session_key
from supervisor.core.errors import RequestError
from supervisor.core.ids import ServerName, SessionKey
from supervisor.core.json_spans import find_span
from supervisor.core.views import ProbeView, SessionAnswer, SessionView, StopAnswer, ToolsView
from supervisor.manager.runtimes import Runtimes
from supervisor.runtime.session import SessionPlan

_JSON: Final = "application/json"
_CALL_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "content": {
            _JSON: {
                "schema": {
                    "type": "object",
                    "properties": {"arguments": {"type": "object"}},
                }
            }
        }
    }
}


def _key(key: str) -> SessionKey:
    return session_key(key)


KeyPath = Annotated[SessionKey, Depends(_key)]


def sessions_router(runtimes: Runtimes) -> APIRouter:
    """The routes of this noun, over all sessions of the daemon."""
    router = APIRouter(prefix="/v1/sessions", tags=["sessions"])

    @router.get("")
    async def list_sessions() -> SessionList:
        """All sessions, sorted by key."""
        return SessionList(sessions=runtimes.views())

    @router.put("/{key}")
    async def put(key: KeyPath, body: SessionBody | None = None) -> SessionAnswer:
        """Create a session, or change it; the same again is no work at all."""
        return await runtimes.put(key, _plan(body or SessionBody()))

    @router.get("/{key}")
    async def show(key: KeyPath) -> SessionView:
        """One session."""
        return runtimes.view(key)

    @router.get("/{key}/summary")
    async def summary(key: KeyPath) -> dict[str, object]:
        """What is in its fingerprint, with secrets hidden."""
        return runtimes.summary(key)

    @router.delete("/{key}")
    async def delete(key: KeyPath) -> StopAnswer:
        """Stop all that it holds, and forget it; answers when decided."""
        return await runtimes.delete(key)

    return router


def probe_router(runtimes: Runtimes) -> APIRouter:
    """The one route that tries a server out in a session of its own."""
    router = APIRouter(prefix="/v1/servers", tags=["servers"])

    @router.post("/{name:path}/probe")
    async def probe(name: ServerPath, request: Request) -> ProbeView:
        """Start the server for itself, ask what it offers, and stop it."""
        return await while_asked(request, partial(runtimes.probe, name))

    return router


def use_router(runtimes: Runtimes) -> APIRouter:
    """The routes that list and use what the servers of a session offer."""
    router = APIRouter(prefix="/v1/sessions", tags=["sessions"])

    @router.get("/{key}/tools")
    async def tools(key: KeyPath) -> ToolsView:
        """The tools of all its servers; starts those that do not run."""
        listing = await runtimes.runtime(key).listing("tools")
        return ToolsView(tools=listing.items, diagnostics=listing.diagnostics)

    @router.get("/{key}/prompts")
    async def prompts(key: KeyPath) -> dict[str, object]:
        """The prompts of all its servers."""
        listing = await runtimes.runtime(key).listing("prompts")
        return {"prompts": listing.items, "diagnostics": listing.diagnostics}

    @router.get("/{key}/resources")
    async def resources(key: KeyPath) -> dict[str, object]:
        """The resources and resource templates of all its servers."""
        runtime = runtimes.runtime(key)
        found = await runtime.listing("resources")
        templates = await runtime.listing("resource_templates")
        return {
            "resources": found.items,
            "resourceTemplates": templates.items,
            "diagnostics": (*found.diagnostics, *templates.diagnostics),
        }

    @router.post("/{key}/resources/read", response_class=Response)
    async def read(
        key: KeyPath, uri: Annotated[str, Body(embed=True)], request: Request
    ) -> Response:
        """Read one resource; the server's `ReadResourceResult`, byte for byte."""
        read = partial(runtimes.runtime(key).read_resource, uri, {"uri": uri})
        return Response(await while_asked(request, read), media_type=_JSON)

    @router.post("/{key}/prompts/{name}", response_class=Response)
    async def get_prompt(
        key: KeyPath,
        name: str,
        request: Request,
        arguments: Annotated[dict[str, str] | None, Body(embed=True)] = None,
    ) -> Response:
        """Get one prompt; the server's `GetPromptResult`, byte for byte."""
        runtime = runtimes.runtime(key)
        get = partial(runtime.get_prompt, name, {"arguments": {**(arguments or {})}})
        return Response(await while_asked(request, get), media_type=_JSON)

    @router.post("/{key}/tools/{full_name}", response_class=Response, openapi_extra=_CALL_BODY)
    async def call(key: KeyPath, full_name: str, request: Request) -> Response:
        """Call one tool by its full name; the server's `CallToolResult`, byte for byte."""
        arguments = _arguments(await request.body())
        call = partial(runtimes.runtime(key).call_tool, full_name, arguments)
        return Response(await while_asked(request, call), media_type=_JSON)

    return router


def _plan(body: SessionBody) -> SessionPlan:
    servers = None if body.servers is None else tuple(ServerName(name) for name in body.servers)
    return SessionPlan(
        servers=servers,
        tool_filter=body.filter(),
        idle_s=None if body.idleTimeoutMs is None else body.idleTimeoutMs / 1000,
        requester=body.requester,
    )


def _arguments(body: bytes) -> bytes | None:
    """The arguments of a call as they stand in its body; None for none."""
    if not body.strip():
        return None
    try:
        parsed = cast("object", json.loads(body))
    except ValueError:
        parsed = None
    match parsed:
        case {"arguments": dict()}:
            span = find_span(body, ("arguments",))
            return None if span is None else body[slice(*span)]
        case dict() if "arguments" not in parsed:
            return None
        case _:
            message = 'The body of a call is a JSON object: {"arguments": {…}}.'
            raise RequestError(message)
