"""The bodies of the control API as the client reads them.

The keys are the fields of `core/views.py` and `core/report.py`; a test holds them together. Those
dataclasses are not imported: making them costs 20 ms, a third of what `mcpctl status` may take.
"""

from collections.abc import Mapping
from typing import TypedDict


class Stop(TypedDict):
    """A stop under way; seconds left until its deadline."""

    stage: str
    deadline_in_s: float


class Instance(TypedDict):
    """One family of processes."""

    id: str
    server: str
    session: str | None
    state: str
    pid: int | None
    pgid: int | None
    relay_pid: int | None
    anchor_pid: int | None
    started_at_utc: str
    uptime_s: float
    protocol_version: str | None
    clients: int
    calls_in_flight: int
    stop: Stop | None
    quarantined: bool
    stderr_tail: list[str]
    stray_lines: int
    first_stray_lines: list[str]


class Server(TypedDict):
    """One configured server."""

    name: str
    state: str
    transport: str
    command: str
    instances: list[str]
    error: str | None
    exits: int
    last_exit: "Exit | None"
    next_start_in_s: float | None


class Daemon(TypedDict):
    """The daemon itself."""

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
    config_files: list[str]


class Queue(TypedDict):
    """Starts that run and starts that wait."""

    starting: int
    waiting: int


class Limits(TypedDict):
    """The limits that bound the daemon."""

    max_instances: int
    instances: int
    start_concurrency: int
    descriptors: int
    descriptors_open: int


class SessionServer(TypedDict):
    """One server of a session."""

    name: str
    state: str


class Session(TypedDict):
    """One session."""

    key: str
    instances: list[str]
    fingerprint: str | None
    servers: list[SessionServer]
    idle_timeout_s: float | None


class Sessions(TypedDict):
    """`GET /v1/sessions`."""

    sessions: list[Session]


class OpenedSession(TypedDict):
    """The answer to `PUT /v1/sessions/{key}`."""

    key: str
    fingerprint: str
    reused: bool
    servers: list[SessionServer]
    diagnostics: list[str]


class Tools(TypedDict):
    """`GET /v1/sessions/{key}/tools`: items as the servers gave them."""

    tools: list[dict[str, object]]
    diagnostics: list[str]


class CallResult(TypedDict, total=False):
    """What a tool answered: MCP's `CallToolResult`, as the server sent it."""

    content: list[dict[str, object]]
    structuredContent: object
    isError: bool


class Prompts(TypedDict):
    """`GET /v1/sessions/{key}/prompts`, likewise."""

    prompts: list[dict[str, object]]
    diagnostics: list[str]


class Resources(TypedDict):
    """`GET /v1/sessions/{key}/resources`, likewise."""

    resources: list[dict[str, object]]
    resourceTemplates: list[dict[str, object]]
    diagnostics: list[str]


class Prompt(TypedDict, total=False):
    """One prompt: MCP's `GetPromptResult`, as the server sent it."""

    description: str
    messages: list[dict[str, object]]


class ResourceContents(TypedDict, total=False):
    """One resource: MCP's `ReadResourceResult`, as the server sent it."""

    contents: list[dict[str, object]]


class Probe(TypedDict):
    """`POST /v1/servers/{name}/probe`."""

    server: str
    ok: bool
    error: str | None
    protocol_version: str | None
    how: str | None
    server_info: dict[str, object] | None
    tools: int | None
    prompts: int | None
    resources: int | None
    diagnostics: list[str]
    took_s: float


class Status(TypedDict):
    """`GET /v1/status`."""

    daemon: Daemon
    servers: list[Server]
    sessions: list[Session]
    instances: list[Instance]
    queue: Queue
    limits: Limits


class Fact(TypedDict):
    """One thing that is known or missing."""

    name: str
    state: str
    at_s: float | None
    evidence: str


class SentSignal(TypedDict):
    """One signal and what became of it."""

    target: str
    pid: int
    signal: str
    at_s: float
    result: str
    errno: int | None


class Survivor(TypedDict):
    """A process that is known to be alive."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    started_at_utc: str
    command: str
    why: str


class Leftover(TypedDict):
    """A process that outlived the server and was ended."""

    pid: int
    command: str


class Exit(TypedDict):
    """How the server ended."""

    code: int | None
    signal: int | None


class Report(TypedDict):
    """The cleanup report."""

    instance: str
    server: str
    session: str | None
    reason: str
    outcome: str
    deadline_s: float
    deadline_shortened_by: str | None
    elapsed_s: float
    requested_at_utc: str
    facts: list[Fact]
    missing: list[str]
    signals: list[SentSignal]
    failed_signals: list[SentSignal]
    survivors: list[Survivor]
    unattributed: list[Survivor]
    leftovers_ended: list[Leftover]
    exit: Exit
    last_stderr: list[str]
    amended_at_utc: str | None
    released: bool


class Started(TypedDict):
    """The answer to a start."""

    instance: Instance
    started: bool


class Stopped(TypedDict):
    """The answer to a stop."""

    outcome: str
    reports: list[Report]


class Restarted(TypedDict):
    """The answer to a restart."""

    outcome: str
    reports: list[Report]
    instance: Instance | None


class Reloaded(TypedDict):
    """The answer to `POST /v1/reload`."""

    unchanged: list[str]
    changed: list[str]
    retuned: list[str]
    added: list[str]
    removed: list[str]
    warnings: list[str]
    reports: list[Report]


class Stopping(TypedDict):
    """The answer to `POST /v1/shutdown`."""

    stopping: bool
    pid: int
    deadline_s: float


class Instances(TypedDict):
    """`GET /v1/instances`."""

    instances: list[Instance]


class Reports(TypedDict):
    """`GET /v1/reports`."""

    reports: list[Report]


class Event(TypedDict):
    """One happening."""

    id: str
    name: str
    at_utc: str
    server: str | None
    instance: str | None
    session: str | None
    data: Mapping[str, object]


class Events(TypedDict):
    """`GET /v1/events`, as a list."""

    events: list[Event]
