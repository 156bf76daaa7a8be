"""Decides what is idle: nothing is while it is used, and afterwards it has its idle time in full.

Idle time runs from the last use and from the last release, whichever is later, so that the end of a
long call does not make its runtime idle at once. A lease counts a caller that holds on to a key, a
call in flight, or an open task: under any of them nothing idles. 0 means that a key never idles.

Keys are whatever the caller numbers: sessions, or servers of a session. Instants are monotonic
seconds and come in with the call.

Source: design section 10.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Generic, TypeVar

NEVER: Final = 0.0
"""The idle time, in seconds, of what is never reclaimed."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The use of one key.

    Attributes:
        idle_s: how long it may lie unused; `NEVER`: for ever.
        active: uses that have not ended.
        touched_at: the last use or release.
    """

    idle_s: float
    active: int = 0
    touched_at: float

    @property
    def expires_at(self) -> float | None:
        """When it counts as idle, as things stand; None: not without a further event."""
        if self.active or self.idle_s == NEVER:
            return None
        return self.touched_at + self.idle_s


@dataclass(frozen=True)  # no slots: `Leases[str]()` notes its type on the object
class Leases(Generic[K]):
    """All keys in use or idle; the functions below return a new one."""

    held: Mapping[K, Lease] = field(default_factory=lambda: MappingProxyType({}))

    def get(self, key: K) -> Lease | None:
        """The use of `key`, or None: it is unknown."""
        return self.held.get(key)


def opened(leases: Leases[K], key: K, *, idle_s: float, now: float) -> Leases[K]:
    """`key` exists, or its idle time has changed; that is a use of it as well.

    Args:
        leases: before.
        key: of a session or server.
        idle_s: seconds, or `NEVER`.
        now: this instant.
    """
    known = leases.held.get(key)
    fresh = Lease(idle_s=idle_s, touched_at=now) if known is None else replace(known, idle_s=idle_s)
    return _with(leases, key, _touch(fresh, now))


def used(leases: Leases[K], key: K, now: float) -> Leases[K]:
    """`key` was used for a moment; an unknown key is left alone."""
    known = leases.held.get(key)
    return leases if known is None else _with(leases, key, _touch(known, now))


def acquired(leases: Leases[K], key: K, now: float) -> Leases[K]:
    """A use began that lasts: a call, a task, a caller.

    Raises:
        KeyError: the key is unknown; whoever uses something has opened it.
    """
    known = leases.held[key]
    return _with(leases, key, _touch(replace(known, active=known.active + 1), now))


def released(leases: Leases[K], key: K, now: float) -> Leases[K]:
    """Such a use ended. A key that was closed meanwhile is left alone."""
    known = leases.held.get(key)
    if known is None:
        return leases
    return _with(leases, key, _touch(replace(known, active=max(0, known.active - 1)), now))


def closed(leases: Leases[K], key: K) -> Leases[K]:
    """`key` exists no more."""
    return Leases(MappingProxyType({k: lease for k, lease in leases.held.items() if k != key}))


def idle(leases: Leases[K], now: float) -> tuple[K, ...]:
    """The keys whose idle time is over at `now`, the longest unused first."""
    over = [
        (expires_at, key)
        for key, lease in leases.held.items()
        if (expires_at := lease.expires_at) is not None and expires_at <= now
    ]
    return tuple(key for _, key in sorted(over, key=lambda pair: pair[0]))


def next_expiry(leases: Leases[K]) -> float | None:
    """When `idle` may have an answer that it has not now: for a timer; None: not by time alone."""
    return min(
        (at for lease in leases.held.values() if (at := lease.expires_at) is not None),
        default=None,
    )


def _touch(lease: Lease, now: float) -> Lease:
    return replace(lease, touched_at=max(lease.touched_at, now))


def _with(leases: Leases[K], key: K, lease: Lease) -> Leases[K]:
    return Leases(MappingProxyType({**leases.held, key: lease}))
