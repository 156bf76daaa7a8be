"""The hands of a stop keep one contract: the real ones on asyncio, the fake under a virtual clock.

What the shell's tests assume of the fake is shown here of a real relay, anchor and `/bin/cat`.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import anyio
import pytest
from trio.testing import MockClock

from process.fake_family import ANCHOR, RELAY, SERVER, FakeFamily
from process.real_family import POLICY, WITHIN_S, RealFamily, real_family
from process_table import kill_pinned, open_pidfd, row_of, wait_gone
from supervisor.core import stages
from supervisor.core.attribution import Identity
from supervisor.core.report import FactName
from supervisor.core.shutdown_events import AnchorLost, Event, FactSeen, HelperHeard
from supervisor.process.ports import FamilyPort, GroupLook, Post
from supervisor.relay import message

pytestmark = pytest.mark.anyio

Backend = tuple[str, dict[str, object]]
DATA_PIPES: Final[set[FactName]] = {"stdout_eof", "stderr_eof", "lineage_eof"}
HELPERS_GONE: Final[set[FactName]] = {"control_closed", "relay_exited"}
RECEIPT: Final[set[FactName]] = {"closing_receipt", "anchor_exited", "descendants_gone"}


class Subject(Protocol):
    """A family that runs, and what may happen to it from outside."""

    @property
    def events(self) -> list[Event]:
        """Everything posted so far."""

    @property
    def hands(self) -> FamilyPort:
        """What is under test."""

    @property
    def server(self) -> Identity:
        """The server, for a scan that finds it."""

    @property
    def helpers(self) -> set[Identity]:
        """Relay and anchor, which no scan may find."""

    async def until(self, wanted: Callable[[list[Event]], bool]) -> None:
        """Wait until the events are as `wanted`."""

    def stop_relay(self) -> None:
        """SIGSTOP to the relay; it has stopped when this returns."""

    def kill_server_unnoticed(self) -> None:
        """SIGKILL to the server; it is dead when this returns, and nobody was told yet."""

    def kill_relay_unnoticed(self) -> None:
        """The same to the relay."""


class FakeSubject:
    """The fake."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._fake = FakeFamily()
        post: Post = self.events.append
        self._fake.open(post)
        self.hands: FamilyPort = self._fake
        self.server = SERVER
        self.helpers = {RELAY, ANCHOR}

    async def until(self, wanted: Callable[[list[Event]], bool]) -> None:
        """What the fake does it has done."""
        await anyio.lowlevel.checkpoint()
        assert wanted(self.events), self.events

    def stop_relay(self) -> None:
        """Stop it."""
        self._fake.stop_relay()

    def kill_server_unnoticed(self) -> None:
        """End it in silence."""
        with self._fake.unnoticed():
            self._fake.exit_server()

    def kill_relay_unnoticed(self) -> None:
        """End it in silence."""
        with self._fake.unnoticed():
            self._fake.lose_relay()


class RealSubject:
    """A real family."""

    def __init__(self, real: RealFamily) -> None:
        self._real = real
        self.events = real.events
        self.until = real.until
        self.hands: FamilyPort = real.family
        assert real.family.server is not None
        assert real.family.anchor is not None
        assert real.family.relay is not None
        self.server = real.family.server
        self.relay = real.family.relay
        self.helpers = {real.family.anchor, self.relay}

    def stop_relay(self) -> None:
        """Stop it, and see that it has."""
        pidfd = open_pidfd(self.relay.pid)
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        os.close(pidfd)
        os.waitid(os.P_PID, self.relay.pid, os.WSTOPPED | os.WNOWAIT)

    def kill_server_unnoticed(self) -> None:
        """End it without a turn of the loop."""
        self._kill(self.server)

    def kill_relay_unnoticed(self) -> None:
        """End it without a turn of the loop."""
        self._kill(self.relay)

    @staticmethod
    def _kill(identity: Identity) -> None:
        pidfd = open_pidfd(identity.pid)
        kill_pinned(pidfd)
        assert wait_gone([pidfd], WITHIN_S) == ()
        os.close(pidfd)


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Backend | str:
    """The fake runs under a clock that jumps, the real family under the daemon's loop."""
    if request.param == "trio":
        return "trio", {"clock": MockClock(autojump_threshold=0)}
    return "asyncio"


@pytest.fixture
async def subject(anyio_backend_name: str, subreaper: None) -> AsyncIterator[Subject]:
    """A family that runs: fake under trio, real under asyncio."""
    assert subreaper is None
    if anyio_backend_name == "trio":
        yield FakeSubject()
        return
    async with real_family() as real:
        real.family.discard_output()  # stdout waits for somebody who wants it
        yield RealSubject(real)


def facts(events: list[Event], state: str = "confirmed") -> set[FactName]:
    """Facts that were posted so far."""
    return {e.fact for e in events if isinstance(e, FactSeen) and e.state == state}


def knows(*wanted: set[FactName]) -> Callable[[list[Event]], bool]:
    """Whether all these facts are known."""
    return lambda events: set().union(*wanted) <= facts(events)


def says_anything(events: list[Event]) -> bool:
    """Whether the relay was heard."""
    return any(isinstance(event, HelperHeard) for event in events)


