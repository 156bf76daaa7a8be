"""A process that is the last heir, for tests: `heirs_host.py SCENARIO` prints what it saw as JSON.

A process of its own, since it is a subreaper and reaps whatever it did not expect. Each scenario
is a function; what it returns is printed.
"""

import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import anyio

from supervisor.core import stages
from supervisor.core.attribution import Claim, Identity, Orphan
from supervisor.core.ids import INSTANCE_MARK, InstanceId, Pid
from supervisor.linux import reaping
from supervisor.linux.processes import read_stat
from supervisor.linux.reaping import Exited, become_subreaper
from supervisor.process.family import Family
from supervisor.process.heirs import Heirs

A: Final = InstanceId("a" * 16)
MARKED: Final = {INSTANCE_MARK: A}
WITHIN_S: Final = 5.0

SLEEPER: Final = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM} if sys.argv[1] == "deaf" else set())
os.write(1, b"%d\\n" % os.getpid())
os.close(1)
while True:
    signal.pause()
"""
"""An orphan; a deaf one keeps its SIGTERM pending, where /proc shows it."""


@dataclass
class Claimant:
    """A family that lost its relay, as far as an heir knows it."""

    id: InstanceId
    sessions: frozenset[int] = frozenset()
    identities: frozenset[Identity] = frozenset()
    relay_pid: Pid | None = None
    anchor: Identity | None = None
    server: Identity | None = None
    exit: Exited | None = None
    schedule: stages.Schedule | None = None
    unattributed: tuple[Orphan, ...] = ()
    learned: list[str] = field(default_factory=list)
    recorded: list[tuple[int, str]] = field(default_factory=list)

    def claim(self, strangers: frozenset[Identity]) -> Claim:
        """What is its own."""
        return Claim(
            instance=self.id,
            sessions=self.sessions,
            identities=self.identities,
            strangers=strangers,
        )

    def remember(self, identity: Identity, *_leads: int) -> None:
        """Know one more of its own."""
        self.identities |= {identity}

    def take_exit(self, exited: Exited) -> None:
        """Note how the server ended."""
        self.exit = exited

    def learn(self, fact: str, evidence: str) -> None:
        """Note a fact."""
        self.learned.append(f"{fact}: {evidence}")

    def record(self, _target: str, pid: int, number: signal.Signals, _result: object) -> None:
        """Note a signal."""
        self.recorded.append((pid, number.name))

    @property
    def as_family(self) -> Family:
        """For an heir, which asks no more of a family than this."""
        return cast("Family", self)


def start(env: Mapping[str, str], *, deaf: bool, orphan: bool) -> Identity:
    """Start a sleeper that has set itself up: a child of ours, or an orphan that came to us."""
    read, write = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.dup2(write, 1)
        for fd in (0, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
        os.setsid()
        if orphan and os.fork() != 0:
            os._exit(0)
        word = "deaf" if deaf else "mortal"
        os.execve(sys.executable, [sys.executable, "-S", "-E", "-c", SLEEPER, word], dict(env))  # noqa: S606 - our own code
    os.close(write)
    with os.fdopen(read) as pipe:
        pid = int(pipe.read())
    if orphan:
        os.waitid(os.P_PID, middle, os.WEXITED)
    found = read_stat(pid)
    if found is None or found.ppid != os.getpid():
        message = f"{pid} did not come to this process"
        raise RuntimeError(message)
    return found.identity


def marked(*, deaf: bool = False) -> Identity:
    """An orphan that carries the mark of A."""
    return start(MARKED, deaf=deaf, orphan=True)


def stranger(*, deaf: bool = True) -> Identity:
    """An orphan that nobody can know."""
    return start({}, deaf=deaf, orphan=True)


def parent_of_one() -> tuple[Identity, Identity]:
    """A child of ours that carries the mark of A, and a child of its own that does too."""
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.dup2(write, 1)
        if os.fork() != 0:
            os.close(1)
            os.close(write)
            while True:
                signal.pause()
        os.execve(sys.executable, [sys.executable, "-S", "-E", "-c", SLEEPER, "mortal"], MARKED)  # noqa: S606 - our own code
    os.close(write)
    with os.fdopen(read) as pipe:
        child = int(pipe.read())
    found = read_stat(parent), read_stat(child)
    if found[0] is None or found[1] is None:
        message = "a sleeper ended by itself"
        raise RuntimeError(message)
    return found[0].identity, found[1].identity


def settle(heirs: Heirs) -> None:
    """Look until nothing is left to do, as the heir's own loop does."""
    heirs.look()
    for _ in range(100):
        if not heirs._unfinished:
            return
        heirs.look()
    message = "the heir never finishes"
    raise RuntimeError(message)


