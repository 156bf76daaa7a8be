"""What the process layer needs to start a server and to stop it: values that are already right.

`config` makes them from a file; `process` carries them out and checks nothing again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_DEADLINE_S: Final = 5.0
"""Long enough for a server that saves its state, short enough for a person who waits."""

TERM_SHARE: Final = 0.4
KILL_SHARE: Final = 0.8
"""Where SIGTERM and SIGKILL stand when only the deadline is given, as shares of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPolicy:
    """How long each stage of a stop may last, in seconds since the first request.

    `0 <= term_after_s <= kill_after_s < deadline_s`, checked where it is read.
    """

    deadline_s: float = DEFAULT_DEADLINE_S
    term_after_s: float = DEFAULT_DEADLINE_S * TERM_SHARE
    kill_after_s: float = DEFAULT_DEADLINE_S * KILL_SHARE

    @classmethod
    def from_deadline(cls, deadline_s: float) -> "StopPolicy":
        """The policy of a record that gives nothing but its deadline."""
        return cls(
            deadline_s=deadline_s,
            term_after_s=deadline_s * TERM_SHARE,
            kill_after_s=deadline_s * KILL_SHARE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One server, ready to be started.

    Attributes:
        argv: command and arguments; a command without a slash is looked up in `env["PATH"]`.
        env: the server's whole environment, without the instance mark.
        cwd: absolute working directory.
        uid: user id to run as, or None for the daemon's own.
        gid: group id to run as, or None for the daemon's own.
        groups: supplementary groups when `uid` or `gid` is given.
        no_new_privileges: whether set-uid programs lose their power in this family.
        secrets: values that no log, report or error may show (they are masked).
    """

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    cwd: str = "/"
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    no_new_privileges: bool = False
    stop: StopPolicy = StopPolicy()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
