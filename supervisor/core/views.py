"""What the API shows of the daemon: snapshots, never live objects. Field names are JSON keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from supervisor.core.report import CleanupReport, ExitStatus, Outcome

InstanceState = Literal["starting", "alive", "ready", "stopping", "unconfirmed"]
"""`alive`: the process exists; `ready`: it has answered a handshake."""

ServerState = Literal[
    "idle", "starting", "alive", "ready", "stopping", "backoff", "failed", "unconfirmed", "disabled"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopView:
    """A stop under way: its stage, and the seconds left until its deadline (never negative)."""

    stage: str
    deadline_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """One family of processes as it is now; pids are None before `hello`.

    `stray_lines` counts lines on stdout that were no JSON-RPC; the first few are shown.
    """

    id: str
    server: str
    session: str | None
    state: InstanceState
    pid: int | None
    pgid: int | None
    relay_pid: int | None
    anchor_pid: int | None
    started_at_utc: str
    uptime_s: float
    protocol_version: str | None
    clients: int
    calls_in_flight: int
    stop: StopView | None
    quarantined: bool
    stderr_tail: tuple[str, ...]
    stray_lines: int = 0
    first_stray_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """One configured server; `error` is the sentence of its last failed start or its bad record.

    `exits` counts the ends that nobody had asked for, `next_start_in_s` the seconds until it is
    started again (None: it is not).
    """

    name: str
    state: ServerState
    transport: str
    command: str
    instances: tuple[str, ...]
    error: str | None
    exits: int = 0
    last_exit: ExitStatus | None = None
    next_start_in_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonView:
    """The daemon itself; `config_files` are the main file, where there is one, and the drop-ins."""

    pid: int
    version: str
    run: str
    started_at_utc: str
    uptime_s: float
    stopping: bool
    config_file: str | None
    runtime_dir: str
    state_dir: str
    fork_server_pid: int | None
    config_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """Starts that run now and starts that wait for their turn."""

    starting: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsView:
    """The limits that bound this daemon; descriptors are the soft limit and what is open."""

    max_instances: int
    instances: int
    start_concurrency: int
    descriptors: int
    descriptors_open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionServerView:
    """One server of a session: its state there, as it was observed."""

    name: str
    state: ServerState


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One session and the instances that it holds.

    `fingerprint` is null for a session that only clients of single servers use;
    `idle_timeout_s` for one that is never forgotten.
    """

    key: str
    instances: tuple[str, ...]
    fingerprint: str | None = None
    servers: tuple[SessionServerView, ...] = ()
    idle_timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAnswer:
    """`PUT /v1/sessions/{key}`: `reused` when nothing has changed for the session's clients."""

    key: str
    fingerprint: str
    reused: bool
    servers: tuple[SessionServerView, ...]
    diagnostics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsView:
    """`GET /v1/sessions/{key}/tools`: items as the servers gave them, but for their full names."""

    tools: tuple[Mapping[str, JsonValue], ...]
    diagnostics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeView:
    """`POST /v1/servers/{name}/probe`: what a server answered to those who would use it.

    Counts of what it lists; null where it does not offer such a thing.
    """

    server: str
    ok: bool
    error: str | None
    protocol_version: str | None
    how: str | None
    server_info: Mapping[str, JsonValue] | None
    tools: int | None
    prompts: int | None
    resources: int | None
    diagnostics: tuple[str, ...]
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusView:
    """`GET /v1/status`."""

    daemon: DaemonView
    servers: tuple[ServerView, ...]
    sessions: tuple[SessionView, ...]
    instances: tuple[InstanceView, ...]
    queue: QueueView
    limits: LimitsView


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAnswer:
    """`started` is false when the instance was there already."""

    instance: InstanceView
    started: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAnswer:
    """One report for every instance that was stopped, sorted by server and instance id."""

    outcome: Outcome | Literal["nothing_running"]
    reports: tuple[CleanupReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartAnswer:
    """The stop, then the new instance; None when the stop was not confirmed."""

    outcome: Outcome | Literal["nothing_running"]
    reports: tuple[CleanupReport, ...]
    instance: InstanceView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadAnswer:
    """What a reload has moved: each server is in one group; the reports of what was stopped."""

    unchanged: tuple[str, ...]
    changed: tuple[str, ...]
    retuned: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    warnings: tuple[str, ...]
    reports: tuple[CleanupReport, ...]


@dataclass(frozen=True, slots=True)
class StopSummary:
    """How the daemon's own stop ended, in instances."""

    confirmed: int
    unconfirmed: int
