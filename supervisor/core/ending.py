"""How the end of a server is said in a sentence: one wording for errors, status and events."""

from supervisor.core.report import Reason

UNASKED: frozenset[Reason] = frozenset(
    {"crash", "output_closed", "relay_lost", "anchor_lost", "endless_line"}
)
"""Reasons of ends that nobody had asked for: they are errors, and may be followed by a restart."""

_ASKED: dict[Reason, str] = {
    "stop": "was stopped on request",
    "restart": "was restarted on request",
    "shutdown": "was stopped because the daemon shuts down",
    "reload": "was stopped because its configuration changed",
    "idle": "was stopped because nobody had used it",
    "disconnect": "was stopped because its client left",
    "start_failed": "was stopped because it did not get ready in time",
    "daemon_lost": "was stopped because the daemon had died",
}


def how_it_ended(reason: Reason, code: int | None, signal: int | None) -> str:
    """The clause behind the server's name: `exited with code 7`.

    Args:
        reason: of its stop.
        code: its exit code, where it is known and there is one.
        signal: the signal that ended it, likewise.
    """
    if reason in _ASKED:
        return _ASKED[reason]
    if reason == "endless_line":
        return "was stopped because it wrote a line without end"
    if reason == "output_closed":
        return "closed its output while it was alive"
    if reason in {"relay_lost", "anchor_lost"}:
        return f"was ended because its {reason.removesuffix('_lost')} had died"
    if signal is not None:
        return f"was ended by signal {signal}"
    return "exited" if code is None else f"exited with code {code}"
