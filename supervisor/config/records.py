"""The shape of the file: which keys there are, and what type each has that is read.

A description completes the sentence "X where ... belongs.", and is what a person reads who got
the type wrong. Null is the same as leaving a key out.
Source: design section 11; OpenClaw 2026.9.6 for the keys that other programs write.
"""

from types import MappingProxyType
from typing import Annotated, Final, Literal, NoReturn, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from supervisor.core.launch import DEFAULT_DEADLINE_S, KILL_SHARE, TERM_SHARE, StopPolicy
from supervisor.core.limits import (
    DEFAULT_BACKOFF_MAX_S,
    DEFAULT_BACKOFF_S,
    DEFAULT_REQUEST_TIMEOUT_S,
    CallLimits,
    RestartKind,
    RestartPolicy,
)
from supervisor.core.tool_filter import ToolFilter

MAX_SPAN_MS: Final = 86_400_000
"""A day: nobody waits longer for a stop, and poll(2) cannot wait longer than 24 of them."""

MAX_WAIT_MS: Final = 2**31 - 1
"""24 days: what a timer of the JavaScript clients can count to, and so what their files hold."""

MIN_BUFFER_BYTES: Final = 4096
MAX_BUFFER_BYTES: Final = 2**30
"""Below the one, no handshake fits into a line; above the other, one line fills a machine."""

MAX_INTENSITY: Final = 1000
"""Restarts within the period; each is remembered for as long."""

MAX_ID: Final = 2**32 - 2
"""The largest user or group id; the next number means "leave it as it is", setresuid(2)."""

OUT_OF_ORDER: Final = "out_of_order"
"""The type of the one error whose message is for people as it stands."""

_Span = Annotated[float, Field(ge=0, le=MAX_SPAN_MS)]
_Id = Annotated[int, Field(ge=0, le=MAX_ID)]
_Buffer = Annotated[int, Field(ge=MIN_BUFFER_BYTES, le=MAX_BUFFER_BYTES)]
_BOOLEAN: Final = "true or false"
_TEXT: Final = "text in quotes"
_SPAN: Final = "a number of milliseconds above 0, at most a day,"
_WAIT: Final = f"a number of milliseconds above 0, at most {MAX_WAIT_MS},"
_IDLE: Final = f"a number of milliseconds from 0 (never) on, at most {MAX_WAIT_MS},"
_BUFFER: Final = f"a whole number of bytes from {MIN_BUFFER_BYTES} to {MAX_BUFFER_BYTES}"
_KINDS: Final = '"permanent", "transient" or "temporary"'


def _refuse(message: str) -> NoReturn:
    """Fail a validator with a message that people see as it stands."""
    raise PydanticCustomError(OUT_OF_ORDER, "{message}", {"message": message})


class Record(BaseModel):
    """What all records share: exact types, camelCase keys, no opinion on unknown keys."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", alias_generator=to_camel, allow_inf_nan=False
    )


class StopRecord(Record):
    """`stop` of a server: how long each stage may last."""

    deadline_ms: float | None = Field(None, gt=0, le=MAX_SPAN_MS, description=_SPAN)
    term_after_ms: _Span | None = Field(None, description="a number of milliseconds from 0 on")
    kill_after_ms: _Span | None = Field(None, description="a number of milliseconds from 0 on")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        policy = self.policy()
        if not 0 <= policy.term_after_s <= policy.kill_after_s < policy.deadline_s:
            _refuse(
                f"termAfterMs {policy.term_after_s * 1000:g}, killAfterMs "
                f"{policy.kill_after_s * 1000:g} and deadlineMs {policy.deadline_s * 1000:g} do "
                "not follow each other; right is 0 <= termAfterMs <= killAfterMs < deadlineMs."
            )
        return self

    def policy(self) -> StopPolicy:
        """The instants in seconds; those not given make room for those that are."""
        deadline = DEFAULT_DEADLINE_S * 1000 if self.deadline_ms is None else self.deadline_ms
        term, kill = self.term_after_ms, self.kill_after_ms
        if term is None:
            term = min(deadline * TERM_SHARE, deadline if kill is None else kill)
        if kill is None:
            kill = max(deadline * KILL_SHARE, term)
        return StopPolicy(
            deadline_s=deadline / 1000, term_after_s=term / 1000, kill_after_s=kill / 1000
        )


class RestartRecord(Record):
    """`restart` of a server, also where the file has nothing but the policy's name."""

    policy: RestartKind | None = Field(None, description=_KINDS)
    intensity: int | None = Field(
        None, ge=0, le=MAX_INTENSITY, description=f"a whole number from 0 to {MAX_INTENSITY}"
    )
    period_ms: float | None = Field(None, gt=0, le=MAX_SPAN_MS, description=_SPAN)
    backoff_ms: float | None = Field(None, gt=0, le=MAX_SPAN_MS, description=_SPAN)
    backoff_max_ms: float | None = Field(None, gt=0, le=MAX_SPAN_MS, description=_SPAN)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        restart = self.restart_policy()
        if restart.backoff_s > restart.backoff_max_s:
            _refuse(
                f"backoffMs {restart.backoff_s * 1000:g} is above backoffMaxMs "
                f"{restart.backoff_max_s * 1000:g}; right is backoffMs <= backoffMaxMs."
            )
        return self

    def restart_policy(self) -> RestartPolicy:
        """The policy in seconds; a back-off that is not given makes room for the one that is."""
        default = RestartPolicy()
        least, most = _seconds(self.backoff_ms), _seconds(self.backoff_max_ms)
        if least is None:
            least = DEFAULT_BACKOFF_S if most is None else min(DEFAULT_BACKOFF_S, most)
        if most is None:
            most = max(DEFAULT_BACKOFF_MAX_S, least)
        return RestartPolicy(
            kind=self.policy or default.kind,
            intensity=default.intensity if self.intensity is None else self.intensity,
            period_s=_seconds(self.period_ms) or default.period_s,
            backoff_s=least,
            backoff_max_s=most,
        )


