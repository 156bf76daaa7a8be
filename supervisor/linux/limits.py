"""Resource limits of the daemon, and what its children get instead.

Source: getrlimit(2), pipe(7), proc(5).
"""

import os
import resource
from typing import Final

SERVER_OOM_STEP: Final = 200
"""How much sooner than the daemon a server is taken when memory runs out."""

OOM_MAX: Final = 1000


def raise_descriptors() -> tuple[int, int]:
    """Lift the soft limit of open files to the hard one; return both as they were."""
    original = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (original[1], original[1]))
    return original


def descriptors() -> tuple[int, int]:
    """The soft limit of open files, and how many are open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft, len(os.listdir("/proc/self/fd"))


def server_oom_score() -> int:
    """The oom_score_adj of a server: above the daemon's own."""
    try:
        with open("/proc/self/oom_score_adj", encoding="ascii") as file:
            own = int(file.read())
    except (OSError, ValueError):
        own = 0
    return min(OOM_MAX, own + SERVER_OOM_STEP)
