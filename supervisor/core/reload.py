"""Decides what a reload moves: only what differs between two configurations.

Every server that stands in one of the two is in exactly one group of the plan. Servers that are
unchanged keep their processes, their handshakes and their calls. The plan says nothing about
when: calls in flight on what is replaced end first, and that is for its executor.
Source: design sections 10 and 11.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from supervisor.core.ids import ServerName

Move = Literal["unchanged", "changed", "retuned", "added", "removed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """What of one server decides about a reload.

    Attributes:
        fingerprint: of its connection; None when it cannot or may not be started.
        settings: whatever applies to a running server; compared with `==` and never shown.
    """

    fingerprint: str | None
    settings: object = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPlan:
    """What happens to each server; every group is sorted by name.

    Attributes:
        unchanged: nothing.
        changed: processes that run must be replaced, or ended where it may not run any more.
        retuned: new values apply without a restart.
        added: new in the configuration.
        removed: no longer in it; processes that run must be ended.
    """

    unchanged: tuple[ServerName, ...]
    changed: tuple[ServerName, ...]
    retuned: tuple[ServerName, ...]
    added: tuple[ServerName, ...]
    removed: tuple[ServerName, ...]


def plan_reload(
    before: Mapping[ServerName, ServerState], after: Mapping[ServerName, ServerState]
) -> ReloadPlan:
    """Compare the configuration that is in force with the one that was read."""
    moves = {name: _move(before.get(name), after.get(name)) for name in before.keys() | after}

    def group(wanted: Move) -> tuple[ServerName, ...]:
        return tuple(sorted(name for name, move in moves.items() if move == wanted))

    return ReloadPlan(
        unchanged=group("unchanged"),
        changed=group("changed"),
        retuned=group("retuned"),
        added=group("added"),
        removed=group("removed"),
    )


def _move(old: ServerState | None, new: ServerState | None) -> Move:
    if old is None:
        return "added"
    if new is None:
        return "removed"
    if old.fingerprint != new.fingerprint:
        return "changed"
    return "unchanged" if old.settings == new.settings else "retuned"
