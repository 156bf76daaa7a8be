"""`/v1/events`: what happened, as a list or as it happens (server-sent events).

Source: WHATWG HTML, section 9.2 (event stream format, Last-Event-ID).
"""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from supervisor.api.bodies import EventList
from supervisor.telemetry.events import Event, EventLog

_STREAM = "text/event-stream"
_EVENT = TypeAdapter(Event)


def events_router(events: EventLog) -> APIRouter:
    """The routes of this noun, over `events`."""
    router = APIRouter(prefix="/v1/events", tags=["events"])

    @router.get(
        "",
        response_model=EventList,
        responses={200: {"content": {_STREAM: {"schema": {"type": "string"}}}}},
    )
    async def list_or_follow(
        *,
        after: str | None = None,
        follow: bool = False,
        accept: Annotated[str, Header()] = "",
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> EventList | StreamingResponse:
        """The recent events; with `follow=true` or `Accept: text/event-stream` those to come.

        `Last-Event-ID` (or `after`) starts behind that event; an unknown one gets a `gap` first.
        """
        place = last_event_id or after
        if follow or _STREAM in accept:
            # the place is fixed here, before the headers go out: nothing is missed after them
            return StreamingResponse(
                _as_stream(events.follow(place)),
                media_type=_STREAM,
                headers={"Cache-Control": "no-store"},
            )
        return EventList(events=events.recent(place))

    return router


async def _as_stream(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    async for event in events:
        body = _EVENT.dump_json(event)  # one line: JSON escapes newlines
        yield b"id: %s\nevent: %s\ndata: %s\n\n" % (event.id.encode(), event.name.encode(), body)
