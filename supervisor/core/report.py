"""The cleanup report: one value for the API, the event log, the command line and its exit code.

The field names are the JSON keys of design section 6; `dataclasses.asdict` is the JSON body.
"""

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Literal

FactName = Literal[
    "server_exited",
    "relay_exited",
    "descendants_gone",
    "group_gone",
    "stdout_eof",
    "stderr_eof",
    "lineage_eof",
    "control_closed",
    "closing_receipt",
    "anchor_exited",
    "scan_clean",
]
FactState = Literal["confirmed", "missing", "contradicted", "not_applicable"]
Outcome = Literal["confirmed", "unconfirmed"]
SignalTarget = Literal["group", "server", "anchor", "relay", "descendant", "orphan"]
SignalOutcome = Literal["sent", "gone", "refused"]
Reason = Literal[
    "stop",
    "restart",
    "shutdown",
    "crash",
    "start_failed",
    "disconnect",
    "output_closed",
    "endless_line",
    "relay_lost",
    "anchor_lost",
    "daemon_lost",
    "idle",
    "reload",
]


class Verdict(Enum):
    """How a stop was judged; the value is the report's `outcome`."""

    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that is known or missing; `at_s` counts from the request, None while missing."""

    name: FactName
    state: FactState
    at_s: float | None
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRecord:
    """One signal that was sent, found nobody, or was refused with `errno`."""

    target: SignalTarget
    pid: int
    signal: str
    at_s: float
    result: SignalOutcome
    errno: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """A process that is known to be alive, and why it counts as this family's."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    started_at_utc: str
    command: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A process that outlived the server and was ended."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How the server ended: one of the two, or neither when nobody could wait for it."""

    code: int | None
    signal: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What a stop did and what it can prove, in the shape of design section 6."""

    instance: str
    server: str
    session: str | None
    reason: Reason
    outcome: Outcome
    deadline_s: float
    deadline_shortened_by: str | None
    elapsed_s: float
    requested_at_utc: str
    facts: tuple[Fact, ...]
    missing: tuple[FactName, ...]
    signals: tuple[SignalRecord, ...]
    failed_signals: tuple[SignalRecord, ...]
    survivors: tuple[Survivor, ...]
    unattributed: tuple[Survivor, ...]
    leftovers_ended: tuple[Leftover, ...]
    exit: ExitStatus
    last_stderr: tuple[str, ...]
    amended_at_utc: str | None
    """When an unconfirmed cleanup was confirmed after all, or given up with `release`."""

    released: bool
    """Whether an operator gave the instance up; its outcome then stays what it was."""

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return asdict(self)
