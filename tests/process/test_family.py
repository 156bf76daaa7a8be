"""The hands of one instance with a real relay: what is not in the contract of a fake."""

import os

import anyio
import pytest

from process.real_family import (
    CAT,
    WITHIN_S,
    await_packet,
    ended_at_exit,
    new_id,
    plumbing_for,
    real_family,
)
from process_table import kill_pinned, open_pidfd, row_of, wait_gone
from supervisor.core import stages
from supervisor.core.report import FactName
from supervisor.core.shutdown_events import Event, FactSeen
from supervisor.linux.processes import read_mark
from supervisor.linux.spawning import start_relay
from supervisor.relay import message

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("subreaper")]


def evidence(events: list[Event], fact: FactName) -> list[str]:
    """What was said about one fact, in order."""
    return [e.evidence for e in events if isinstance(e, FactSeen) and e.fact == fact]


def knows(fact: FactName, events: list[Event]) -> bool:
    """Whether a fact was seen."""
    return bool(evidence(events, fact))


async def test_hello_names_all_three_and_the_server_carries_the_mark() -> None:
    """Relay outside the group, anchor leading it, server in it."""
    async with real_family() as real:
        relay, anchor, server = real.family.relay, real.family.anchor, real.family.server
        assert relay is not None
        assert anchor is not None
        assert server is not None
        rows = [row_of(identity.pid) for identity in (relay, anchor, server)]
        assert [row.pgid for row in rows if row] == [relay.pid, anchor.pid, anchor.pid]
        assert [row.ppid for row in rows if row] == [os.getpid(), relay.pid, anchor.pid]
        assert read_mark(server.pid) == real.family.id


async def test_a_polite_stop_needs_no_signal() -> None:
    """The server leaves on EOF, and its anchor reaps it since the daemon said that it is pinned."""
    async with real_family() as real:
        real.family.close_stdin()
        schedule = stages.plan(anyio.current_time(), 30.0, 60.0, 90.0)
        requested, term, kill, deadline = map(message.to_ns, schedule.instants())
        real.family.tell(message.STOP, requested=requested, term=term, kill=kill, deadline=deadline)
        await real.until(lambda events: knows("relay_exited", events))
        assert knows("closing_receipt", real.events)
        assert real.family.signals == []
        assert str(real.family.exit) == "exit code 0"


def test_a_server_that_dies_at_once_stays_unreaped_until_it_is_pinned() -> None:
    """Its pid could be another's when the daemon opens the pidfd."""
    pipes = plumbing_for(new_id(), "/bin/true")
    relay = start_relay(pipes.far, message.FIRST_FD)
    with ended_at_exit(relay):
        pipes.close_far()
        server = int(await_packet(pipes.control, message.HELLO)["server"].partition("/")[0])
        assert wait_gone([pipes.stdout], WITHIN_S) == ()  # EOF: it has left
        pidfd = open_pidfd(server)
        assert wait_gone([pidfd], WITHIN_S) == ()
        os.close(pidfd)
        os.write(pipes.control, message.encode(message.PING))
        await_packet(pipes.control, message.PONG)
        row = row_of(server)
        assert row is not None
        assert row.state == "Z"

        os.write(pipes.control, message.encode(message.PINNED))
        await_packet(pipes.control, message.EXITED)
        pipes.close()  # and the relay ends its family by itself
        reaped = open_pidfd(relay)
        assert wait_gone([reaped], WITHIN_S) == ()
        os.close(reaped)


async def test_stdout_waits_for_somebody_who_wants_it() -> None:
    """From its first byte on, whenever that somebody comes; the end is told once."""
    got, ends = list[bytes](), list[str]()
    async with real_family() as real:
        real.family.stdin.write(b"one\n")
        real.family.stdin.end()
        await real.until(lambda events: knows("server_exited", events))
        assert not knows("stdout_eof", real.events)

        real.family.attach(got.append, lambda: ends.append("end"))
        await real.until(lambda events: knows("stdout_eof", events))
        assert b"".join(got) == b"one\n"
        assert ends == ["end"]
        assert evidence(real.events, "stdout_eof") == ["EOF"]


async def test_what_is_queued_for_a_server_that_does_not_read_does_not_hold_stdin_open() -> None:
    """The request to leave is the end of stdin: nobody waits for the queue."""
    async with real_family("/bin/sleep", "60") as real:
        real.family.stdin.write(b"x" * 1_000_000)
        assert real.family.stdin.waiting_bytes > 0
        real.family.close_stdin()
        assert real.family.stdin.waiting_bytes == 0
        assert real.family.stdin.fd == -1


async def test_a_group_is_not_signalled_once_its_relay_is_dead() -> None:
    """The anchor is nobody's that we know of until the drain has looked."""
    async with real_family() as real:
        relay = real.family.relay
        assert relay is not None
        pidfd = open_pidfd(relay.pid)
        kill_pinned(pidfd)
        assert wait_gone([pidfd], WITHIN_S) == ()
        os.close(pidfd)

        real.family.kill_group()
        assert real.family.signals == []
        real.family.last_look()
        real.family.drain()
        await real.until(lambda events: knows("descendants_gone", events))


async def test_a_signal_is_recorded_with_its_target_and_result() -> None:
    """The report lists what was sent, and counts from the request."""
    async with real_family() as real:
        real.family.discard_output()
        real.family.kill_group()
        await real.until(lambda events: knows("relay_exited", events))
        real.family.kill_relay()

        rows = [(row.target, row.signal, row.result) for row in real.family.signals]
        assert ("group", "SIGKILL", "sent") in rows
        assert rows[-1] == ("relay", "SIGKILL", "gone")
        assert all(row.errno is None and row.at_s >= 0 for row in real.family.signals)


async def test_the_servers_exit_is_known_by_status_once_its_relay_has_waited() -> None:
    """The pidfd says that it is gone, the relay how."""
    async with real_family("/bin/sh", "-c", "read x; echo oops >&2; exit 7") as real:
        real.family.discard_output()
        real.family.close_stdin()
        await real.until(lambda events: knows("stderr_eof", events))
        with anyio.fail_after(WITHIN_S):
            while real.family.exit is None:
                await anyio.lowlevel.checkpoint()
        assert str(real.family.exit) == "exit code 7"
        assert real.family.tail.lines() == ("oops",)
        assert knows("server_exited", real.events)


@pytest.mark.parametrize(
    ("argv", "step"),
    [(("no-such-command",), "lookup"), (("/etc/hostname",), "exec"), (("/etc",), "exec")],
)
async def test_a_failed_launch_says_where_and_leaves_nothing(
    argv: tuple[str, ...], step: str
) -> None:
    """The relay ends by itself, with a receipt; there never was a server."""
    assert argv != CAT
    async with real_family(*argv) as real:
        real.family.discard_output()
        assert real.failed is not None
        assert real.failed.step == step
        await real.until(lambda events: knows("closing_receipt", events))
        await real.until(lambda events: knows("relay_exited", events))
        assert evidence(real.events, "server_exited")[0] == "it never ran"
        assert real.family.probe_group().state == "not_applicable"
