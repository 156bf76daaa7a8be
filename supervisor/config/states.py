"""What of a server decides about a reload: its fingerprint, and what applies while it runs.

Neither holds a line number, an order or a spelling, so that reformatting a file, moving a server
to a drop-in or writing a default down changes nothing. Its problems, its warnings and its record
for people do hold them: take those over in any case.
"""

from dataclasses import dataclass, field

from supervisor.config.models import Protocol, Scope, Server
from supervisor.core.fingerprint import connection_fingerprint
from supervisor.core.launch import StopPolicy
from supervisor.core.limits import CallLimits, RestartPolicy
from supervisor.core.reload import ServerState
from supervisor.core.tool_filter import ToolFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """All that applies to a server without a restart; `secrets` are those to mask."""

    enabled: bool
    transport: str
    restart: RestartPolicy
    calls: CallLimits
    idle_s: float | None
    autostart: bool
    scope: Scope
    protocol: Protocol
    parallel: bool
    tool_filter: ToolFilter
    cwd_given: bool
    stop: StopPolicy | None
    secrets: frozenset[str] = field(repr=False)


def state_of(server: Server, key: bytes) -> ServerState:
    """The state that `plan_reload` compares.

    Args:
        server: as read from the files.
        key: for the fingerprint, 32 random bytes; the same for both sides of a comparison.

    Returns:
        A state without fingerprint for a server that is disabled or cannot be started. The
        fingerprint is of the record: an instance in a client's directory has another one.
    """
    launch = server.launch
    startable = launch if server.enabled else None
    return ServerState(
        fingerprint=None
        if startable is None
        else connection_fingerprint(startable, server.protocol, key, scope=server.scope),
        settings=Tuning(
            enabled=server.enabled,
            transport=server.transport,
            restart=server.restart,
            calls=server.calls,
            idle_s=server.idle_s,
            autostart=server.autostart,
            scope=server.scope,
            protocol=server.protocol,
            parallel=server.parallel,
            tool_filter=server.tool_filter,
            cwd_given=server.cwd_given,
            stop=None if launch is None else launch.stop,
            secrets=frozenset() if launch is None else launch.secrets,
        ),
    )
