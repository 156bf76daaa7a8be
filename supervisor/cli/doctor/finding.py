"""One thing that doctor has to say."""

from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]

Check = Literal[
    "configuration",
    "server",
    "launch",
    "stdout",
    "secrets",
    "deadline",
    "daemon",
    "cleanup",
    "folders",
    "sockets",
    "pipes",
    "descriptors",
    "kernel",
    "installation",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sentence, how bad it is, and the way out.

    Attributes:
        level: `error`: something does not work; `warning`: something may not.
        check: what was looked at; stable.
        server: the server concerned, or None for the machine or the daemon.
        message: what was found.
        hint: what to do about it; None where nothing is to be done.
    """

    level: Level
    check: Check
    server: str | None
    message: str
    hint: str | None = None

    def as_json(self) -> dict[str, str | None]:
        """The finding as plain JSON values."""
        return asdict(self)


def is_ok(findings: list[Finding]) -> bool:
    """Whether nothing is an error; warnings do not count."""
    return all(finding.level != "error" for finding in findings)
