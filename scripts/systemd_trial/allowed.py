"""Whether this machine allows a nested systemd, and what the nested one needs of it."""

import os
import shutil
import stat
import subprocess  # noqa: TID251 - programs are run as an operator runs them
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

REPO: Final = Path(__file__).resolve().parents[2]
SYSTEMD: Final = Path("/lib/systemd/systemd")
TOOLS: Final = (
    "mount",
    "nsenter",
    "setpriv",
    "systemctl",
    "systemd-sysusers",
    "systemd-tmpfiles",
    "unshare",
)
NAMESPACES: Final = ("--pid", "--mount", "--cgroup", "--uts", "--ipc", "--net")

COMMAND_S: Final = 10.0
"""For one command; a bound, not an expectation."""

MANY_USERS: Final = 65536
"""Root, nobody, and the account of the service with a number that sysusers chooses."""

MASKED: Final = ("root", "home", "tmp")
"""Top directories that are fresh inside; only the way to what is needed is made again."""


class NotAllowedError(Exception):
    """This machine does not allow a trial; the text says why."""


class TrialError(Exception):
    """The trial itself went wrong; the text says how."""


def find_cgroup() -> Path:
    """Our own cgroup in the v2 hierarchy, below which a nested systemd may have another one.

    Raises:
        NotAllowedError: something that a nested systemd needs is not to be had.
    """
    cgroup = _own_cgroup()
    refusals = (
        ("only root can make the namespaces of a system service", os.geteuid() != 0),
        ("this user namespace has no second user", _users() < MANY_USERS),
        (f"systemd is not installed ({SYSTEMD} is missing)", not SYSTEMD.exists()),
        *((f"{tool} is not installed", shutil.which(tool) is None) for tool in TOOLS),
        ("there is no cgroup v2 that may be divided", not os.access(cgroup, os.W_OK)),
    )
    reason = next((reason for reason, refused in refusals if refused), None)
    reason = reason or _unreadable() or _no_namespaces()
    if reason is not None:
        raise NotAllowedError(reason)
    return cgroup


def _no_namespaces() -> str | None:
    """What becoming PID 1 needs, tried out."""
    mounts = "mount -t proc proc /proc && mount -t cgroup2 cgroup2 /sys/fs/cgroup"
    inner = ["--propagation=private", "sh", "-c", mounts]
    tried = run(["unshare", "--fork", "--kill-child=KILL", *NAMESPACES, *inner])
    complaint = " ".join(tried.stderr.split())
    return None if tried.returncode == 0 else f"namespaces cannot be had: {complaint}"


def _unreadable() -> str | None:
    """A directory that would keep the service's user from the programs."""
    for path in needed():
        for directory in (path, *path.parents):
            masked = directory.parts[1:2] and directory.parts[1] in MASKED and directory != path
            if not masked and directory.stat().st_mode & stat.S_IXOTH == 0:
                return f"another user cannot enter {directory}, where the programs are"
    return None


def needed() -> list[Path]:
    """The directories that the daemon's program is made of."""
    own = Path(sys.executable).resolve().parents[1]
    found = {REPO, Path(sys.prefix).absolute(), Path(sys.base_prefix).absolute(), own}
    return sorted(path for path in found if path not in (Path("/"), Path("/usr")))


def _users() -> int:
    """How many user ids there are. Source: user_namespaces(7), uid_map."""
    return sum(int(line.split()[2]) for line in read(Path("/proc/self/uid_map")).splitlines())


def _own_cgroup() -> Path:
    """Where we are; a path that does not exist where there is no such hierarchy."""
    mounts = (line.split() for line in read(Path("/proc/self/mountinfo")).splitlines())
    points = [fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2"]
    lines = read(Path("/proc/self/cgroup")).splitlines()
    own = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    return Path(points[0], own[0]) if points and own else Path("/nonexistent")


def run(argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end.

    Raises:
        TrialError: there was none in time.
    """
    try:
        return subprocess.run(  # noqa: S603 - our own commands
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
    except subprocess.TimeoutExpired as error:
        message = f"`{' '.join(argv)}` was not done after {COMMAND_S:g} s"
        raise TrialError(message) from error


def read(file: Path) -> str:
    """A file of the kernel's, empty when what it tells of is gone."""
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""
