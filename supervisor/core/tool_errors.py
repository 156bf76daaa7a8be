"""Errors of a tool call that is judged by its schemas, or refused because its server is paused.

A message names the place in the value as a JSON path (`$.rows[2].id`) and what was expected there.
It never shows the value itself.

Source: design sections 10 and 16; JSON-RPC 2.0, section 5.1.
"""

from typing import ClassVar, Final, Literal

from supervisor.core.call_errors import INTERNAL
from supervisor.core.errors import RequestError, ServerFault

INVALID_PARAMS: Final = -32602

SchemaField = Literal["inputSchema", "outputSchema"]


class ArgumentsInvalidError(RequestError):
    """The arguments do not match the tool's `inputSchema`; the server was not asked.

    Attributes:
        rpc_code: what a client gets for it as JSON-RPC.
        server: whose tool it is.
        tool: its name at that server.
        errors: one clause each, `$.limit has to be integer`; at most three.
        more: how many further ones there are.
    """

    code = "arguments_invalid"
    rpc_code: ClassVar[int] = INVALID_PARAMS

    def __init__(self, server: str, tool: str, errors: tuple[str, ...], more: int = 0) -> None:
        self.server = server
        self.tool = tool
        self.errors = errors
        self.more = more
        super().__init__(
            f"The arguments for tool {tool!r} of server {server!r} do not match its inputSchema: "
            f"{_listed(errors, more)}."
        )


class ResultInvalidError(ServerFault):
    """The tool's `structuredContent` does not match the `outputSchema` that its server declared.

    Attributes: as `ArgumentsInvalidError`.
    """

    code = "result_invalid"
    rpc_code: ClassVar[int] = INTERNAL

    def __init__(self, server: str, tool: str, errors: tuple[str, ...], more: int = 0) -> None:
        self.server = server
        self.tool = tool
        self.errors = errors
        self.more = more
        super().__init__(
            f"The result of tool {tool!r} of server {server!r} does not match its outputSchema: "
            f"{_listed(errors, more)}."
        )


class SchemaUnusableError(ServerFault):
    """A schema of this one tool cannot be used; other tools of its server are not affected.

    Attributes:
        rpc_code: what a client gets for it as JSON-RPC.
        server: whose tool it is.
        tool: its name at that server.
        field: which of its schemas.
        why: a clause, with the place in the schema.
    """

    code = "schema_unusable"
    rpc_code: ClassVar[int] = INTERNAL

    def __init__(self, server: str, tool: str, field: SchemaField, why: str) -> None:
        self.server = server
        self.tool = tool
        self.field = field
        self.why = why
        super().__init__(
            f"The {field} of tool {tool!r} of server {server!r} cannot be used: {why}."
        )


class ServerPausedError(ServerFault):
    """Too many requests to the server failed in a row; none is sent until the pause is over.

    Attributes:
        rpc_code: what a client gets for it as JSON-RPC.
        server: who is left in peace.
        failures: how many failed in a row.
        retry_in_s: seconds until requests are sent again.
        retry_at_utc: the same instant for people, ISO 8601.
    """

    code = "server_paused"
    rpc_code: ClassVar[int] = INTERNAL

    def __init__(self, server: str, failures: int, retry_in_s: float, retry_at_utc: str) -> None:
        self.server = server
        self.failures = failures
        self.retry_in_s = retry_in_s
        self.retry_at_utc = retry_at_utc
        requests = "request" if failures == 1 else f"{failures} requests in a row"
        super().__init__(
            f"Server {server!r} is paused, since the last {requests} to it failed; the next try "
            f"is possible at {retry_at_utc}, in {max(0.0, retry_in_s):.0f} s."
        )


def _listed(errors: tuple[str, ...], more: int) -> str:
    rest = f"; and {more} more" if more else ""
    return "; ".join(errors) + rest


class UnknownToolError(RequestError):
    """No server of the session offers a tool of that name (any more)."""

    code = "unknown_tool"

    def __init__(self, tool: str, session: str) -> None:
        self.tool = tool
        self.session = session
        super().__init__(
            f"Session {session!r} has no tool {tool!r}; `mcpctl tools --session {session}` lists "
            "those that it has."
        )


class UnknownPromptError(RequestError):
    """No server of the session offers a prompt of that name (any more)."""

    code = "unknown_prompt"

    def __init__(self, prompt: str, session: str) -> None:
        self.prompt = prompt
        self.session = session
        super().__init__(f"Session {session!r} has no prompt {prompt!r}.")


class UnknownResourceError(RequestError):
    """No server of the session has the resource, or it cannot be told which one."""

    code = "unknown_resource"

    def __init__(self, uri: str, session: str, candidates: tuple[str, ...]) -> None:
        self.uri = uri
        self.session = session
        self.candidates = candidates
        several = f"; it could be of {', '.join(candidates)}" if candidates else ""
        super().__init__(f"No server of session {session!r} lists the resource {uri!r}{several}.")


class UnknownSessionError(RequestError):
    """There is no such session."""

    code = "unknown_session"

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(
            f"There is no session {session!r}; `mcpctl sessions` lists those that there are."
        )