def kill_and_wait(identity: Identity) -> None:
    """SIGKILL to a child; it is a zombie when this returns."""
    pidfd = os.pidfd_open(identity.pid)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    os.close(pidfd)


def wait_dead(identity: Identity) -> None:
    """Wait until a child is a zombie."""
    os.waitid(os.P_PID, identity.pid, os.WEXITED | os.WNOWAIT)


def state(identity: Identity) -> str:
    """Alive, zombie, or gone."""
    found = read_stat(identity.pid)
    if found is None or found.identity != identity:
        return "gone"
    return "alive" if found.alive else "zombie"


def sigterm_pending(identity: Identity) -> bool:
    """Whether a deaf sleeper was sent SIGTERM."""
    for line in Path(f"/proc/{identity.pid}/status").read_text("ascii").splitlines():
        if line.startswith(("ShdPnd:", "SigPnd:")) and int(line.split()[1], 16) >> 14 & 1:
            return True
    return False


async def strangers() -> dict[str, Any]:
    """An orphan that no family can claim, from its arrival to its end."""
    heirs = Heirs()
    one = stranger()
    heirs.look()
    seen = {"looked_at": state(one), "signalled": sigterm_pending(one)}
    kill_and_wait(one)
    dead = state(one)
    heirs.look()
    return {**seen, "dead": dead, "looked_at_dead": state(one)}


async def spawning() -> dict[str, Any]:
    """An unknown child that dies while a spawn is unacknowledged: it may be the relay."""
    heirs = Heirs()
    one = stranger()
    kill_and_wait(one)
    heirs.spawning += 1
    heirs.look()
    during = state(one)
    heirs.spawning -= 1
    heirs.look()
    return {"during": during, "after": state(one)}


async def expected() -> dict[str, Any]:
    """A child that somebody else waits for."""
    heirs = Heirs()
    one = start({}, deaf=False, orphan=False)
    heirs.expect(Pid(one.pid))
    kill_and_wait(one)
    heirs.look()
    kept = state(one)
    heirs.dismiss(Pid(one.pid))
    heirs.look()
    return {"expected": kept, "dismissed": state(one)}


def drain_two(heirs: Heirs, server: Identity, other: Identity) -> dict[str, Any]:
    """Drain a family of two; one is the server."""
    family = Claimant(A, server=server)
    heirs.claim(family.as_family)
    heirs.look()
    before = [state(server), state(other)]
    heirs.drain(family.as_family)
    wait_dead(server)
    wait_dead(other)
    settle(heirs)
    return {
        "before": before,
        "after": [state(server), state(other)],
        "signals": sorted({name for _, name in family.recorded}),
        "signalled": {pid for pid, _ in family.recorded} == {server.pid, other.pid},
        "exit": str(family.exit),
        "learned": family.learned,
    }


async def drained_by_mark() -> dict[str, Any]:
    """An heir to which strangers may come ends what carries the mark."""
    one = stranger()
    heirs = Heirs()
    heirs.look()
    seen = drain_two(heirs, marked(), marked())
    return {**seen, "stranger": [state(one), sigterm_pending(one)]}


async def drained_without_mark() -> dict[str, Any]:
    """One to which only families can leave anything needs no mark."""
    heirs = Heirs()
    return drain_two(heirs, stranger(deaf=False), stranger(deaf=False))


