"""A family of processes that does not exist: the hands of a stop, for a virtual clock.

It passes the same contract as the real one (`test_family_contract.py`). What a kernel or a relay
would do at once happens at once; what takes time is up to the test, which calls `exit_server`,
`lose_relay` and the like when it wants them.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import anyio

from supervisor.core.attribution import Identity
from supervisor.core.report import FactName, FactState
from supervisor.core.shutdown_events import AnchorLost, Event, FactSeen, HelperHeard
from supervisor.process.ports import GroupLook, Post, Probe, ScanResult
from supervisor.relay import message

if TYPE_CHECKING:
    from supervisor.core import stages

RELAY: Final = Identity(101, 1)
ANCHOR: Final = Identity(102, 1)
SERVER: Final = Identity(103, 1)

PIPES: Final[tuple[FactName, ...]] = ("stdout_eof", "stderr_eof", "lineage_eof")
RECEIPT: Final[tuple[FactName, ...]] = ("closing_receipt", "anchor_exited", "descendants_gone")


class FakeFamily:
    """One relay, one anchor, one server.

    Attributes:
        did: every call of the shell with its instant, `tell` with its verb.
        polite: whether the server leaves when its stdin is closed.
        stuck: whether nothing can wake a stopped relay.
        scan_takes_s: how long a scan takes, in virtual seconds.
        drain_takes: whether a drain waits for `end_drain`.
        probe_says: what a probe says when nobody lives: a stranger may have the group's number.
    """

    def __init__(self, *, polite: bool = True) -> None:
        self.schedule: stages.Schedule | None = None
        self.did: Final[list[tuple[float, str]]] = []
        self.polite = polite
        self.stuck = False
        self.scan_takes_s = 0.0
        self.drain_takes = False
        self.probe_says: FactState = "confirmed"
        self.relay_listens = True
        self._relay_lives = True
        self._anchor_lives = True
        self._server_lives = True
        self._told_to_stop = False
        self._closed = False
        self._unheard: list[str] = []
        self._unnoticed: list[Event] = []
        self._holding_back = False

    def open(self, post: Post) -> None:
        """Begin to listen."""
        self.post = post

    # What happens outside

    def exit_server(self) -> None:
        """The server exits, and nobody else holds its pipes."""
        if self._server_lives:
            self._server_lives = False
            self._learn("server_exited", *PIPES)
            self._finish()

    def stop_relay(self) -> None:
        """Somebody sent SIGSTOP to the relay."""
        self.relay_listens = False

    def lose_relay(self) -> None:
        """The relay dies; the anchor and what is below it come to the daemon."""
        if self._relay_lives:
            self._relay_lives = self.relay_listens = False
            self._learn("control_closed", "relay_exited")

    def end_drain(self) -> None:
        """The last inherited process is reaped."""
        if self._server_lives:
            self.exit_server()
        self._anchor_lives = False
        self._learn("descendants_gone")

    @contextlib.contextmanager
    def unnoticed(self) -> Iterator[None]:
        """What happens inside is known to the kernel, and to nobody else before a last look."""
        self._holding_back = True
        yield
        self._holding_back = False

    # What the shell wants done

    def close_stdin(self) -> None:
        """Let a polite server leave."""
        self._note("close_stdin")
        if self.polite:
            self.exit_server()

    def tell(self, verb: str, **_fields: str | int) -> None:
        """Have the relay hear it, now or when it is woken."""
        self._note(f"tell {verb}")
        if self._relay_lives and not self.relay_listens:
            self._unheard.append(verb)
        elif self._relay_lives:
            self._hear(verb)

    def wake_relay(self) -> None:
        """Let a stopped relay go on."""
        self._note("wake_relay")
        if self._relay_lives and not self.stuck:
            self.relay_listens = True
            while self._unheard and self._relay_lives:
                self._hear(self._unheard.pop(0))
            self._finish()

    def kill_relay(self) -> None:
        """End the relay."""
        self._note("kill_relay")
        self.lose_relay()

    def kill_group(self) -> None:
        """End anchor and server, if the relay still pins them."""
        self._note("kill_group")
        if not self._relay_lives:
            return
        self._anchor_lives = False
        self.exit_server()
        if self.relay_listens and not self._closed:
            self._post(AnchorLost(at=anyio.current_time()))
        self._told_to_stop = True
        self._finish()

    def look_at_group(self) -> GroupLook:
        """Count anchor and server."""
        self._note("look_at_group")
        return GroupLook(int(self._anchor_lives) + int(self._server_lives), int(self._server_lives))

    def probe_group(self) -> Probe:
        """Say whether anybody lives."""
        self._note("probe_group")
        alive = self._relay_lives or self._anchor_lives or self._server_lives
        state: FactState = "contradicted" if alive else self.probe_says
        return Probe(state, "the fake says so")

    def drain(self) -> None:
        """End what came to the daemon, at once or when the test says so."""
        self._note("drain")
        if not self.drain_takes:
            self.end_drain()

    def last_look(self) -> None:
        """Post what was not noticed before."""
        self._note("last_look")
        events, self._unnoticed = self._unnoticed, []
        for event in events:
            self.post(event)

    async def scan(self) -> ScanResult:
        """Find the server if it lives."""
        self._note("scan")
        await anyio.sleep(self.scan_takes_s)
        self._note("scanned")
        return ScanResult(((SERVER, "mark"),) if self._server_lives else ())

    # The relay

    def _hear(self, verb: str) -> None:
        self._told_to_stop = self._told_to_stop or verb == message.STOP
        if verb == message.PING:
            self._post(HelperHeard(at=anyio.current_time()))
        if verb == message.RETIRE and not self._server_lives:
            self._told_to_stop = True
        self._finish()

    def _finish(self) -> None:
        """Prove that all is gone and leave, if it is and somebody wanted that."""
        ready = self._relay_lives and self.relay_listens and self._told_to_stop
        if ready and not self._server_lives and not self._closed:
            self._closed = True
            self._anchor_lives = False
            self._post(HelperHeard(at=anyio.current_time()))
            self._learn(*RECEIPT)
            self.lose_relay()

    def _note(self, call: str) -> None:
        self.did.append((anyio.current_time(), call))

    def _learn(self, *facts: FactName) -> None:
        for fact in facts:
            now = anyio.current_time()
            self._post(FactSeen(at=now, fact=fact, state="confirmed", evidence="the fake"))

    def _post(self, event: Event) -> None:
        if self._holding_back:
            self._unnoticed.append(event)
        else:
            self.post(event)
