"""What a relay is told to start: the content of the spec memfd.

No secret stands in a helper's arguments or environment; this file is anonymous memory that the
anchor's child reads and that nobody else keeps.

Fields are separated by NUL, which no argument, path or environment entry can contain. Imports
nothing: the daemon writes what the relay reads.
"""

_NUMBERS = (
    "argc",
    "envc",
    "uid",
    "gid",
    "groupc",
    "no_new_privileges",
    "oom_score_adj",
    "nofile_soft",
    "nofile_hard",
    "umask",
    "term_after_us",
    "kill_after_us",
    "deadline_us",
)


class LaunchOrder:
    """One server to start.

    Attributes:
        argv: command and arguments, bytes as the kernel takes them.
        env: `NAME=value` entries.
        cwd: working directory.
        uid: user id, or -1 for the daemon's own; `gid` likewise.
        groups: supplementary groups, set only together with a uid or gid.
        no_new_privileges: 1 to set PR_SET_NO_NEW_PRIVS.
        oom_score_adj: for the server, -1001 to leave it.
        nofile_soft: RLIMIT_NOFILE of the server, -1 to leave it; `nofile_hard` likewise.
        umask: of the server, -1 to leave it.
        term_after_us: span of the stop that the relay runs when the daemon is gone, microseconds;
            `kill_after_us` and `deadline_us` likewise.
    """

    def __init__(  # noqa: PLR0913 - a record of what is set at a launch, all by name
        self,
        *,
        argv: "list[bytes]",
        env: "list[bytes]",
        cwd: bytes,
        uid: int = -1,
        gid: int = -1,
        groups: "list[int]",
        no_new_privileges: int = 0,
        oom_score_adj: int = -1001,
        nofile_soft: int = -1,
        nofile_hard: int = -1,
        umask: int = -1,
        term_after_us: int,
        kill_after_us: int,
        deadline_us: int,
    ) -> None:
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.uid = uid
        self.gid = gid
        self.groups = groups
        self.no_new_privileges = no_new_privileges
        self.oom_score_adj = oom_score_adj
        self.nofile_soft = nofile_soft
        self.nofile_hard = nofile_hard
        self.umask = umask
        self.term_after_us = term_after_us
        self.kill_after_us = kill_after_us
        self.deadline_us = deadline_us

    def pack(self) -> bytes:
        """The memfd's content."""
        numbers = {**self.__dict__, "argc": len(self.argv), "envc": len(self.env)}
        numbers["groupc"] = len(self.groups)
        head = b" ".join(b"%d" % numbers[name] for name in _NUMBERS)
        groups = b" ".join(b"%d" % group for group in self.groups)
        return b"\0".join((head, groups, self.cwd, *self.argv, *self.env))


def unpack(content: bytes) -> LaunchOrder:
    """The order that was packed."""
    head, groups, cwd, *rest = content.split(b"\0")
    numbers = dict(zip(_NUMBERS, map(int, head.split()), strict=True))
    argc, envc = numbers.pop("argc"), numbers.pop("envc")
    del numbers["groupc"]
    return LaunchOrder(
        argv=rest[:argc],
        env=rest[argc : argc + envc],
        cwd=cwd,
        groups=[int(group) for group in groups.split()],
        **numbers,
    )
