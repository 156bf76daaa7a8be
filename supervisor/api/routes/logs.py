"""`/v1/servers/{name}/logs`: what a server wrote to stderr, as text, and as it comes.

Mounted before the servers' own routes, since a name may hold slashes.
"""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, StreamingResponse

from supervisor.api.control import Control
from supervisor.api.params import ServerPath
from supervisor.core.errors import KernelError
from supervisor.telemetry.server_logs import TAIL_LINES, ServerLogs

DEFAULT_LINES = 100
"""What fills a screen or two."""


def logs_router(control: Control, logs: ServerLogs) -> APIRouter:
    """The one route of this noun, over `logs`."""
    router = APIRouter(prefix="/v1/servers", tags=["servers"])

    @router.get("/{name:path}/logs", response_class=PlainTextResponse)
    async def show_or_follow(
        *,
        name: ServerPath,
        lines: Annotated[int, Query(ge=0, le=TAIL_LINES)] = DEFAULT_LINES,
        follow: bool = False,
    ) -> StreamingResponse:
        """The last lines of all instances of the server; with `follow=true` those to come too.

        Each line is `<UTC time> <instance id> <text>`.
        """
        control.server(name)
        try:
            # the place is fixed here, before the headers go out: nothing is missed after them
            found = (
                await logs.follow(name, lines) if follow else _each(await logs.tail(name, lines))
            )
        except TimeoutError as error:
            sentence = f"The log of server {name!r} cannot be read: the disk does not answer."
            raise KernelError(sentence) from error
        return StreamingResponse(
            _as_text(found), media_type="text/plain", headers={"Cache-Control": "no-store"}
        )

    return router


async def _each(lines: tuple[str, ...]) -> AsyncIterator[str]:
    for line in lines:
        yield line


async def _as_text(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield f"{line}\n".encode()
