"""Finds the daemon's places for all its clients, the shim included; loads nothing to speak of."""

import os

from supervisor.core.places import Places, find_places
from supervisor.linux.runtime_home import with_runtime_home


def home() -> str:
    """The home directory from the passwd entry; HOME only where there is no entry."""
    import pwd  # noqa: PLC0415 - only who is not told where the folders are pays for the look-up

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return os.environ.get("HOME", "/")


def locate(
    config: "str | None" = None, state_dir: "str | None" = None, runtime_dir: "str | None" = None
) -> Places:
    """The places by flags, environment and user; nothing is created or looked at."""
    uid = os.geteuid()
    where = "" if uid == 0 else home()
    return find_places(
        with_runtime_home(dict(os.environ), uid),
        uid,
        where,
        config=config,
        state_dir=state_dir,
        runtime_dir=runtime_dir,
    )
