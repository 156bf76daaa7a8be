"""The fork server: a relay is our child before we hear of it, and a dead one harms nobody."""

import errno
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import pytest

from leftovers import Groups
from process.real_family import (
    INHERITANCE,
    WITHIN_S,
    await_packet,
    ended_at_exit,
    new_id,
    plumbing_for,
    spec,
)
from process_table import kill_pinned, open_pidfd, row_of, wait_gone
from supervisor.core.errors import KernelError
from supervisor.core.ids import Pid, ServerName
from supervisor.linux.spawning import start_fork_server
from supervisor.process.custody import Custody
from supervisor.process.fork_server import UNUSABLE, ForkServer
from supervisor.process.plumbing import Plumbing
from supervisor.process.records import Records
from supervisor.relay import message

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("subreaper")]

NOBODY: Final = 65534


@contextmanager
def plumbing() -> Iterator[Plumbing]:
    """The pipes of one `/bin/cat`."""
    pipes = plumbing_for(new_id())
    try:
        yield pipes
    finally:
        pipes.close()


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    """A fork server that is ended and reaped."""
    server = ForkServer()
    try:
        yield server
    finally:
        server.close()


@contextmanager
def family_ended(pid: int, pipes: Plumbing) -> Iterator[dict[str, int]]:
    """Wait for `hello`; at the end kill server, anchor and relay. Gives role to pid."""
    pipes.close_far()
    fields = await_packet(pipes.control, message.HELLO)
    pids = {role: int(fields[role].partition("/")[0]) for role in ("server", "anchor", "relay")}
    assert pids["relay"] == pid
    with ExitStack() as ends:
        for role in ("server", "anchor", "relay"):
            ends.enter_context(ended_at_exit(pids[role]))
        yield pids


