"""What must be known before a family counts as gone, and what is known so far.

Facts are only ever learned from the kernel or from a receipt; nothing is assumed from silence, and
no fact stands in for another, except where `not_applicable` says why it is not needed.

Source: design section 6; the reasons for each fact are in `supervisor/decisions/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from supervisor.core.report import Fact, FactName, FactState

FACTS: Final[tuple[FactName, ...]] = get_args(FactName)
"""Every fact, in the order of the report."""

SETTLED: Final[frozenset[FactState]] = frozenset({"confirmed", "not_applicable"})
"""The states that leave nothing to be known."""

PIPES: Final[tuple[FactName, ...]] = ("stdout_eof", "stderr_eof", "lineage_eof")
"""The end of every pipe that a descendant could still hold."""


@dataclass(frozen=True, slots=True)
class Known:
    """The state of one fact; `at` is the monotonic instant at which it was learned."""

    state: FactState
    at: float
    evidence: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about the end of one family."""

    known: Mapping[FactName, Known] = field(default_factory=dict)

    def learn(self, name: FactName, state: FactState, at: float, evidence: str) -> "Evidence":
        """Add what was learned; what is confirmed stays as it was first seen."""
        before = self.known.get(name)
        if before is not None and before.state in {"confirmed", state}:
            return self
        return Evidence({**self.known, name: Known(state, at, evidence)})

    def state(self, name: FactName) -> FactState:
        """The state of one fact."""
        known = self.known.get(name)
        return "missing" if known is None else known.state

    def has(self, *names: FactName) -> bool:
        """Whether all these facts are confirmed or not needed."""
        known = self.known
        return all(name in known and known[name].state in SETTLED for name in names)

    def at(self, name: FactName) -> float | None:
        """When the fact was confirmed, or None."""
        known = self.known.get(name)
        return known.at if known is not None and known.state == "confirmed" else None

    @property
    def missing(self) -> tuple[FactName, ...]:
        """What is neither confirmed nor unneeded, contradictions included."""
        known = self.known
        return tuple(f for f in FACTS if f not in known or known[f].state not in SETTLED)

    def as_facts(self, requested_at: float) -> tuple[Fact, ...]:
        """The facts as the report shows them: seconds since the request, never negative."""
        return tuple(self._fact(name, requested_at) for name in FACTS)

    def _fact(self, name: FactName, requested_at: float) -> Fact:
        known = self.known.get(name)
        if known is None:
            return Fact(name=name, state="missing", at_s=None, evidence="")
        since_s = round(max(0.0, known.at - requested_at), 6)
        return Fact(
            name=name,
            state=known.state,
            at_s=since_s if known.state == "confirmed" else None,
            evidence=known.evidence,
        )
