"""Errors of one request to an MCP server, each with the JSON-RPC code that a client gets for it.

The codes lie in the band that MCP leaves to implementations (-32000..-32019), without -32000 and
-32001, which SDKs use for their own ends, and without those of the next revision.

Source: JSON-RPC 2.0, section 5.1; MCP 2026-07-28, error codes.
"""

from typing import ClassVar, Final

from pydantic import JsonValue

from supervisor.core.errors import ServerFault, SupervisorError

MAX_QUOTED_LINES: Final = 5
"""How many of the last lines on stderr an error quotes."""

INTERNAL: Final = -32603
INVALID_REQUEST: Final = -32600
PARSE_ERROR: Final = -32700
METHOD_NOT_FOUND: Final = -32601


class CallError(ServerFault):
    """A request to a server got no answer of the server's.

    Attributes:
        rpc_code: what a client gets for it as JSON-RPC.
        server: whose it was.
    """

    code = "call_failed"
    rpc_code: ClassVar[int] = INTERNAL

    def __init__(self, server: str, sentence: str) -> None:
        self.server = server
        super().__init__(sentence)


class ServerGoneError(CallError):
    """The server's process ended, or was ended, before it answered; nothing was replayed.

    Attributes:
        why: how it ended, as a clause: `exited with code 7`.
        last_stderr: the last lines it wrote, printable and masked.
    """

    code = "server_gone"
    rpc_code = -32002

    def __init__(self, server: str, why: str, last_stderr: tuple[str, ...] = ()) -> None:
        self.why = why
        self.last_stderr = last_stderr
        quoted = quote_stderr(last_stderr)
        super().__init__(
            server,
            f"Server {server!r} {why} before it answered; the request was not repeated.{quoted}",
        )


class CallTimedOutError(CallError):
    """The server did not answer within the time limit.

    Attributes:
        limit_s: seconds that it had.
        setting: the key of the server's record that sets the limit.
        last_stderr: likewise.
    """

    code = "call_timed_out"
    rpc_code = -32003

    def __init__(
        self, server: str, limit_s: float, setting: str, last_stderr: tuple[str, ...] = ()
    ) -> None:
        self.limit_s = limit_s
        self.setting = setting
        self.last_stderr = last_stderr
        super().__init__(
            server,
            f"Server {server!r} did not answer within {limit_s:g} s; {setting} sets this limit."
            f"{quote_stderr(last_stderr)}",
        )


class CallQueuedTooLongError(CallError):
    """The call's turn did not come: others before it took too long."""

    code = "call_queued_too_long"
    rpc_code = -32003

    def __init__(self, server: str, limit_s: float, running: int, waiting: int) -> None:
        self.limit_s = limit_s
        self.running = running
        self.waiting = waiting
        super().__init__(
            server,
            f"The call to server {server!r} waited {limit_s:g} s (requestTimeoutMs) for its turn: "
            f"{running} calls run and {waiting} wait. If its tools may run side by side, set "
            "supportsParallelToolCalls in its record.",
        )


class NotReadingError(CallError):
    """The server had not read the request from its stdin when its time was over."""

    code = "server_not_reading"
    rpc_code = -32004

    def __init__(self, server: str, limit_s: float, unread_bytes: int) -> None:
        self.limit_s = limit_s
        self.unread_bytes = unread_bytes
        super().__init__(
            server,
            f"Server {server!r} is not reading its input: after {limit_s:g} s (requestTimeoutMs) "
            f"{unread_bytes} bytes still wait for it, this request among them.",
        )


class AnswerTooLongError(CallError):
    """The server's answer is longer than a line may be."""

    code = "answer_too_long"
    rpc_code = -32005

    def __init__(self, server: str, length_bytes: int, limit_bytes: int) -> None:
        self.length_bytes = length_bytes
        self.limit_bytes = limit_bytes
        super().__init__(
            server,
            f"Server {server!r} sent a line of {length_bytes} bytes; the limit is {limit_bytes}. "
            "Raise maxLineBytes in its record, or ask for less at once.",
        )


class RequestTooLongError(CallError):
    """A client's request is longer than a line may be."""

    code = "request_too_long"
    rpc_code = -32005

    def __init__(self, server: str, length_bytes: int, limit_bytes: int) -> None:
        self.length_bytes = length_bytes
        self.limit_bytes = limit_bytes
        super().__init__(
            server,
            f"A request of {length_bytes} bytes to server {server!r} is refused; the limit is "
            f"{limit_bytes}. Raise maxLineBytes in its record, or send less at once.",
        )


class AnswerNotUtf8Error(CallError):
    """The server's answer is not UTF-8."""

    code = "answer_not_utf8"
    rpc_code = -32006

    def __init__(self, server: str) -> None:
        super().__init__(
            server,
            f"Server {server!r} sent an answer with invalid UTF-8; it has to encode what it "
            "writes on stdout as UTF-8.",
        )


class RpcError(CallError):
    """The server answered with an error of its own.

    Attributes:
        method: what was asked.
        answered_code: the code that it gave.
        answered_message: its words, printable.
        data: what came with it.
    """

    code = "server_answered_error"

    def __init__(
        self,
        server: str,
        method: str,
        answered_code: int,
        answered_message: str,
        data: JsonValue = None,
    ) -> None:
        self.method = method
        self.answered_code = answered_code
        self.answered_message = answered_message
        self.data = data
        super().__init__(
            server,
            f"Server {server!r} answered {method} with error {answered_code}: {answered_message}",
        )


class BadAnswerError(CallError):
    """The server answered with something that the protocol does not allow there."""

    code = "bad_answer"

    def __init__(self, server: str, method: str, why: str) -> None:
        self.method = method
        self.why = why
        super().__init__(server, f"Server {server!r} answered {method} wrongly: {why}.")


class ProtocolVersionError(CallError):
    """The server and the daemon have no revision of the protocol in common."""

    code = "protocol_version_unknown"

    def __init__(self, server: str, why: str) -> None:
        self.why = why
        super().__init__(server, f"Server {server!r} {why.rstrip('.')}.")


class ChannelClosedError(CallError):
    """The session let go of the server while a request was under way; nothing was repeated."""

    code = "channel_closed"
    rpc_code = -32008

    def __init__(self, server: str) -> None:
        super().__init__(
            server,
            f"The session has let go of server {server!r} before it answered; the request was not "
            "repeated.",
        )


UNAVAILABLE: Final = -32008
"""No server could be had for the request; the sentence says why."""


def rpc_code_of(error: SupervisorError) -> int:
    """The JSON-RPC code that a client gets for `error`."""
    return error.rpc_code if isinstance(error, CallError) else UNAVAILABLE


def quote_stderr(lines: tuple[str, ...]) -> str:
    """The end of a sentence that shows the last lines on stderr, or nothing."""
    kept = [line for line in lines if line.strip()][-MAX_QUOTED_LINES:]
    return f" Its last lines on stderr: {' | '.join(kept)}" if kept else ""