def kill_and_wait(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a child and wait until it has died of it, or stopped."""
    pidfd = open_pidfd(pid)
    signal.pidfd_send_signal(pidfd, number)
    os.close(pidfd)
    waited = os.WSTOPPED if number == signal.SIGSTOP else os.WEXITED
    os.waitid(os.P_PID, pid, waited | os.WNOWAIT)


async def test_a_forked_relay_is_our_child_when_its_pid_is_told() -> None:
    """Otherwise it would look like an unknown orphan: seen in 60 of 60 tries."""
    with fork_server() as server, plumbing() as pipes:
        pid = await server.fork(pipes.far)
        assert pid is not None
        row = row_of(pid)
        assert row is not None
        assert row.ppid == os.getpid()
        with family_ended(pid, pipes) as pids:
            anchor = row_of(pids["anchor"])
            assert anchor is not None
            assert (anchor.pgid, anchor.sid) == (pids["anchor"], pids["anchor"])
            assert row_of(pids["server"]) is not None


async def test_relays_that_are_forked_at_once_each_get_their_own_descriptors() -> None:
    """One link carries all requests; the gate tells the answers apart."""
    pids: dict[int, Pid | None] = {}

    async def fork(number: int) -> None:
        pids[number] = await server.fork(pipes[number].far)

    with fork_server() as server, ExitStack() as stack:
        pipes = [stack.enter_context(plumbing()) for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(fork, number)
        assert len(set(pids.values())) == 4
        for number, pid in pids.items():
            assert pid is not None
            stack.enter_context(family_ended(pid, pipes[number]))


async def test_a_relay_outlives_its_fork_server() -> None:
    """No relay depends on it."""
    with fork_server() as server, plumbing() as pipes:
        pid = await server.fork(pipes.far)
        assert pid is not None
        with family_ended(pid, pipes) as pids:
            server.close()
            os.write(pipes.control, message.encode(message.PING))
            await_packet(pipes.control, message.PONG)
            assert row_of(pids["server"]) is not None


async def test_a_dead_fork_server_is_an_error_and_no_longer_alive() -> None:
    """The caller starts the relay directly, and the next spawn gets a new fork server."""
    with fork_server() as server, plumbing() as pipes:
        before = server.alive
        kill_and_wait(server.pid)
        assert (before, server.alive) == (True, False)
        with pytest.raises(KernelError):
            await server.fork(pipes.far)
        assert not server.usable


async def test_a_fork_server_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be stopped: a spawn is not held up, and closing it takes the request along."""
    monkeypatch.setattr("supervisor.process.fork_server.FORK_PATIENCE_S", 0.05)
    with fork_server() as server, plumbing() as pipes:
        kill_and_wait(server.pid, signal.SIGSTOP)
        with pytest.raises(KernelError, match=UNUSABLE["answer"]):
            await server.fork(pipes.far)
        assert not server.alive
        server.close()
        # nobody else holds the far ends: no relay was forked from the request
        pipes.close_far()
        assert wait_gone([pipes.control], WITHIN_S) == ()
        assert os.read(pipes.control, 1) == b""


def start_poor_fork_server(link: socket.socket) -> Pid:
    """A fork server whose user may have no other process: its forks are refused.

    Source: getrlimit(2), RLIMIT_NPROC does not bind root.
    """
    fd = link.fileno()
    code = (
        "import os, resource, sys; "
        f"sys.path[:0] = [{str(Path(__file__).resolve().parents[2])!r}]; "
        "import fcntl; from supervisor.relay import fork_server; "
        f"os.geteuid() or os.setresuid({NOBODY}, {NOBODY}, {NOBODY}); "
        "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0)); "
        f"fork_server.main({fd})"
    )
    python = str(Path(sys.executable).resolve())
    os.set_inheritable(fd, True)
    try:
        return Pid(os.posix_spawn(python, [python, "-I", "-S", "-E", "-c", code], {}))
    finally:
        os.set_inheritable(fd, False)


async def test_a_refused_fork_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is out of processes: that is not the fork server's fault, which stays."""
    monkeypatch.setattr("supervisor.process.fork_server.start_fork_server", start_poor_fork_server)
    with fork_server() as server, plumbing() as pipes:
        with pytest.raises(KernelError, match=os.strerror(errno.EAGAIN)):
            await server.fork(pipes.far)
        assert server.alive


@contextmanager
def raw_link() -> Iterator[tuple[int, socket.socket]]:
    """A fork server that the test speaks to itself: its pid and the link."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            pid = start_fork_server(theirs)
        with ended_at_exit(pid):
            yield pid, ours


@dataclass
class Forked:
    """A relay whose process in the middle waits for an answer through the gate."""

    relay: int
    middle: int
    gate: socket.socket

    def let_middle_go(self) -> None:
        """Close the gate, which is an answer too."""
        pidfd = open_pidfd(self.middle)
        self.gate.close()
        self.wait_gone(pidfd)

    @staticmethod
    def wait_gone(pidfd: int) -> None:
        """Wait for the end of the process in the middle; the relay has a new parent then."""
        assert wait_gone([pidfd], WITHIN_S) == ()
        os.close(pidfd)


def ask(link: socket.socket, pipes: Plumbing) -> Forked:
    """Ask for a relay and read its pid, without acknowledging it."""
    gate, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(link, [message.SPAWN.encode()], [*pipes.far, theirs.fileno()])
    assert wait_gone([gate.fileno()], WITHIN_S) == ()
    verb, fields = message.decode(gate.recv(message.MAX_MESSAGE_BYTES))
    assert verb == message.FORKED
    relay = row_of(int(fields["pid"]))
    assert relay is not None
    return Forked(relay.pid, relay.ppid, gate)


def parent_of(pid: int) -> int:
    """Whose child it is now."""
    row = row_of(pid)
    assert row is not None
    return row.ppid


def test_the_process_in_the_middle_stays_until_its_word_is_acknowledged() -> None:
    """So the daemon knows each new child before it becomes one."""
    with raw_link() as (server, link), plumbing() as pipes:
        forked = ask(link, pipes)
        with forked.gate:
            assert parent_of(forked.middle) == server
            pidfd = open_pidfd(forked.middle)
            assert len(wait_gone([pidfd], 0.0)) == 1
            forked.gate.send(message.ACK.encode())
            forked.wait_gone(pidfd)
            parent = parent_of(forked.relay)
        with family_ended(forked.relay, pipes):
            assert parent == os.getpid()


def test_a_relay_whose_middle_process_is_killed_is_ours_and_says_hello() -> None:
    """Its pid would be lost with the process in the middle: `hello` tells it."""
    with raw_link() as (_, link), plumbing() as pipes:
        forked = ask(link, pipes)
        with forked.gate:
            middle = open_pidfd(forked.middle)
            kill_pinned(middle)
            forked.wait_gone(middle)
            parent = parent_of(forked.relay)
        with family_ended(forked.relay, pipes):
            assert parent == os.getpid()


async def test_a_gate_that_ends_without_a_word_leaves_the_pid_open() -> None:
    """The middle process was killed before it could speak; the fork server still serves."""
    with fork_server() as server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.close()
        ours.setblocking(False)
        with ours:
            assert await server._through_gate(ours) is None
        kill_and_wait(server.pid)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.close()
        with ours, pytest.raises(KernelError, match=UNUSABLE["gone"]):
            await server._through_gate(ours)


async def test_a_process_in_the_middle_that_dies_after_its_word_is_no_failed_spawn(
    groups: Groups,
) -> None:
    """The relay's pid is known and its `hello` comes: nobody may say that there is no relay."""
    middle = groups.start(["/bin/cat"])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        theirs.close()
        assert middle.stdin is not None
        middle.stdin.close()
        with anyio.fail_after(WITHIN_S):
            await ForkServer._release(ours, middle.pid)


async def test_a_relay_is_not_told_before_the_process_in_the_middle_is_gone(
    groups: Groups,
) -> None:
    """Until then its child is not ours; the end of the gate would come too early."""
    middle = groups.start(["/bin/cat"])
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    told = anyio.Event()

    async def release() -> None:
        await ForkServer._release(ours, middle.pid)
        told.set()

    with ours, theirs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(release)
            await anyio.wait_all_tasks_blocked()
            assert theirs.recv(message.MAX_MESSAGE_BYTES) == message.ACK.encode()
            assert not told.is_set()
            assert middle.stdin is not None
            middle.stdin.close()
            with anyio.fail_after(WITHIN_S):
                await told.wait()


def test_the_link_is_all_that_a_fork_server_holds() -> None:
    """A pipe of ours in it would hide an EOF for as long as it lives."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    with raw_link() as (pid, link), closing(os.fdopen(read, "rb")) as pipe, plumbing() as pipes:
        os.close(write)
        forked = ask(link, pipes)  # it serves, so it has closed what it closes
        forked.let_middle_go()
        with family_ended(forked.relay, pipes):
            assert pipe.read() == b""
            held = sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda entry: int(entry.name))
            targets = [str(entry.readlink()).partition(":")[0] for entry in held]
            assert targets == [os.devnull, os.devnull, os.devnull, "socket"]


def test_a_fork_server_leaves_when_its_link_ends_and_not_for_polite_signals() -> None:
    """A service manager may signal the whole cgroup; only pipes command a helper."""
    with raw_link() as (pid, link), plumbing() as pipes:
        forked = ask(link, pipes)  # it serves, so its dispositions are set
        forked.let_middle_go()
        pidfd = open_pidfd(pid)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.pidfd_send_signal(pidfd, number)
        with family_ended(forked.relay, pipes), plumbing() as more:
            second = ask(link, more)
            second.let_middle_go()
            with family_ended(second.relay, more):
                link.shutdown(socket.SHUT_RDWR)
                assert wait_gone([pidfd], WITHIN_S) == ()
        os.close(pidfd)


# Custody: what a spawn does with a fork server that is gone.


@pytest.fixture
async def custody(tmp_path: Path) -> AsyncIterator[Custody]:
    """Custody of no family yet."""
    async with Custody(Records(str(tmp_path)), INHERITANCE).open() as opened:
        yield opened


async def spawn_and_stop(custody: Custody) -> str:
    """One life of a server; the outcome of its stop."""
    held = await custody.spawn(spec(), ServerName("cat"), None)
    held.instance.request_stop("stop")
    with anyio.fail_after(WITHIN_S):
        return (await held.instance.wait_settled()).outcome


async def test_a_dead_fork_server_is_replaced_when_its_death_is_noticed(custody: Custody) -> None:
    """SIGCHLD tells; the old one is reaped and the next spawn does not notice."""
    pids = [custody.fork_server_pid]
    first = pids[0]
    assert first is not None
    kill_and_wait(first)
    pids.append(custody.fork_server_pid)
    custody.children_changed()
    pids.append(custody.fork_server_pid)

    assert pids[1] is None
    assert pids[2] not in {None, first}
    assert row_of(first) is None
    assert await spawn_and_stop(custody) == "confirmed"


async def test_a_spawn_that_finds_the_fork_server_dead_still_starts_its_server(
    custody: Custody,
) -> None:
    """Nobody told it yet."""
    first = custody.fork_server_pid
    assert first is not None
    kill_and_wait(first)

    assert await spawn_and_stop(custody) == "confirmed"
    assert custody.fork_server_pid not in {None, first}


async def test_a_spawn_that_meets_a_stopped_fork_server_execs_its_relay(
    custody: Custody, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment's patience; the stuck one is replaced."""
    monkeypatch.setattr("supervisor.process.fork_server.FORK_PATIENCE_S", 0.05)
    first = custody.fork_server_pid
    assert first is not None
    kill_and_wait(first, signal.SIGSTOP)

    assert await spawn_and_stop(custody) == "confirmed"
    assert row_of(first) is None
    assert custody.fork_server_pid not in {None, first}