async def another_is_not_drained() -> dict[str, Any]:
    """Two families lost their relay and one is not to be ended: whose the orphan is matters."""
    heirs = Heirs()
    family, other = Claimant(A), Claimant(InstanceId("b" * 16))
    heirs.claim(other.as_family)
    heirs.claim(family.as_family)
    one = stranger()
    heirs.drain(family.as_family)
    during = sigterm_pending(one)
    heirs.drain(other.as_family)
    return {"during": during, "both": sigterm_pending(one), "learned": family.learned}


async def came_before() -> dict[str, Any]:
    """A stranger that was here while every relay lived: neither signalled nor waited for."""
    one = stranger()
    heirs = Heirs()
    heirs.look()
    family = Claimant(A)
    heirs.drain(family.as_family)
    settle(heirs)
    return {
        "signalled": sigterm_pending(one),
        "state": state(one),
        "unattributed": [orphan.identity.pid for orphan in family.unattributed],
        "learned": family.learned,
    }


async def came_after() -> dict[str, Any]:
    """A stranger that came when the relay was lost: not signalled, but waited for."""
    stranger()
    heirs = Heirs()
    heirs.look()
    family = Claimant(A)
    heirs.claim(family.as_family)
    one = stranger()
    heirs.drain(family.as_family)
    settle(heirs)
    held = [orphan.identity.pid for orphan in family.unattributed] == [one.pid]
    during = list(family.learned)
    signalled = sigterm_pending(one)
    kill_and_wait(one)
    settle(heirs)
    return {
        "held_open": held,
        "signalled": signalled,
        "learned_before": during,
        "learned_after": family.learned,
        "state": state(one),
    }


async def signals_while_spawning() -> dict[str, Any]:
    """What only its session names may be the new relay; what has the mark cannot."""
    stranger()
    heirs = Heirs()
    heirs.look()
    by_mark, by_session = marked(deaf=True), stranger()
    found = read_stat(by_session.pid)
    family = Claimant(A, sessions=frozenset({found.sid if found else 0}))
    heirs.spawning += 1
    heirs.drain(family.as_family)
    during = [sigterm_pending(by_mark), sigterm_pending(by_session)]
    heirs.spawning -= 1
    heirs.look()
    after = [sigterm_pending(by_mark), sigterm_pending(by_session)]
    for one in (by_mark, by_session):
        kill_and_wait(one)
    heirs.spawning += 1
    heirs.look()
    kept = family.learned.copy()
    heirs.spawning -= 1
    settle(heirs)
    return {"during": during, "after": after, "kept_open": kept, "learned": family.learned}


LOOKS = 200


async def anchor_dies_last() -> dict[str, Any]:
    """A dead anchor pins its group until all else is gone: it is reaped last."""
    heirs = Heirs()
    anchor, other = marked(deaf=True), marked(deaf=True)
    family = Claimant(A, anchor=anchor, identities=frozenset({anchor, other}))
    heirs.drain(family.as_family)
    spared = sigterm_pending(anchor)
    kill_and_wait(anchor)
    group = list[str]()
    for _ in range(LOOKS):  # one look is bounded in time, and may not get to both
        heirs.look()
        group = [name for pid, name in family.recorded if pid == anchor.pid]
        if "SIGTERM" in group:
            break
    pinned = state(anchor)
    kill_and_wait(other)
    settle(heirs)
    return {
        "anchor_got_sigterm": spared,
        "pinned": pinned,
        "group_signals": group,
        "after": [state(anchor), state(other)],
        "learned": family.learned,
    }


async def anchor_dies_during_a_look() -> dict[str, Any]:
    """What an anchor held comes here between the list of children and the look at it."""
    heirs = Heirs()
    anchor, child = parent_of_one()
    family = Claimant(A, anchor=anchor, identities=frozenset({anchor, child}))
    listed = reaping.own_children

    def list_and_lose_the_anchor() -> set[Pid]:
        found = listed()
        if state(anchor) == "alive":
            kill_and_wait(anchor)
        return found

    reaping.own_children = list_and_lose_the_anchor
    heirs.drain(family.as_family)
    early = list(family.learned)
    heirs.look()
    if not early:
        wait_dead(child)
    settle(heirs)
    return {"learned_early": early, "child": state(child), "learned": family.learned}


