"""What the shell of a stop needs of the outside, small enough to be faked.

`Family` is the real one; the tests' fake passes the same contract test.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from supervisor.core import stages
from supervisor.core.attribution import Identity
from supervisor.core.report import FactState
from supervisor.core.shutdown_events import Event

Post = Callable[[Event], None]
"""Hands one event to the instance's shell; never blocks, callable from any callback."""


@dataclass(frozen=True, slots=True)
class GroupLook:
    """Members of the group that can still run, and those of them that are not the anchor."""

    living: int
    beyond_anchor: int


@dataclass(frozen=True, slots=True)
class Probe:
    """What the probe of group and identities said."""

    state: FactState
    evidence: str


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Living processes of the family, helpers left out; each with why it counts."""

    found: tuple[tuple[Identity, str], ...]


class FamilyPort(Protocol):
    """The hands of a stop: each method acts at once and waits for nothing, `scan` excepted."""

    schedule: stages.Schedule | None
    """The instants of the stop, set by the shell before it acts on them."""

    def close_stdin(self) -> None:
        """Close the server's stdin and let its output be read and discarded to the end."""

    def tell(self, verb: str, **fields: str | int) -> None:
        """Send one message to the relay; a relay that is gone is noticed elsewhere."""

    def wake_relay(self) -> None:
        """SIGCONT to the relay."""

    def kill_relay(self) -> None:
        """SIGKILL to the relay through its pidfd."""

    def kill_group(self) -> None:
        """SIGKILL to the group, if its id is still pinned."""

    def look_at_group(self) -> GroupLook:
        """Count the group."""

    def probe_group(self) -> Probe:
        """Ask the kernel for the group and psutil for every known identity."""

    def drain(self) -> None:
        """Begin to end what came to the daemon, on the instance's own schedule."""

    def last_look(self) -> None:
        """Post every event that the kernel has ready, without waiting."""

    async def scan(self) -> ScanResult:
        """Look through all processes; shared with other families that ask now."""
