"""Ends work whose caller has gone away: nobody would read its result.

uvicorn and FastAPI let a handler go on after its connection has ended; they only tell it, if it
asks. A call of a tool may take minutes and cost money, so here it is asked all the time.

Source: ASGI 3.0, HTTP and WebSocket message format 2.4, `http.disconnect`.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from fastapi import Request
from starlette.types import Receive

from supervisor.core.errors import SupervisorError

Result = TypeVar("Result")


class CallerGoneError(Exception):
    """The caller went away, and the work was cancelled; there is nobody to answer."""


async def while_asked(request: Request, work: Callable[[], Awaitable[Result]]) -> Result:
    """Do `work` for as long as the caller of `request` is there.

    Args:
        request: its body has been read to the end.
        work: cancelled as soon as the connection has ended.

    Raises:
        CallerGoneError: it has; the application answers nothing.
        SupervisorError: whatever the work raises.
    """
    outcome: list[Result] = []
    failed: SupervisorError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when_gone, request.receive, tasks.cancel_scope)
        try:
            outcome.append(await work())
        except SupervisorError as error:
            failed = error  # raised below: out of a task group it would come as a group
        tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed
    if not outcome:
        raise CallerGoneError
    return outcome[0]


async def _cancel_when_gone(receive: Receive, work: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        """An empty piece of the body, which was read to its end."""
    work.cancel()