HALF_DEAD: Final = """
import ctypes, os, sys, threading
gate = int(sys.argv[1])
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, "-S", "-E", "-c", sys.argv[2], "mortal"])
def last():
    os.read(gate, 1)
    os._exit(0)
threading.Thread(target=last).start()
ctypes.CDLL(None).syscall(60, 0)
"""
"""Starts a sleeper; then its first thread ends, and another one lives until the gate opens."""


async def first_thread_dies_first() -> dict[str, Any]:
    """A process is a zombie to look at while its other threads still hold its children."""
    heirs = Heirs()
    gate, opener = os.pipe()
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        os.dup2(write, 1)
        os.set_inheritable(gate, True)
        argv = [sys.executable, "-S", "-E", "-c", HALF_DEAD, str(gate), SLEEPER]
        os.execve(sys.executable, argv, MARKED)  # noqa: S606 - our own code
    os.close(write)
    with os.fdopen(read) as pipe:
        child = read_stat(int(pipe.readline()))
    found = read_stat(parent)
    while found is not None and found.alive:
        found = read_stat(parent)  # nothing announces the end of a first thread
    if found is None or child is None:
        message = "the parent is gone as a whole"
        raise RuntimeError(message)
    family = Claimant(A, identities=frozenset({found.identity, child.identity}))
    heirs.drain(family.as_family)
    early = list(family.learned)
    os.write(opener, b".")
    wait_dead(found.identity)
    heirs.look()
    heirs.look()
    if not early:
        wait_dead(child.identity)
    settle(heirs)
    return {"learned_early": early, "child": state(child.identity), "learned": family.learned}


async def killed_at_sigkill() -> dict[str, Any]:
    """What is deaf to SIGTERM is killed when the schedule says so, by the heir's own looks."""
    heirs = Heirs()
    one = marked(deaf=True)
    now = anyio.current_time()
    family = Claimant(A, schedule=stages.plan(now, 0.0, 0.05, 1.0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heirs.run)
        heirs.drain(family.as_family)
        with anyio.fail_after(WITHIN_S):
            while not family.learned:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    names = [name for _, name in family.recorded]
    return {"state": state(one), "signals": names, "learned": family.learned}


async def forgotten() -> dict[str, Any]:
    """A family that is given up in the middle of its drain gets no SIGKILL any more."""
    stranger()
    heirs = Heirs()
    heirs.look()
    marked(deaf=True)
    family = Claimant(A)
    heirs.drain(family.as_family)
    now = anyio.current_time()
    family.schedule = stages.plan(now, 0.0, 0.0, 1.0)
    heirs.forget(family.as_family)
    heirs.look()
    return {"signals": [name for _, name in family.recorded], "learned": family.learned}


async def given_up_beside_a_drain() -> dict[str, Any]:
    """One family is given up while another's drain goes on, where no stranger can come."""
    heirs = Heirs()
    left = marked(deaf=True)
    other = start({INSTANCE_MARK: "b" * 16}, deaf=True, orphan=True)
    family, second = Claimant(A), Claimant(InstanceId("b" * 16))
    heirs.claim(family.as_family)
    heirs.drain(second.as_family)
    heirs.forget(family.as_family)
    heirs.look()
    signalled = sigterm_pending(left)
    kill_and_wait(other)
    settle(heirs)
    return {"signalled": signalled, "state": state(left), "learned": second.learned}


SCENARIOS: Final[Mapping[str, Callable[[], Awaitable[dict[str, Any]]]]] = {
    scenario.__name__: scenario
    for scenario in (
        strangers,
        spawning,
        expected,
        drained_by_mark,
        drained_without_mark,
        another_is_not_drained,
        anchor_dies_last,
        anchor_dies_during_a_look,
        first_thread_dies_first,
        came_before,
        came_after,
        signals_while_spawning,
        killed_at_sigkill,
        forgotten,
        given_up_beside_a_drain,
    )
}

if __name__ == "__main__":
    become_subreaper()
    print(json.dumps(anyio.run(SCENARIOS[sys.argv[1]])))  # noqa: T201 - what the test reads
