"""What the relay says, as events for the machine and rows for the report."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import anyio

from supervisor.core.attribution import Identity
from supervisor.core.errors import LaunchStep
from supervisor.core.report import FactName, FactState, SignalTarget
from supervisor.core.shutdown_events import AnchorLost, FactSeen, HelperHeard
from supervisor.linux.reaping import Exited
from supervisor.linux.signals import result_of
from supervisor.process.family import Family
from supervisor.relay import message


@dataclass(frozen=True, slots=True)
class Failed:
    """The launch failed: where, why, and the path concerned."""

    step: LaunchStep
    errno: int
    path: str


@dataclass(slots=True)
class Heard:
    """What a relay has said that is no event.

    Attributes:
        remaining: processes that it named shortly before the deadline.
        adopted: how many orphans its family has had.
    """

    remaining: dict[Identity, str] = field(default_factory=dict)
    adopted: int = 0


class Hearing:
    """Reads the packets of one relay; `started` is called for `hello` (None) or a failed launch."""

    def __init__(self, family: Family, started: Callable[[Failed | None], None]) -> None:
        self.heard = Heard()
        self._family = family
        self._started = started
        self._verbs: dict[str, Callable[[dict[str, str]], None]] = {
            message.HELLO: self._hello,
            message.FAILED: self._failed,
            message.EXITED: self._exited,
            message.ORPHAN: self._orphan,
            message.LEFTOVER: self._leftover,
            message.REMAINING: self._remaining,
            message.SIGNAL: self._signal,
            message.ANCHOR_LOST: self._anchor_lost,
            message.PONG: self._pong,
            message.CLOSED: self._closed,
        }

    def hear(self, packet: bytes) -> None:
        """Act on one packet; verbs of another version are ignored."""
        verb, fields = message.decode(packet)
        act = self._verbs.get(verb)
        if act is not None:
            act(fields)

    def _hello(self, fields: dict[str, str]) -> None:
        relay, anchor, server = (_pair(fields[name]) for name in ("relay", "anchor", "server"))
        self._family.hold(relay, anchor, server)
        self._started(None)

    def _failed(self, fields: dict[str, str]) -> None:
        step = cast("LaunchStep", fields["step"])
        self._learn("server_exited", "not_applicable", "it never ran")
        self._started(Failed(step, int(fields["errno"]), fields["path"]))

    def _exited(self, fields: dict[str, str]) -> None:
        exited = Exited.from_wait_status(int(fields["status"]))
        self._family.take_exit(exited)
        self._learn("server_exited", "confirmed", str(exited))

    def _orphan(self, fields: dict[str, str]) -> None:
        self.heard.adopted += 1
        self._family.remember(_identity(fields), int(fields["pgid"]), int(fields["sid"]))

    def _leftover(self, fields: dict[str, str]) -> None:
        self._orphan(fields)
        self._family.leftovers[_identity(fields)] = fields["command"]

    def _remaining(self, fields: dict[str, str]) -> None:
        self._family.remember(_identity(fields), int(fields["pgid"]), int(fields["sid"]))
        self.heard.remaining[_identity(fields)] = fields["command"]

    def _signal(self, fields: dict[str, str]) -> None:
        self._family.add_signal(
            cast("SignalTarget", fields["target"]),
            int(fields["pid"]),
            signal.Signals(int(fields["signal"])).name,
            message.from_ns(fields["at"]),
            result_of(int(fields["errno"])),
        )

    def _pong(self, _fields: dict[str, str]) -> None:
        self._family.post(HelperHeard(at=anyio.current_time()))

    def _anchor_lost(self, _fields: dict[str, str]) -> None:
        self._family.post(AnchorLost(at=anyio.current_time()))

    def _closed(self, fields: dict[str, str]) -> None:
        self._learn("closing_receipt", "confirmed", "the relay's last word")
        anchor = Exited.from_wait_status(int(fields["anchor"]))
        self._learn("anchor_exited", "confirmed", f"reaped by the relay, {anchor}")
        proved = fields["echild"] == "1" and fields["group_gone"] == "1"
        if proved:
            self._learn("descendants_gone", "confirmed", "ECHILD and ESRCH in the relay")
        else:
            self._learn("descendants_gone", "contradicted", "the relay still had children")
        if int(fields["status"]) != message.NONE:
            self._exited(fields)
        elif proved:
            # the relay has no child left, so the server is gone, though nobody saw how
            self._learn("server_exited", "confirmed", "ECHILD in the relay")
        self._family.tell(message.ACK)

    def _learn(self, fact: FactName, state: FactState, evidence: str) -> None:
        self._family.post(
            FactSeen(at=anyio.current_time(), fact=fact, state=state, evidence=evidence)
        )


def _pair(text: str) -> Identity:
    pid, _, start = text.partition("/")
    return Identity(int(pid), int(start))


def _identity(fields: dict[str, str]) -> Identity:
    return Identity(int(fields["pid"]), int(fields["start"]))