class ToolFilterRecord(Record):
    """`toolFilter` of a server: names, with `*` for anything."""

    include: list[str] | None = Field(None, description='a list of texts, such as ["read_*"],')
    exclude: list[str] | None = Field(None, description='a list of texts, such as ["delete_*"],')

    def tool_filter(self) -> ToolFilter:
        """The filter as a value."""
        return ToolFilter(
            include=None if self.include is None else tuple(self.include),
            exclude=tuple(self.exclude or ()),
        )


class ServerRecord(Record):
    """One entry of `mcpServers`, as far as this release reads it."""

    enabled: bool | None = Field(None, description=_BOOLEAN)
    command: str | None = Field(None, description=_TEXT)
    args: list[str] | None = Field(None, description='a list of texts, such as ["--port", "8080"],')
    env: dict[str, str | bool | int | float] | None = Field(
        None, description='an object, such as {"LOG_LEVEL": "info"},'
    )
    cwd: str | None = Field(None, description="text in quotes, the path of a directory,")
    url: str | None = Field(None, description=_TEXT)
    transport: str | None = Field(None, description='"stdio", "streamable-http" or "sse"')
    type: str | None = Field(None, description='"stdio", "http" or "sse"')
    stop: StopRecord | None = Field(None, description='an object, such as {"deadlineMs": 5000},')
    uid: _Id | str | None = Field(None, description="the number or the name of a user")
    gid: _Id | str | None = Field(None, description="the number or the name of a group")
    no_new_privileges: bool | None = Field(None, description=_BOOLEAN)
    allow_loader_env: bool | None = Field(None, description=_BOOLEAN)
    env_file: str | None = Field(None, description="text in quotes, the path of a file,")
    connection_timeout_ms: float | None = Field(None, gt=0, le=MAX_WAIT_MS, description=_WAIT)
    request_timeout_ms: float | None = Field(None, gt=0, le=MAX_WAIT_MS, description=_WAIT)
    max_total_timeout_ms: float | None = Field(None, gt=0, le=MAX_WAIT_MS, description=_WAIT)
    reset_timeout_on_progress: bool | None = Field(None, description=_BOOLEAN)
    max_line_bytes: _Buffer | None = Field(None, description=_BUFFER)
    restart: RestartRecord | None = Field(
        None, description=f'{_KINDS}, or an object, such as {{"policy": "transient"}},'
    )
    idle_timeout_ms: float | None = Field(None, ge=0, le=MAX_WAIT_MS, description=_IDLE)
    autostart: bool | None = Field(None, description=_BOOLEAN)
    scope: Literal["session", "shared"] | None = Field(None, description='"session" or "shared"')
    protocol: Literal["auto", "legacy", "modern"] | None = Field(
        None, description='"auto", "legacy" or "modern"'
    )

    supports_parallel_tool_calls: bool | None = Field(None, description=_BOOLEAN)
    tool_filter: ToolFilterRecord | None = Field(
        None, description='an object, such as {"include": ["read_*"]},'
    )

    @field_validator("restart", mode="before")
    @classmethod
    def _name_alone(cls, value: JsonValue) -> JsonValue:
        return {"policy": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        calls = self.call_limits(MIN_BUFFER_BYTES)
        total_s = calls.max_total_timeout_s
        if total_s is not None and total_s < calls.request_timeout_s:
            _refuse(
                f"requestTimeoutMs {calls.request_timeout_s * 1000:g} is above maxTotalTimeoutMs "
                f"{total_s * 1000:g}; right is requestTimeoutMs <= maxTotalTimeoutMs."
            )
        return self

    def call_limits(self, max_line_bytes: int) -> CallLimits:
        """The limits in seconds and bytes.

        Args:
            max_line_bytes: that of the daemon, for a record without one.
        """
        default, total_s = CallLimits(), _seconds(self.max_total_timeout_ms)
        request_s = DEFAULT_REQUEST_TIMEOUT_S
        if total_s is not None:  # a total alone makes room, as a deadline does for its stages
            request_s = min(request_s, total_s)
        return CallLimits(
            connection_timeout_s=_seconds(self.connection_timeout_ms)
            or default.connection_timeout_s,
            request_timeout_s=_seconds(self.request_timeout_ms) or request_s,
            max_total_timeout_s=total_s,
            reset_on_progress=self.reset_timeout_on_progress is True,
            max_line_bytes=self.max_line_bytes or max_line_bytes,
        )


class MetricsRecord(Record):
    """`metrics` of the `supervisor` block; what the address may be is checked with its value."""

    listen: str | None = Field(None, description='text in quotes, such as "127.0.0.1:9464",')


class SettingsRecord(Record):
    """The `supervisor` block, as far as this release reads it."""

    max_instances: int | None = Field(None, ge=1, description="a whole number from 1 on")
    start_concurrency: int | None = Field(None, ge=1, description="a whole number from 1 on")
    shutdown_timeout_ms: float | None = Field(None, gt=0, le=MAX_SPAN_MS, description=_SPAN)
    socket_group: str | None = Field(None, description="text in quotes, the name of a group,")
    path: str | None = Field(None, description='text in quotes, such as "/usr/bin:/bin",')
    session_idle_ttl_ms: float | None = Field(None, ge=0, le=MAX_WAIT_MS, description=_IDLE)
    max_line_bytes: _Buffer | None = Field(None, description=_BUFFER)
    max_client_queue_bytes: _Buffer | None = Field(None, description=_BUFFER)
    metrics: MetricsRecord | None = Field(
        None, description='an object, such as {"listen": "127.0.0.1:9464"},'
    )


def _seconds(span_ms: float | None) -> float | None:
    return None if span_ms is None else span_ms / 1000


ITEM_RULES: Final = MappingProxyType({"args": _TEXT, "env": "text, a number, true or false"})
"""What belongs one level below those fields."""


def keys_of(record: type[Record], *unread: str) -> frozenset[str]:
    """The keys that `record` reads, and those that are known though nothing reads them yet."""
    read = {field.alias for field in record.model_fields.values() if field.alias is not None}
    return frozenset(read.union(*(group.split() for group in unread)))


TOP_KEYS: Final = frozenset({"$schema", "gateway", "mcp", "mcpServers", "supervisor"})
MCP_KEYS: Final = frozenset({"apps", "servers", "sessionIdleTtlMs"})
METRICS_KEYS: Final = keys_of(MetricsRecord)
RESTART_KEYS: Final = keys_of(RestartRecord)
TOOL_FILTER_KEYS: Final = keys_of(ToolFilterRecord)
STOP_KEYS: Final = keys_of(StopRecord)
SETTINGS_KEYS: Final = keys_of(SettingsRecord)
SERVER_KEYS: Final = keys_of(
    ServerRecord,
    "auth clientCert clientKey codex description headers limits oauth sslVerify warm",
)

OTHER_SPELLINGS: Final = MappingProxyType(
    {
        "client_cert": "clientCert",
        "client_key": "clientKey",
        "connectTimeout": "connectionTimeoutMs",
        "connect_timeout": "connectionTimeoutMs",
        "environment": "env",
        "ssl_verify": "sslVerify",
        "supports_parallel_tool_calls": "supportsParallelToolCalls",
        "timeout": "requestTimeoutMs",
        "workingDirectory": "cwd",
    }
)
"""What other programs call a key of ours, where likeness would not find it."""
