"""The hands of one instance: its pipes, its pidfds, the control socket of its relay.

Everything here acts at once and decides nothing. What the kernel says becomes an event for the
instance's shell; what the relay says is read by `hearing.py`.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

import anyio

from supervisor.core.attribution import Claim, Identity, Orphan
from supervisor.core.ids import InstanceId, Pgid, Pid
from supervisor.core.report import FactName, SignalRecord, SignalTarget
from supervisor.core.shutdown_events import FactSeen
from supervisor.linux import reaping
from supervisor.linux.pipes import Sink, Source, Watch, is_readable
from supervisor.linux.processes import Known, Wanted, count_group, open_pidfd
from supervisor.linux.signals import SignalResult, group_exists, signal_group, signal_pidfd
from supervisor.process.heirs import Heirs
from supervisor.process.plumbing import Plumbing
from supervisor.process.ports import GroupLook, Post, Probe, ScanResult
from supervisor.process.scanning import Scanner
from supervisor.process.stderr_tail import StderrTail
from supervisor.relay import message

if TYPE_CHECKING:
    from supervisor.core import stages
    from supervisor.linux.reaping import Exited

PipeFact = Literal["stdout_eof", "stderr_eof", "lineage_eof", "control_closed"]


class Family:
    """One family of processes, from its first pipe to its last wait.

    Attributes:
        relay: identity of the relay, from `hello` on, or None.
        anchor: identity of the anchor, likewise; `server` of the server.
        exit: how the server ended, once a wait status says so.
        on_exit: called when the server is seen to have exited, and again once it is known how.
        known: every process that was ever reported, by identity.
        sessions: numbers of sessions and groups that only this family can have.
        leftovers: what outlived the server, with its command line.
        unattributed: children of the daemon that may or may not be this family's.
        signals: every signal that was sent, found nobody, or was refused.
    """

    def __init__(
        self,
        instance: InstanceId,
        plumbing: Plumbing,
        tail: StderrTail,
        heirs: Heirs,
        scanner: Scanner,
    ) -> None:
        self.id: Final = instance
        self.tail: Final = tail
        self.relay: Identity | None = None
        self.anchor: Identity | None = None
        self.server: Identity | None = None
        self.exit: Exited | None = None
        self.known: Final[dict[Identity, Known]] = {}
        self.sessions: Final[set[int]] = set()
        self.leftovers: Final[dict[Identity, str]] = {}
        self.unattributed: tuple[Orphan, ...] = ()
        self.signals: list[SignalRecord] = []
        self.discarded_bytes = 0
        self.schedule: stages.Schedule | None = None
        self._heirs = heirs
        self._scanner = scanner
        self.plumbing = plumbing
        self.fed_to_the_end = False
        self.relay_pid: Pid | None = None
        self._on_output_end: Callable[[], None] = _nothing
        self.on_exit: Callable[[], None] = _nothing
        self._relay_pidfd = -1
        self._server_pidfd = -1
        self._watches: list[Watch] = []

    def take_exit(self, exited: "Exited") -> None:
        """A wait status says how the server ended."""
        self.exit = exited
        self.on_exit()

    # From the first pipe to hello

    def open(
        self,
        post: Post,
        on_packet: Callable[[bytes], None],
        on_control_closed: Callable[[], None],
    ) -> None:
        """Begin to listen; stdout waits until somebody wants it."""
        self.post = post
        self._on_packet = on_packet
        self._on_control_closed = on_control_closed
        ends = self.plumbing
        self.stdin = Sink(ends.stdin)
        self.stdout = Source(ends.stdout, self._discard, self._output_ended)
        self.stdout.pause()
        self.stderr = Source(ends.stderr, self.tail.feed, self._stderr_ended)
        self.lineage = Source(ends.lineage, self._discard, lambda: self._ended("lineage_eof"))
        self.control = Watch(ends.control, self.read_control)

    def hold_relay(self, pid: Pid) -> None:
        """Pin the relay, which is our child."""
        if self.relay_pid is not None:
            return
        self._heirs.expect(pid)
        self.relay_pid = pid
        try:
            self._relay_pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            # the process between the fork server and it died, so that it came here unannounced
            self._heirs.claim(self)
            self.learn("relay_exited", "reaped as an orphan")
            return
        self._watches.append(Watch(self._relay_pidfd, self._relay_exited))

    def without_relay(self) -> None:
        """Neither a fork nor an exec gave us a relay: only the pipes are left to close."""
        self.plumbing.close_far()
        self._not_needed(
            "there was no relay",
            "relay_exited",
            "server_exited",
            "descendants_gone",
            "closing_receipt",
            "anchor_exited",
        )

    def hold(self, relay: Identity, anchor: Identity, server: Identity) -> None:
        """Pin all three; the anchor keeps the server unreaped until this is done."""
        self.relay, self.anchor, self.server = relay, anchor, server
        self.hold_relay(Pid(relay.pid))
        pidfd = open_pidfd(server)
        if pidfd is not None:
            self._server_pidfd = pidfd
            self._watches.append(Watch(pidfd, self._server_exited))
        for identity in (relay, anchor, server):
            # relay and anchor have parents that reap them late; the server may go at any time
            self.known[identity] = Known(identity, pin=identity == server)
        self.sessions.update((anchor.pid, relay.pid))
        self.tell(message.PINNED)

    def remember(self, identity: Identity, *leads: int) -> None:
        """Remember a process that a helper named; `leads` are its group and session numbers."""
        if identity not in self.known:
            self.known[identity] = Known(identity, pin=False)
        # a session or group that a descendant has made is this family's as well
        self.sessions.update(number for number in leads if number == identity.pid)

    def attach(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Hand the server's stdout to somebody from its first byte on, and say when it ends."""
        self.stdout.redirect(on_data)
        self._on_output_end = on_end
        self.stdout.resume()

    def discard_output(self) -> None:
        """Read stdout to its end and keep nothing."""
        self.attach(self._discard, _nothing)

    # What the kernel says

    def read_control(self) -> None:
        """Hand on every packet that is there."""
        while self.control.on:
            try:
                packet = os.read(self.plumbing.control, message.MAX_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if packet:
                self._on_packet(packet)
                continue
            self.control.pause()
            self._on_control_closed()
            if self.relay_pid is None:
                self._not_needed("there was no relay", "relay_exited")
            self._ended("control_closed")

    def _ended(self, fact: PipeFact) -> None:
        self.learn(fact, "EOF")

    def _output_ended(self) -> None:
        self._on_output_end()
        self._ended("stdout_eof")

    def _stderr_ended(self) -> None:
        self.tail.end()
        self._ended("stderr_eof")

    def _discard(self, data: bytes) -> None:
        self.discarded_bytes += len(data)

    def learn(
        self,
        fact: PipeFact | Literal["server_exited", "relay_exited", "descendants_gone"],
        evidence: str,
    ) -> None:
        """Post a confirmed fact."""
        now = anyio.current_time()
        self.post(FactSeen(at=now, fact=fact, state="confirmed", evidence=evidence))

    def _not_needed(self, why: str, *facts: FactName) -> None:
        now = anyio.current_time()
        for fact in facts:
            self.post(FactSeen(at=now, fact=fact, state="not_applicable", evidence=why))

    def _server_exited(self) -> None:
        self._unwatch(self._server_pidfd)
        self.learn("server_exited", "its pidfd is readable")
        self.on_exit()

    def _relay_exited(self) -> None:
        self._unwatch(self._relay_pidfd)
        self.read_control()  # what it said last comes before what its end means
        try:
            exited = reaping.reap_pidfd(self._relay_pidfd)
        except ChildProcessError:
            exited = None
        # from this instant on its orphans are our children: claim them before anybody looks
        self._heirs.claim(self)
        evidence = "its pidfd is readable" if exited is None else str(exited)
        self.learn("relay_exited", evidence)

    def _unwatch(self, fd: int) -> None:
        for watch in self._watches:
            if watch.fd == fd:
                watch.pause()

    # What the machine wants done

    def close_stdin(self) -> None:
        """Close the server's stdin, whatever is still queued for it.

        Only a client that left by itself is heard to its end: its feeder closes stdin behind
        what it had sent, or the stop's own stages end the server before that.
        """
        if not self.fed_to_the_end:
            self.stdin.close()
        if not self.stdout.ended:
            self.stdout.resume()

    def tell(self, verb: str, **fields: str | int) -> None:
        """Send one message to the relay; a relay that is gone is noticed by its pidfd."""
        with contextlib.suppress(OSError):
            os.write(self.plumbing.control, message.encode(verb, **fields))

    def wake_relay(self) -> None:
        """SIGCONT to the relay: it may have been stopped."""
        self._signal_relay(signal.SIGCONT)

    def kill_relay(self) -> None:
        """SIGKILL to the relay: what it held comes to this process."""
        self._signal_relay(signal.SIGKILL)

    def _signal_relay(self, number: signal.Signals) -> None:
        if self._relay_pidfd >= 0 and self.relay_pid is not None:
            self.record("relay", self.relay_pid, number, signal_pidfd(self._relay_pidfd, number))

    def kill_group(self) -> None:
        """SIGKILL to the group while our unreaped relay, or we, hold its unreaped leader."""
        if self.anchor is None or self._relay_pidfd < 0:
            return
        try:
            pinned = reaping.peek_pidfd(self._relay_pidfd)
        except ChildProcessError:
            return  # the relay is reaped: the drain owns what is left of the group
        if pinned:
            result = signal_group(Pgid(self.anchor.pid), signal.SIGKILL)
            self.record("group", self.anchor.pid, signal.SIGKILL, result)

    def record(
        self, target: SignalTarget, pid: int, number: signal.Signals, result: SignalResult
    ) -> None:
        """Keep a signal for the report."""
        self.add_signal(target, pid, number.name, anyio.current_time(), result)

    def add_signal(
        self, target: SignalTarget, pid: int, name: str, at: float, result: SignalResult
    ) -> None:
        """The same for one that the relay sent."""
        requested_at = at if self.schedule is None else self.schedule.requested_at
        self.signals.append(
            SignalRecord(
                target=target,
                pid=pid,
                signal=name,
                at_s=round(max(0.0, at - requested_at), 6),
                result=result.outcome,
                errno=result.errno,
            )
        )

    def look_at_group(self) -> GroupLook:
        """Count the members of the group that can still run."""
        if self.anchor is None:
            return GroupLook(0, 0)
        try:
            living = count_group(Pgid(self.anchor.pid))
        except OSError:
            return GroupLook(1, 1)  # nobody could look: somebody may still use the grace
        return GroupLook(len(living), len([pid for pid in living if pid != self.anchor.pid]))

    def probe_group(self) -> Probe:
        """Ask the kernel for the group, and psutil for every identity that was ever reported."""
        if self.anchor is None:
            return Probe("not_applicable", "no group was reported")
        alive = [identity.pid for identity, known in self.known.items() if known.running()]
        if alive:
            return Probe("contradicted", f"psutil finds running: {sorted(alive)}")
        # a group that exists after its leader was reaped is either ours or a new one of that
        # number: only members that are ours count
        if group_exists(Pgid(self.anchor.pid)) and self.look_at_group().living:
            return Probe("contradicted", f"group {self.anchor.pid} has members")
        names = f"psutil finds none of {len(self.known)} known processes"
        return Probe("confirmed", f"ESRCH for group {self.anchor.pid}; {names}")

    def drain(self) -> None:
        """Begin to end what came to the daemon from this family."""
        self._heirs.drain(self)

    def inherited(self) -> tuple[Orphan, ...]:
        """What of this family, or possibly of it, is a living child of the daemon right now."""
        return self._heirs.inherited(self)

    def claim(self, strangers: frozenset[Identity]) -> Claim:
        """What is known to be this family's."""
        return Claim(
            instance=self.id,
            sessions=frozenset(self.sessions),
            identities=frozenset(self.known),
            strangers=strangers,
        )

    def last_look(self) -> None:
        """Read every source once, without waiting."""
        for source in (self.stdout, self.stderr, self.lineage):
            source.read_now()
        self.read_control()
        for watch in self._watches:
            if watch.on and is_readable(watch.fd):
                watch.call()
        self._heirs.look()

    async def scan(self) -> ScanResult:
        """Look through all processes for this family's."""
        helpers = frozenset(i for i in (self.relay, self.anchor) if i is not None)
        return await self._scanner.scan(
            Wanted(
                mark=self.id,
                sessions=frozenset(self.sessions),
                pgid=None if self.anchor is None else self.anchor.pid,
                helpers=helpers,
                identities=frozenset(self.known),
            )
        )

    def close(self) -> None:
        """Close every descriptor; nothing of the family is left, or an operator gave it up."""
        self.tail.end()
        self._heirs.forget(self)
        for watch in (*self._watches, self.control):
            watch.pause()
        for fd in (self._relay_pidfd, self._server_pidfd, self.plumbing.control):
            if fd >= 0:
                os.close(fd)
        self._relay_pidfd = self._server_pidfd = -1
        self.stdin.close()
        for source in (self.stdout, self.stderr, self.lineage):
            source.close()


def _nothing() -> None:
    """Nobody reads."""
