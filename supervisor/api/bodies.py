"""JSON bodies that are no views of their own: requests, lists and the problem document."""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from supervisor.core.report import CleanupReport
from supervisor.core.tool_filter import ToolFilter
from supervisor.core.views import InstanceView, ServerView, SessionView
from supervisor.telemetry.events import Event


class ActionBody(BaseModel):
    """What start, stop and restart take; a word that they do not use is ignored by them.

    Unknown words are refused, since a misspelt `force` would be a stop that is not forced.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    session: str | None = None
    force: bool = False
    verify: bool = False


class FilterBody(BaseModel):
    """Which tools a session sees, with `*` for anything; exclusion wins."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include: list[str] | None = None
    exclude: list[str] | None = None


class SessionBody(BaseModel):
    """What `PUT /v1/sessions/{key}` takes; `servers` left out or null means all."""

    model_config = ConfigDict(extra="forbid", strict=True)

    servers: list[str] | None = None
    toolFilter: FilterBody | None = None  # noqa: N815 - the API's spelling
    requester: str | None = Field(None, max_length=256)
    idleTimeoutMs: float | None = Field(None, ge=0, le=2**31)  # noqa: N815 - likewise

    def filter(self) -> ToolFilter:
        """The filter as a value."""
        given = self.toolFilter or FilterBody()
        return ToolFilter(
            include=None if given.include is None else tuple(given.include),
            exclude=tuple(given.exclude or ()),
        )


class ShutdownBody(BaseModel):
    """What `POST /v1/shutdown` takes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerList:
    """`GET /v1/servers`, sorted by name."""

    servers: tuple[ServerView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceList:
    """`GET /v1/instances`, sorted by server and id."""

    instances: tuple[InstanceView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionList:
    """`GET /v1/sessions`, sorted by key."""

    sessions: tuple[SessionView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportList:
    """`GET /v1/reports`, oldest first."""

    reports: tuple[CleanupReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventList:
    """`GET /v1/events`, oldest first."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownAnswer:
    """The daemon `pid` is stopping and allows itself `deadline_s` seconds for its servers."""

    pid: int
    deadline_s: float
    stopping: Literal[True] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`GET /healthz` and `/readyz`."""

    status: Literal["ok", "starting_or_stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """One thing that is wrong with a request: where, and what."""

    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """RFC 9457 problem details; each `code` adds its own typed fields beside these."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[FieldProblem, ...] = field(default=())
