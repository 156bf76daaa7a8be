"""What a configuration file says, as values that the inside takes without checking again."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from supervisor.core.ids import ServerName
from supervisor.core.launch import LaunchSpec
from supervisor.core.limits import (
    DEFAULT_CLIENT_QUEUE_BYTES,
    DEFAULT_LINE_BYTES,
    DEFAULT_SESSION_IDLE_S,
    CallLimits,
    RestartPolicy,
)
from supervisor.core.tool_filter import ToolFilter

Scope = Literal["session", "shared"]
Protocol = Literal["auto", "legacy", "modern"]


def count_processors() -> int:
    """How many processors this machine has; 1 where that is unknown."""
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The `supervisor` block.

    Attributes:
        max_instances: how many families may exist at a time.
        start_concurrency: how many servers may be starting at a time.
        shutdown_timeout_s: seconds for the whole shutdown; None: the largest deadline in use.
        socket_group: name of the group that may use the sockets, or None.
        path: `PATH` of every server, or None for the daemon's and `~/.local/bin`.
        session_idle_s: seconds without use after which a session is reclaimed; 0.0: never.
        max_line_bytes: the longest line of a server whose record gives none of its own.
        max_client_queue_bytes: what a client of a shared instance may leave unread.
        metrics_listen: loopback address and port for `/metrics`, or None for no listener.
    """

    max_instances: int = 256
    start_concurrency: int = field(default_factory=count_processors)
    shutdown_timeout_s: float | None = None
    socket_group: str | None = None
    path: str | None = None
    session_idle_s: float = DEFAULT_SESSION_IDLE_S
    max_line_bytes: int = DEFAULT_LINE_BYTES
    max_client_queue_bytes: int = DEFAULT_CLIENT_QUEUE_BYTES
    metrics_listen: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One record of `mcpServers`.

    Attributes:
        name: the key, as typed.
        enabled: whether it may be started at all.
        transport: `stdio`, or one that this release does not speak (see `problems`).
        command: for people: as written, with references unresolved and secrets hidden.
        launch: how to start it; None when there are problems.
        cwd_given: whether the record names a working directory (else a client's may be used).
        problems: sentences: why this one server cannot be started. The others are not affected.
        restart: when it is started again after its end.
        calls: what bounds its calls.
        idle_s: its own seconds without use; 0.0: never reclaimed; None: the session's.
        autostart: whether it starts with the daemon.
        scope: whether each session has its own instance or all share one.
        protocol: which revisions are offered to it.
        parallel: whether calls of its tools may run side by side, whatever they do.
        tool_filter: which of its tools are offered.
        shown: the record as written, with references unresolved and secrets hidden: may be shown
            to anybody. Keys that nothing knows are not in it.
    """

    name: ServerName
    enabled: bool
    transport: str
    command: str
    launch: LaunchSpec | None = field(repr=False)
    cwd_given: bool
    problems: tuple[str, ...]
    restart: RestartPolicy
    calls: CallLimits
    idle_s: float | None
    autostart: bool
    scope: Scope
    protocol: Protocol
    parallel: bool = False
    tool_filter: ToolFilter = field(default_factory=ToolFilter)
    shown: Mapping[str, JsonValue] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The file and its drop-ins together; servers are sorted by name.

    Attributes:
        file: path of the main file; None when there is none.
        files: every file that was read: the main one first, then the drop-ins by name.
    """

    file: str | None
    servers: Mapping[ServerName, Server]
    settings: Settings
    warnings: tuple[str, ...]
    files: tuple[str, ...] = ()
