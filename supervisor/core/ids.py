"""The identifiers that cross module borders, each a type of its own.

A bare `str` or `int` never crosses a module: mixing up a session and a server name, or a process
id and a group id, is then a type error and not a signal to a stranger.
"""

import re
from typing import Final, NewType

ServerName = NewType("ServerName", str)
"""A key of `mcpServers`, as typed in the configuration."""

SessionKey = NewType("SessionKey", str)
"""Chosen by the client: `[A-Za-z0-9._:@-]{1,128}`."""

InstanceId = NewType("InstanceId", str)
"""One family of processes: 16 lower-case hexadecimal digits, never reused."""

Pid = NewType("Pid", int)
"""A process id in the daemon's pid namespace."""

Pgid = NewType("Pgid", int)
"""A process group id: the pid of the anchor that leads and pins the group."""

DEFAULT_SESSION: Final = SessionKey("default")
"""The session of `mcpctl start NAME` without `--session`."""

SHARED: Final = SessionKey("*")
"""Stands for all sessions, where they share one instance; no client can choose this key."""

INSTANCE_MARK: Final = "MCP_SUPERVISOR_INSTANCE"
"""The environment variable that every server carries, with its instance id as value."""

_SESSION_KEY: Final = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
_INSTANCE_ID: Final = re.compile(r"[0-9a-f]{16}")


def is_session_key(text: str) -> bool:
    """Whether `text` may name a session."""
    return _SESSION_KEY.fullmatch(text) is not None


def is_instance_id(text: str) -> bool:
    """Whether `text` has the form of an instance id (and so is safe in a file name)."""
    return _INSTANCE_ID.fullmatch(text) is not None
