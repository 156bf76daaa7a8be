"""The shape of the file: which keys there are, and what type each has that is read.

A description completes the sentence "X where ... belongs.", and is what a person reads who got
the type wrong. Null is the same as leaving a key out.
Source: design section 11; OpenClaw 2026.9.6 for the keys that other programs write.
"""

from types import MappingProxyType
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from supervisor.core.launch import DEFAULT_DEADLINE_S, KILL_SHARE, TERM_SHARE, StopPolicy

MAX_SPAN_MS: Final = 86_400_000
"""A day: nobody waits longer for a stop, and poll(2) cannot wait longer than 24 of them."""

MAX_ID: Final = 2**32 - 2
"""The largest user or group id; the next number means "leave it as it is", setresuid(2)."""

STOP_ORDER: Final = "stop_order"
"""The type of the one error whose message is for people as it stands."""

_Span = Annotated[float, Field(ge=0, le=MAX_SPAN_MS)]
_Id = Annotated[int, Field(ge=0, le=MAX_ID)]
_BOOLEAN: Final = "true or false"
_TEXT: Final = "text in quotes"


class Record(BaseModel):
    """What all records share: exact types, camelCase keys, no opinion on unknown keys."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", alias_generator=to_camel, allow_inf_nan=False
    )


class StopRecord(Record):
    """`stop` of a server: how long each stage may last."""

    deadline_ms: float | None = Field(
        None, gt=0, le=MAX_SPAN_MS, description="a number of milliseconds above 0, at most a day,"
    )
    term_after_ms: _Span | None = Field(None, description="a number of milliseconds from 0 on")
    kill_after_ms: _Span | None = Field(None, description="a number of milliseconds from 0 on")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        policy = self.policy()
        if not 0 <= policy.term_after_s <= policy.kill_after_s < policy.deadline_s:
            message = (
                f"termAfterMs {policy.term_after_s * 1000:g}, killAfterMs "
                f"{policy.kill_after_s * 1000:g} and deadlineMs {policy.deadline_s * 1000:g} do "
                "not follow each other; right is 0 <= termAfterMs <= killAfterMs < deadlineMs."
            )
            raise PydanticCustomError(STOP_ORDER, "{message}", {"message": message})
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


class SettingsRecord(Record):
    """The `supervisor` block, as far as this release reads it."""

    max_instances: int | None = Field(None, ge=1, description="a whole number from 1 on")
    start_concurrency: int | None = Field(None, ge=1, description="a whole number from 1 on")
    shutdown_timeout_ms: float | None = Field(
        None, gt=0, le=MAX_SPAN_MS, description="a number of milliseconds above 0, at most a day,"
    )
    socket_group: str | None = Field(None, description="text in quotes, the name of a group,")
    path: str | None = Field(None, description='text in quotes, such as "/usr/bin:/bin",')


ITEM_RULES: Final = MappingProxyType({"args": _TEXT, "env": "text, a number, true or false"})
"""What belongs one level below those fields."""


def keys_of(record: type[Record], *unread: str) -> frozenset[str]:
    """The keys that `record` reads, and those that are known though nothing reads them yet."""
    read = {field.alias for field in record.model_fields.values() if field.alias is not None}
    return frozenset(read.union(*(group.split() for group in unread)))


TOP_KEYS: Final = frozenset({"$schema", "gateway", "mcp", "mcpServers", "supervisor"})
MCP_KEYS: Final = frozenset({"apps", "servers", "sessionIdleTtlMs"})
STOP_KEYS: Final = keys_of(StopRecord)
SETTINGS_KEYS: Final = keys_of(SettingsRecord, "maxLineBytes metrics sessionIdleTtlMs")
SERVER_KEYS: Final = keys_of(
    ServerRecord,
    "auth clientCert clientKey codex connectionTimeoutMs headers oauth requestTimeoutMs sslVerify",
    "supportsParallelToolCalls toolFilter",
    "autostart description envFile idleTimeoutMs limits maxLineBytes maxTotalTimeoutMs protocol",
    "resetTimeoutOnProgress restart scope warm",
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
