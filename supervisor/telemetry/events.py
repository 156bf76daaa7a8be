"""What happened in this run of the daemon, in order: kept, numbered, followed and logged.

An event is recorded once and seen three ways: as a log line of the same name, in the list of
recent ones, and by everyone who follows. A follower keeps a place in the list, not a queue of its
own, so a slow one costs nothing and holds up nobody; what it misses it is told as a `gap`.

All calls come from the event loop's thread.
"""

import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import anyio
import structlog
from pydantic import JsonValue

from supervisor.telemetry.masking import mask_text, printable

KEPT_EVENTS: Final = 4096
"""About 2 MB at 500 bytes each: minutes of a busy daemon, days of a quiet one."""

GAP: Final = "gap"
"""The name of the event that stands for those that are not kept any more, or never were ours."""

Level = Literal["debug", "info", "warning", "error"]

_LINE_WORDS: Final = frozenset({"event", "level", "timestamp"})
"""Keys of a log line that are not the event's to set; its data gets them with an underscore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One happening; field names are JSON keys."""

    id: str
    """`<daemon run>-<sequence>`; sequences count from 1."""

    name: str
    at_utc: str
    server: str | None
    instance: str | None
    session: str | None
    data: Mapping[str, JsonValue]


def utc_now(*, in_s: float = 0.0) -> str:
    """The wall time in RFC 3339 with milliseconds, for people; nothing is decided by it.

    Args:
        in_s: that of so many seconds later.
    """
    then = datetime.now(UTC) + timedelta(seconds=in_s)
    return then.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EventLog:
    """The events of one run.

    Attributes:
        run: the id of this run of the daemon, 8 hexadecimal digits.
    """

    def __init__(
        self,
        *,
        run: str | None = None,
        kept: int = KEPT_EVENTS,
        wall_clock: Callable[[], str] = utc_now,
    ) -> None:
        self.run = run or secrets.token_hex(4)
        self._wall_clock = wall_clock
        self._events: deque[Event] = deque(maxlen=kept)
        self._newest = 0
        self._closed = False
        self._news = anyio.Event()  # set and replaced at each event
        self._log = structlog.get_logger("supervisor.events")

    def record(
        self,
        name: str,
        /,
        *,
        level: Level = "info",
        server: str | None = None,
        instance: str | None = None,
        session: str | None = None,
        **data: object,
    ) -> Event:
        """Keep an event, hand it to the followers and log it. Known secrets are masked.

        Args:
            name: snake_case, past tense: `instance_started`.
            level: of the log line.
            server: the server that it concerns.
            instance: the instance that it concerns.
            session: the session that it concerns.
            data: whatever else is known; made plain JSON.

        Blocks: no.
        """
        self._newest += 1
        event = Event(
            id=f"{self.run}-{self._newest}",
            name=name,
            at_utc=self._wall_clock(),
            server=server,
            instance=instance,
            session=session and mask_text(session),
            data={key: printable(value) for key, value in data.items()},
        )
        self._events.append(event)
        self._wake()
        self._log_line(event, level)
        return event

    def recent(self, after: str | None = None) -> tuple[Event, ...]:
        """The kept events, oldest first.

        Args:
            after: only those that followed this event id; one that is unknown gives a `gap`
                event and then all that are kept.
        """
        if after is None:
            return tuple(self._events)
        place = self._place_of(after)
        if place is None:
            return (self._gap(after), *self._events)
        return tuple(self._events)[place + 1 - self._oldest :]

    def follow(self, after: str | None = None) -> AsyncIterator[Event]:
        """The events from now on, as they happen; ends after `close`.

        Args:
            after: start behind this event id instead; one that is unknown gives a `gap` event
                and then all that are kept.

        Returns:
            An iterator whose place is fixed by this call, not by its first step.
        """
        if after is None:
            return self._follow_from(self._newest, None)
        place = self._place_of(after)
        if place is None:
            return self._follow_from(self._oldest - 1, after)
        return self._follow_from(place, None)

    def close(self) -> None:
        """End every follower once it has what is kept. Recording goes on."""
        self._closed = True
        self._wake()

    async def _follow_from(self, place: int, missed: str | None) -> AsyncIterator[Event]:
        if missed is not None:
            yield self._gap(missed)
        while True:
            news = self._news
            while place < self._newest:
                if place + 1 < self._oldest:  # it was too slow
                    missed = f"{self.run}-{place}"
                    place = self._oldest - 1
                    yield self._gap(missed)
                    continue  # more may have gone while the gap was read
                place += 1
                yield self._events[place - self._oldest]
            if self._closed:
                return
            if news is self._news:  # nothing happened since we looked
                await news.wait()

    def _wake(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    @property
    def _oldest(self) -> int:
        return self._newest - len(self._events) + 1

    def _place_of(self, event_id: str) -> int | None:
        """The sequence in `event_id`, if everything after it is still kept."""
        run, _, digits = event_id.partition("-")
        if run != self.run or not (digits.isascii() and digits.isdigit()):
            return None
        place = int(digits)
        return place if self._oldest - 1 <= place <= self._newest else None

    def _gap(self, after: str) -> Event:
        # its id stands right before the oldest kept event, so that a client can go on from it
        return Event(
            id=f"{self.run}-{self._oldest - 1}",
            name=GAP,
            at_utc=self._wall_clock(),
            server=None,
            instance=None,
            session=None,
            data={"after": mask_text(after)},
        )

    def _log_line(self, event: Event, level: Level) -> None:
        concerned = {"server": event.server, "instance": event.instance, "session": event.session}
        line: dict[str, object] = {"event_id": event.id}
        line |= {key: value for key, value in concerned.items() if value is not None}
        line |= {f"{key}_" if key in _LINE_WORDS else key: v for key, v in event.data.items()}
        getattr(self._log, level)(event.name, **line)
