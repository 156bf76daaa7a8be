"""Events: kept in order, followed by any number of readers, logged once."""

import io
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import anyio
import pytest
import structlog

from supervisor.telemetry import masking
from supervisor.telemetry.events import GAP, Event, EventLog
from supervisor.telemetry.logs import add_secrets, configure_logs

pytestmark = pytest.mark.anyio


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What the log writes, as JSON lines; logging is as before afterwards."""
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(masking, "_secrets", frozenset())
    configure_logs(stream="json", level="debug")
    yield stream
    structlog.reset_defaults()
    logging.captureWarnings(capture=False)
    root.handlers[:], root.level = before


def log_of(*names: str, kept: int = 100) -> EventLog:
    """A log that has recorded `names`."""
    events = EventLog(run="00c0ffee", kept=kept, wall_clock=lambda: "2026-01-01T00:00:00.000Z")
    for name in names:
        events.record(name)
    return events


def names_of(events: tuple[Event, ...] | list[Event]) -> list[str]:
    """The names, in order."""
    return [event.name for event in events]


async def read(events: EventLog, after: str | None = None) -> list[Event]:
    """All that a follower gets of a log that is closed."""
    events.close()
    with anyio.fail_after(5):
        return [event async for event in events.follow(after)]


def test_an_event_has_the_id_of_its_run_and_its_place() -> None:
    """A client can say where it stopped, and a restart is noticed (design section 12)."""
    event = log_of("first").record("second", server="git", session="s", data=(1, 2))

    assert event == Event(
        id="00c0ffee-2",
        name="second",
        at_utc="2026-01-01T00:00:00.000Z",
        server="git",
        instance=None,
        session="s",
        data={"data": [1, 2]},
    )


def test_recent_events_start_behind_the_one_that_is_named() -> None:
    """Also behind none, and behind the last."""
    events = log_of("a", "b", "c")

    assert names_of(events.recent()) == ["a", "b", "c"]
    assert names_of(events.recent("00c0ffee-0")) == ["a", "b", "c"]
    assert names_of(events.recent("00c0ffee-2")) == ["c"]
    assert events.recent("00c0ffee-3") == ()


@pytest.mark.parametrize(
    "after", ["00c0ffee-4", "0badcafe-1", "00c0ffee-x", "00c0ffee-\u0661", "00c0ffee", ""]
)
async def test_an_unknown_place_gives_a_gap_and_then_all_that_is_kept(after: str) -> None:
    """Another run, the future or nonsense: the client must learn that it missed something."""
    events = log_of("a", "b", "c")

    for found in (list(events.recent(after)), await read(events, after)):
        assert names_of(found) == [GAP, "a", "b", "c"]
        assert found[0].data == {"after": after}


async def test_a_client_can_go_on_from_a_gap() -> None:
    """The gap's id stands right before what follows it, so a reconnect repeats nothing."""
    events = log_of("a", "b", "c", "d", kept=2)
    gap = events.recent("00c0ffee-1")[0]

    assert gap.name == GAP
    assert names_of(events.recent(gap.id)) == ["c", "d"]


async def test_a_follower_gets_what_comes_after_its_call_and_no_more() -> None:
    """Its place is fixed by the call: nothing is lost before it first waits."""
    events = log_of("before")
    follower = events.follow()
    events.record("after")
    seen = list[Event]()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, follower, seen)
            await anyio.lowlevel.checkpoint()
            events.record("later")
            events.close()

    assert names_of(seen) == ["after", "later"]


async def _collect(events: AsyncIterator[Event], seen: list[Event]) -> None:
    async for event in events:
        seen.append(event)  # noqa: PERF401 - what was seen before a failure is of use


async def test_a_slow_follower_holds_up_nobody_and_is_told_what_it_missed() -> None:
    """It keeps a place, not a queue: recording neither waits nor grows for it."""
    events = log_of(kept=3)
    follower = aiter(events.follow())
    events.record("seen")
    assert (await anext(follower)).name == "seen"
    for number in range(10):
        events.record(f"e{number}")
    events.close()

    with anyio.fail_after(5):
        rest = [event async for event in follower]

    assert names_of(rest) == [GAP, "e7", "e8", "e9"]
    assert rest[0].data == {"after": "00c0ffee-1"}


async def test_every_follower_ends_with_the_log() -> None:
    """A daemon on its way out must not wait for those who watch it."""
    events = log_of()
    followers = [events.follow() for _ in range(3)]
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for follower in followers:
                tasks.start_soon(_collect, follower, [])
            await anyio.lowlevel.checkpoint()
            events.close()


@dataclass(frozen=True)
class Facts:
    """Some value of ours."""

    token: str
    seen: frozenset[str]


def test_known_secrets_stand_in_no_event_and_no_line(written: io.StringIO) -> None:
    """Wherever they are: in keys, lists, values, tracebacks, other libraries' lines."""
    add_secrets(frozenset({"hunter22", "no"}))
    events = log_of()

    event = events.record(
        "server_unusable",
        session="hunter22",
        reason="bad hunter22",
        more={"hunter22": ["x", ("hunter22",)], "facts": Facts("hunter22", frozenset({"a"}))},
    )
    try:
        int("no way: hunter22")
    except ValueError:
        structlog.get_logger().exception("request_failed", path="/hunter22")
        logging.getLogger("asyncio").exception("it was %s", "hunter22")

    assert "hunter22" not in repr(event)
    assert "hunter22" not in written.getvalue()
    assert "no way" in written.getvalue()
    assert len(written.getvalue().splitlines()) == 3


def test_an_event_is_one_log_line_of_its_name(written: io.StringIO) -> None:
    """Its data stands flat beside it, and cannot replace the line's own words."""
    log_of().record("stopped", level="warning", instance="i", event="x", timestamp=1, pid=7)

    line = json.loads(written.getvalue())
    assert (line["event"], line["level"], line["event_id"]) == ("stopped", "warning", "00c0ffee-1")
    assert (line["instance"], line["pid"], line["event_"], line["timestamp_"]) == ("i", 7, "x", 1)
    assert "server" not in line


def test_what_is_no_json_becomes_text() -> None:
    """The list of events must always be sendable."""
    event = log_of().record("odd", ratio=float("nan"), kind=EventLog, raw=b"x", group={3, 1})

    assert json.loads(json.dumps(dict(event.data), allow_nan=False)) == {
        "ratio": "nan",
        "kind": "<class 'supervisor.telemetry.events.EventLog'>",
        "raw": "b'x'",
        "group": [1, 3],
    }
