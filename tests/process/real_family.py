"""Real families for tests of the hands: a relay, an anchor and `/bin/cat`, in this process's care.

This process must be a subreaper (fixture `subreaper`), as the daemon is.
"""

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio

from process_table import kill_pinned, open_pidfd, reap_if_child, wait_gone
from supervisor.core.ids import InstanceId
from supervisor.core.launch import LaunchSpec, StopPolicy
from supervisor.core.shutdown_events import Event
from supervisor.linux.spawning import start_relay
from supervisor.process.family import Family
from supervisor.process.hearing import Failed, Hearing
from supervisor.process.heirs import Heirs
from supervisor.process.plumbing import Inheritance, Plumbing, launch_order, lay
from supervisor.process.scanning import Scanner
from supervisor.process.stderr_tail import StderrTail
from supervisor.relay import message

WITHIN_S: Final = 5.0
"""Every wait in these tests: some hundred times what it takes on a quiet machine."""

CAT: Final = ("/bin/cat",)
POLICY: Final = StopPolicy(deadline_s=2.0, term_after_s=0.5, kill_after_s=1.0)
INHERITANCE: Final = Inheritance(nofile=(1024, 4096), umask=0o022)


def spec(*argv: str) -> LaunchSpec:
    """A server with a small environment."""
    return LaunchSpec(argv=argv or CAT, env={"PATH": "/usr/bin:/bin"}, stop=POLICY)


def new_id() -> InstanceId:
    """A fresh instance id."""
    return InstanceId(secrets.token_hex(8))


def plumbing_for(instance: InstanceId, *argv: str) -> Plumbing:
    """Pipes and order of one server; its receipt goes to nobody."""
    receipt = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    return lay(launch_order(spec(*argv), instance, INHERITANCE), receipt)


def await_packet(control: int, verb: str, within_s: float = WITHIN_S) -> dict[str, str]:
    """Read a relay's packets, without any loop, until one of `verb` comes; its fields."""
    while True:
        assert wait_gone([control], within_s) == (), f"no {verb} within {within_s} s"
        packet = os.read(control, message.MAX_MESSAGE_BYTES)
        assert packet, f"the relay left without {verb}"
        said, fields = message.decode(packet)
        if said == verb:
            return fields


@contextmanager
def ended_at_exit(pid: int) -> Iterator[int]:
    """Pin a process; at the end it is killed, waited for, and reaped if it is our child."""
    pidfd = open_pidfd(pid)
    try:
        yield pidfd
    finally:
        kill_pinned(pidfd)
        assert wait_gone([pidfd], WITHIN_S) == ()
        os.close(pidfd)
        reap_if_child(pid)


class RealFamily:
    """A family with its events as they come.

    Attributes:
        family: the hands under test.
        heirs: the daemon's children.
        events: everything posted so far.
    """

    def __init__(self, *argv: str) -> None:
        self.events: Final[list[Event]] = []
        self.heirs: Final = Heirs()
        self._news = anyio.Event()
        self._started = anyio.Event()
        self.failed: Failed | None = None
        instance = new_id()
        self.family: Final = Family(
            instance,
            plumbing_for(instance, *argv),
            StderrTail(frozenset()),
            self.heirs,
            Scanner(),
        )
        hearing = Hearing(self.family, self._on_start)
        self.family.open(self._post, hearing.hear, self._started.set)

    async def start(self) -> None:
        """Start the relay and wait for its first word."""
        pid = start_relay(self.family.plumbing.far, message.FIRST_FD)
        self.family.hold_relay(pid)
        self.family.plumbing.close_far()
        with anyio.fail_after(WITHIN_S):
            await self._started.wait()

    async def until(self, wanted: Callable[[list[Event]], bool]) -> None:
        """Wait until the events are as `wanted`."""
        with anyio.fail_after(WITHIN_S):
            while not wanted(self.events):
                self._news = anyio.Event()
                await self._news.wait()

    def _on_start(self, failed: Failed | None) -> None:
        self.failed = failed
        self._started.set()

    def _post(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()


@asynccontextmanager
async def real_family(*argv: str) -> AsyncIterator[RealFamily]:
    """Start one family; what is left of it at the end is killed, helpers first."""
    real = RealFamily(*argv)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(real.heirs.run)
            await real.start()
            with contextlib.ExitStack() as ends:
                for identity in (real.family.server, real.family.anchor, real.family.relay):
                    if identity is not None:
                        with contextlib.suppress(ProcessLookupError):
                            ends.enter_context(ended_at_exit(identity.pid))
                yield real
            tasks.cancel_scope.cancel()
    finally:
        real.family.close()