def tell_stop(subject: Subject) -> None:
    """Hand a schedule to the relay, as the shell does."""
    schedule = stages.plan(
        anyio.current_time(), POLICY.term_after_s, POLICY.kill_after_s, POLICY.deadline_s
    )
    subject.hands.schedule = schedule
    requested, term, kill, deadline = map(message.to_ns, schedule.instants())
    subject.hands.tell(message.STOP, requested=requested, term=term, kill=kill, deadline=deadline)


async def test_a_server_that_leaves_on_eof_is_noticed_and_its_relay_stays(subject: Subject) -> None:
    """Nobody asked for a stop: the owner keeps custody until somebody does."""
    subject.events.clear()
    subject.hands.close_stdin()

    await subject.until(knows({"server_exited"}, DATA_PIPES))
    assert not facts(subject.events) & (RECEIPT | HELPERS_GONE)
    assert subject.hands.look_at_group().beyond_anchor == 0


async def test_a_stop_of_a_polite_server_ends_in_a_receipt_and_the_relays_exit(
    subject: Subject,
) -> None:
    """Every fact but the probe's and the scan's comes by itself."""
    subject.hands.close_stdin()
    tell_stop(subject)

    await subject.until(knows({"server_exited"}, DATA_PIPES, RECEIPT, HELPERS_GONE))
    assert facts(subject.events, "contradicted") == set()
    assert subject.hands.look_at_group() == GroupLook(0, 0)
    assert subject.hands.probe_group().state == "confirmed"


async def test_a_ping_is_answered_and_a_stopped_relay_answers_when_it_is_woken(
    subject: Subject,
) -> None:
    """Silence is what the takeover is decided by."""
    subject.events.clear()
    subject.hands.tell(message.PING)
    await subject.until(says_anything)

    subject.stop_relay()
    subject.events.clear()
    subject.hands.tell(message.PING)
    assert not says_anything(subject.events)
    subject.hands.wake_relay()
    await subject.until(says_anything)


async def test_a_living_group_is_counted_and_contradicts_the_probe(subject: Subject) -> None:
    """Anchor and server; the anchor is not beyond itself."""
    assert subject.hands.look_at_group() == GroupLook(2, 1)
    assert subject.hands.probe_group().state == "contradicted"


async def test_a_group_kill_takes_anchor_and_server_and_the_relay_finishes(
    subject: Subject,
) -> None:
    """The relay stands outside the group: it reaps, says what was lost, and proves the end."""
    subject.hands.kill_group()

    await subject.until(knows({"server_exited"}, DATA_PIPES, RECEIPT, HELPERS_GONE))
    assert any(isinstance(event, AnchorLost) for event in subject.events)
    assert subject.hands.probe_group().state == "confirmed"


async def test_a_last_look_posts_what_the_kernel_has_ready_before_it_returns(
    subject: Subject,
) -> None:
    """Events that are already in the kernel count."""
    subject.events.clear()
    subject.kill_server_unnoticed()
    assert facts(subject.events) == set()

    subject.hands.last_look()
    assert facts(subject.events) >= {"server_exited", "stdout_eof", "stderr_eof", "lineage_eof"}


async def test_a_last_look_sees_a_dead_relay(subject: Subject) -> None:
    """Its exit and the end of its socket, whichever the loop would have told first."""
    subject.kill_relay_unnoticed()

    subject.hands.last_look()
    assert facts(subject.events) >= HELPERS_GONE


async def test_what_a_killed_relay_held_is_drained(subject: Subject) -> None:
    """Relay gone, no receipt: the daemon ends and reaps the anchor and the server."""
    subject.hands.kill_relay()
    await subject.until(knows(HELPERS_GONE))
    assert not facts(subject.events) & RECEIPT

    subject.hands.drain()
    await subject.until(knows({"server_exited", "descendants_gone"}, DATA_PIPES))
    assert "closing_receipt" not in facts(subject.events)
    assert subject.hands.probe_group().state == "confirmed"
    assert (await subject.hands.scan()).found == ()


async def test_a_relay_that_is_gone_takes_no_order_and_pins_no_group(subject: Subject) -> None:
    """Each call is harmless: whoever makes it may not know yet."""
    subject.hands.kill_relay()
    await subject.until(knows(HELPERS_GONE))
    events = len([e for e in subject.events if isinstance(e, HelperHeard)])

    subject.hands.tell(message.PING)
    subject.hands.wake_relay()
    subject.hands.kill_relay()
    subject.hands.kill_group()
    assert len([e for e in subject.events if isinstance(e, HelperHeard)]) == events
    subject.hands.drain()
    await subject.until(knows({"descendants_gone"}))


async def test_a_scan_finds_the_server_and_leaves_the_helpers_out(subject: Subject) -> None:
    """A survivor is what a server has left, not what watches it."""
    found = (await subject.hands.scan()).found
    assert [identity for identity, _ in found] == [subject.server]
    assert not {identity for identity, _ in found} & subject.helpers


async def test_a_scan_after_the_end_is_clean(subject: Subject) -> None:
    """By group, session and mark."""
    subject.hands.close_stdin()
    tell_stop(subject)
    await subject.until(knows(RECEIPT, HELPERS_GONE))
    assert (await subject.hands.scan()).found == ()
    assert row_of(subject.server.pid) is None or subject.server == SERVER
