"""Decides whose an orphan is that came to the daemon.

While a relay lives it is the nearest subreaper, so nothing of its family can reach the daemon.
What comes after its death is attributed by, in this order: the mark in its environment, its
identity if a helper had reported it, its session, its group. What has none of these is reaped
when it ends, never signalled, and named as unattributed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from supervisor.core.ids import InstanceId


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that cannot be confused: its pid and its start in clock ticks since boot."""

    pid: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A child of the daemon that it did not start; `mark` is None where it cannot be read."""

    identity: Identity
    pgid: int
    sid: int
    mark: str | None
    zombie: bool
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an instance that drains knows of its own.

    Attributes:
        sessions: sessions and groups that it made: those of its anchor, its relay and of every
            reported descendant that leads one.
        identities: every process that was ever reported for it.
        strangers: children that the daemon had before the relay was lost; not of this family.
    """

    instance: InstanceId
    sessions: frozenset[int]
    identities: frozenset[Identity]
    strangers: frozenset[Identity]


@dataclass(frozen=True, slots=True)
class Attributed:
    """Which orphans are whose, and which are nobody's that we know."""

    owned: dict[InstanceId, tuple[Orphan, ...]]
    unattributed: dict[InstanceId, tuple[Orphan, ...]]
    """Per claim: what may be of that family, since it was not there before."""


def attribute(orphans: Iterable[Orphan], claims: Iterable[Claim]) -> Attributed:
    """Give every orphan to the claim that it belongs to.

    An orphan that nobody can claim holds the drain of every claim open for which it may be one
    of the family: it cannot be signalled, but it cannot be ignored either.
    """
    claims = tuple(claims)
    owned: dict[InstanceId, list[Orphan]] = {claim.instance: [] for claim in claims}
    open_: dict[InstanceId, list[Orphan]] = {claim.instance: [] for claim in claims}
    for orphan in orphans:
        owner = _owner(orphan, claims)
        if owner is not None:
            owned[owner].append(orphan)
        elif not orphan.zombie:
            for claim in claims:
                if orphan.identity not in claim.strangers:
                    open_[claim.instance].append(orphan)
    return Attributed(
        {instance: tuple(found) for instance, found in owned.items()},
        {instance: tuple(found) for instance, found in open_.items()},
    )


def _owner(orphan: Orphan, claims: tuple[Claim, ...]) -> InstanceId | None:
    for claim in claims:
        if orphan.mark == claim.instance:
            return claim.instance
    for claim in claims:
        if orphan.identity in claim.identities:
            return claim.instance
    for claim in claims:
        if {orphan.sid, orphan.pgid} & claim.sessions:
            return claim.instance
    return None
