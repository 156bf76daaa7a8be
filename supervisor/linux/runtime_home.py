"""Where a user's sockets go when the environment does not say; loads nothing, for the shim.

MCP clients start their servers with a small environment of their own, mostly without
XDG_RUNTIME_DIR: without a second look they would search for the daemon in another place than the
one where a login session has started it.

Source: pam_systemd(8): `/run/user/<uid>`, made at login, mode 0700.
"""

import os


def with_runtime_home(environ: "dict[str, str]", uid: int) -> "dict[str, str]":
    """The environment with XDG_RUNTIME_DIR filled in, if this user's directory is there."""
    directory = f"/run/user/{uid}"
    if "XDG_RUNTIME_DIR" in environ:
        return environ
    try:
        status = os.stat(directory)
    except OSError:
        return environ
    if status.st_uid != uid:
        return environ
    return {**environ, "XDG_RUNTIME_DIR": directory}
