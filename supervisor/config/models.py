"""What a configuration file says, as values that the inside takes without checking again."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.core.ids import ServerName
from supervisor.core.launch import LaunchSpec


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
    """

    max_instances: int = 256
    start_concurrency: int = field(default_factory=count_processors)
    shutdown_timeout_s: float | None = None
    socket_group: str | None = None
    path: str | None = None


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
    """

    name: ServerName
    enabled: bool
    transport: str
    command: str
    launch: LaunchSpec | None = field(repr=False)
    cwd_given: bool
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A whole file; `file` is None when there was none. Servers are sorted by name."""

    file: str | None
    servers: Mapping[ServerName, Server]
    settings: Settings
    warnings: tuple[str, ...]
